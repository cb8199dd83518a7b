"""The Office family, VisDA-17 and PACS: one folder per domain and class, or published image lists.

PACS: `<domain>/<class>/<file>` with the authors' lists `<domain>_{train,crossval}_kfold.txt` (labels from 1).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from hardsight.datasets.folders import (
    parse_list,
    read_domain_folders,
    read_domain_lists,
    read_image_folder,
    read_image_list,
    subfolders,
)
from hardsight.datasets.interface import FileDataset, Size

# https://github.com/VisionLearningGroup/taskcv-2017-public: labels 0 to 11 of the image lists.
VISDA17_CLASSES = (
    "aeroplane", "bicycle", "bus", "car", "horse", "knife",
    "motorcycle", "person", "plant", "skateboard", "train", "truck",
)  # fmt: skip


_OFFICE_CALTECH10 = {
    "amazon": ("amazon",),
    "caltech10": ("caltech10", "caltech"),
    "dslr": ("dslr",),
    "webcam": ("webcam",),
}
_OFFICE31 = {"amazon": ("amazon",), "dslr": ("dslr",), "webcam": ("webcam",)}
_OFFICE_HOME = {
    "Art": ("Art",),
    "Clipart": ("Clipart",),
    "Product": ("Product",),
    "Real World": ("Real World", "RealWorld", "Real_World"),
}


def read_office_caltech10(
    folder: Path | str,
    split: str = "all",
    *,
    lists: Mapping[str, str] | None = None,
    prefix: str = "",
    size: Size = None,
) -> FileDataset:
    """Office-Caltech10: domains amazon, caltech10, dslr, webcam, each also a split; `lists` as for Office-31."""
    return _read(Path(folder), split, _OFFICE_CALTECH10, "office-caltech10", size, lists=lists, prefix=prefix)


def read_office31(
    folder: Path | str,
    split: str = "all",
    *,
    lists: Mapping[str, str] | None = None,
    prefix: str = "",
    size: Size = None,
) -> FileDataset:
    """Office-31: `<domain>/images/<class>/<file>`, or without `images`; a domain's name is also a split.

    `lists` maps domains to image lists that are read instead; `prefix` is taken off the paths in them.
    """
    return _read(Path(folder), split, _OFFICE31, "office31", size, lists=lists, prefix=prefix)


def read_office_home(
    folder: Path | str,
    split: str = "all",
    *,
    lists: Mapping[str, str] | None = None,
    prefix: str = "",
    size: Size = None,
) -> FileDataset:
    """Office-Home: domains Art, Clipart, Product and Real World; 65 classes; `lists` as for Office-31."""
    return _read(Path(folder), split, _OFFICE_HOME, "office-home", size, lists=lists, prefix=prefix)


def read_visda17(folder: Path | str, split: str = "train", *, size: Size = None) -> FileDataset:
    """VisDA-17 classification: "train" (synthetic), "validation" and "test" (real), by `<split>/image_list.txt`.

    Without a list, "train" and "validation" are read from their class folders.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f'split must be "train", "validation" or "test"; got {split!r}')
    root = Path(folder) / split
    listed = root / "image_list.txt"
    if listed.is_file():
        return read_image_list(root, listed, class_names=VISDA17_CLASSES, name="visda17", split=split, size=size)
    if split == "test":
        raise FileNotFoundError(f"{listed} is not there, and the test images do not lie in class folders")
    return read_image_folder(folder, split, class_names=VISDA17_CLASSES, name="visda17", size=size)


def _read(
    folder: Path,
    split: str,
    domains: Mapping[str, tuple[str, ...]],
    name: str,
    size: Size,
    *,
    lists: Mapping[str, str] | None = None,
    prefix: str = "",
) -> FileDataset:
    if split != "all" and split not in domains:
        raise ValueError(f'split must be "all" or one of the domains {list(domains)}; got {split!r}')
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
    lists = {domain: lists[domain] for domain in chosen}
    return read_domain_lists(folder, lists, class_names=classes, prefix=prefix, name=name, split=split, size=size)


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


PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_LIST_FOLDERS = ("splits", "kfold", "pacs_label", ".", "..")


def read_pacs(
    folder: Path | str, split: str = "all", *, domains: Sequence[str] = PACS_DOMAINS, size: Size = None
) -> FileDataset:
    """PACS: "all" reads the folders, "train" and "crossval" the authors' lists; `domains` may name some only."""
    folder = Path(folder)
    unknown = [domain for domain in domains if domain not in PACS_DOMAINS]
    if unknown or not domains:
        raise ValueError(f"domains must be among {list(PACS_DOMAINS)}; got {list(domains)}")
    if split == "all":
        places = {domain: domain for domain in domains}
        return read_domain_folders(folder, places, class_names=PACS_CLASSES, name="pacs", split=split, size=size)
    if split not in ("train", "crossval"):
        raise ValueError(f'split must be "all", "train" or "crossval"; got {split!r}')
    lists = {domain: _list_file(folder, f"{domain}_{split}_kfold.txt") for domain in domains}
    return read_domain_lists(
        folder, lists, class_names=PACS_CLASSES, first_label=1, name="pacs", split=split, size=size
    )


def _list_file(folder: Path, name: str) -> str:
    """Where the list lies, relative to the folder."""
    for place in _LIST_FOLDERS:
        if (folder / place / name).is_file():
            return f"{place}/{name}"
    raise FileNotFoundError(f"the list {folder / _LIST_FOLDERS[0] / name} is not there")
