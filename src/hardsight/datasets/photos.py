"""Photographs in class folders or published lists: the Office family, VisDA-17, PACS, Clothing1M.

PACS: `<domain>/<class>/<file>` with the authors' lists `<domain>_{train,crossval}_kfold.txt` (labels from 1).
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import torch

from hardsight.datasets.folders import (
    collect,
    of_domains,
    parse_list,
    read_domain_folders,
    read_image_folder,
    read_image_list,
    subfolders,
    text_lines,
)
from hardsight.datasets.interface import FileDataset, Size
from hardsight.files import quoted
from hardsight.names import check_name

# https://github.com/VisionLearningGroup/taskcv-2017-public: labels 0 to 11 of the image lists.
VISDA17_CLASSES = (
    "aeroplane", "bicycle", "bus", "car", "horse", "knife",
    "motorcycle", "person", "plant", "skateboard", "train", "truck",
)  # fmt: skip


# The domains of each set, and the names that their folders have in the public copies.
_OFFICE: dict[str, dict[str, tuple[str, ...]]] = {
    "office-caltech10": {
        "amazon": ("amazon",),
        "caltech10": ("caltech10", "caltech"),
        "dslr": ("dslr",),
        "webcam": ("webcam",),
    },
    "office31": {"amazon": ("amazon",), "dslr": ("dslr",), "webcam": ("webcam",)},
    "office-home": {
        "Art": ("Art",),
        "Clipart": ("Clipart",),
        "Product": ("Product",),
        "Real World": ("Real World", "RealWorld", "Real_World"),
    },
}

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_PACS_LISTS = ("splits", "kfold", "pacs_label", ".", "..")


def _read_office(
    name: str,
    folder: Path | str,
    split: str = "all",
    *,
    lists: Mapping[str, str] | None = None,
    prefix: str = "",
    size: Size = None,
) -> FileDataset:
    """Office-31, Office-Caltech10 or Office-Home: `<domain>/<class>/<file>`, or `<domain>/images/<class>/<file>`.

    A domain's name is also a split. `lists` maps domains to image lists that are read instead; `prefix` is taken off
    the paths in them.
    """
    folder, domains = Path(folder), _OFFICE[name]
    check_name("split", split, ("all", *domains))
    chosen = tuple(domains) if split == "all" else (split,)
    places = {domain: _place(folder, candidates) for domain, candidates in domains.items()}
    # The classes of every domain that is there: one domain read alone has the same label numbers.
    there = [folder / place for place in places.values() if (folder / place).is_dir()]
    classes = sorted({each for place in there for each in subfolders(place)})
    if lists is None:
        places = {domain: places[domain] for domain in chosen}
        return read_domain_folders(folder, places, class_names=classes, name=name, split=split, size=size)
    missing = [domain for domain in chosen if domain not in lists]
    if missing:
        raise ValueError(f"lists must name a file for each of the domains {list(chosen)}; {missing[0]} is missing")
    # From all the lists: one domain read alone has the same names.
    classes = _named_by_lists(folder, lists, classes)
    found = {domain: parse_list(folder / lists[domain], len(classes), prefix=prefix) for domain in chosen}
    return of_domains(folder, found, classes, name=name, split=split, size=size)


read_office31 = functools.partial(_read_office, "office31")
read_office_caltech10 = functools.partial(_read_office, "office-caltech10")
read_office_home = functools.partial(_read_office, "office-home")


def _named_by_lists(folder: Path, lists: Mapping[str, str], classes: Sequence[str]) -> list[str]:
    """The class names in the order that the lists number them, each label after the folder of most of its images.

    Published lists need not count the folders in alphabetical order: the common ones of Office-Home begin with Drill.
    A label that no list has gets one of the names left over; folders that are no class leave the order as it is.
    """
    folders = [Counter[str]() for _ in classes]
    for file in lists.values():
        for path, label in zip(*parse_list(folder / file, len(classes)), strict=True):
            folders[label].update([PurePosixPath(path).parent.name])
    number_of: dict[str, int] = {}
    for label, found in enumerate(folders):
        for name in [name for name, _ in found.most_common(1) if name in classes]:
            if name in number_of:
                raise ValueError(
                    f"lists must number each class folder once; {name} is both {number_of[name]} and {label}"
                )
            number_of[name] = label
    left_over = iter([name for name in classes if name not in number_of])
    name_of = {label: name for name, label in number_of.items()}
    return [name_of[label] if label in name_of else next(left_over) for label in range(len(classes))]


def _place(folder: Path, candidates: Sequence[str]) -> str:
    domain = next((each for each in candidates if (folder / each).is_dir()), candidates[0])
    return f"{domain}/images" if (folder / domain / "images").is_dir() else domain


def read_pacs(
    folder: Path | str, split: str = "all", *, domains: Sequence[str] = PACS_DOMAINS, size: Size = None
) -> FileDataset:
    """PACS: "all" reads the folders, "train" and "crossval" the authors' lists; `domains` may name some only."""
    folder = Path(folder)
    check_name("split", split, ("all", "train", "crossval"))
    unknown = [domain for domain in domains if domain not in PACS_DOMAINS]
    if unknown or not domains:
        raise ValueError(f"domains must be among {list(PACS_DOMAINS)}; got {list(domains)}")
    if split == "all":
        places = {domain: domain for domain in domains}
        return read_domain_folders(folder, places, class_names=PACS_CLASSES, name="pacs", split=split, size=size)
    found = {}
    for domain in domains:
        files = [folder / place / f"{domain}_{split}_kfold.txt" for place in _PACS_LISTS]
        there = next((file for file in files if file.is_file()), files[0])
        found[domain] = parse_list(there, len(PACS_CLASSES), first_label=1)
    return of_domains(folder, found, PACS_CLASSES, name="pacs", split=split, size=size)


def read_visda17(folder: Path | str, split: str = "train", *, size: Size = None) -> FileDataset:
    """VisDA-17 classification: "train" (synthetic), "validation" and "test" (real), by `<split>/image_list.txt`.

    Without a list, "train" and "validation" are read from their class folders.
    """
    check_name("split", split, ("train", "validation", "test"))
    root = Path(folder) / split
    listed = root / "image_list.txt"
    if listed.is_file():
        return read_image_list(root, listed, class_names=VISDA17_CLASSES, name="visda17", split=split, size=size)
    if split == "test":
        raise FileNotFoundError(f"{listed} is not there, and the test images are not in class folders")
    return read_image_folder(folder, split, class_names=VISDA17_CLASSES, name="visda17", size=size)


def read_clothing1m(folder: Path | str, split: str = "noisy_train", *, size: Size = None) -> FileDataset:
    """Clothing1M; labels are noisy in "noisy_train" and clean elsewhere, both in `columns` (-1: not known).

    `noisy_label_kv.txt` and `clean_label_kv.txt` hold `path label`; the `..._key_list.txt` files hold the paths of each
    split; class names are the lines of `category_names_eng.txt`. Some images have both a noisy and a clean label.
    """
    folder = Path(folder)
    check_name("split", split, ("noisy_train", "clean_train", "clean_val", "clean_test"))
    # Some copies keep the text files apart from the images.
    apart = (folder / "annotations" / f"{split}_key_list.txt").is_file()
    lists = folder / "annotations" if apart else folder
    keys, class_names = (text_lines(lists / name) for name in (f"{split}_key_list.txt", "category_names_eng.txt"))
    if not keys or not class_names:
        empty = "category_names_eng.txt" if keys else f"{split}_key_list.txt"
        raise ValueError(f"{lists / empty} must have at least one line; it is empty")
    columns = {}
    for kind in ("noisy", "clean"):
        label_of = dict(zip(*parse_list(lists / f"{kind}_label_kv.txt", len(class_names)), strict=True))
        columns[f"{kind}_labels"] = torch.tensor([label_of.get(key, -1) for key in keys], dtype=torch.int64)
    own = "noisy" if split == "noisy_train" else "clean"
    labels = columns[f"{own}_labels"]
    if int(labels.min()) < 0:
        unknown = keys[int((labels < 0).nonzero()[0])]
        raise ValueError(f"{lists / f'{own}_label_kv.txt'} must label every key of {split}; {quoted(unknown)} has none")
    # Keys begin with `images/`; some copies unpack its ten folders `0` to `9` directly.
    paths = keys if (folder / "images").is_dir() else [key.removeprefix("images/") for key in keys]
    return collect(
        folder, paths, labels, columns=columns, class_names=class_names, name="clothing1m", split=split, size=size
    )
