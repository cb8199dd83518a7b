"""Photographs in class folders or published lists: the Office family, VisDA-17, PACS, Clothing1M, MARS.

PACS: `<domain>/<class>/<file>` with the authors' lists `<domain>_{train,crossval}_kfold.txt` (labels from 1).
MARS: `bbox_{train,test}/<identity>/<identity>C<camera>T<tracklet>F<frame>.jpg`. Its `info/` gives the frame order, the
tracklets and which of them are queries; without it the tracklets come from the file names. Identity 00-1 is junk
(label -1), 0000 a distractor.
"""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from hardsight.datasets.folders import (
    collect,
    images_below,
    of_domains,
    parse_list,
    read_domain_folders,
    read_image_folder,
    read_image_list,
    subfolders,
    text_lines,
)
from hardsight.datasets.formats import Size, first_file, load_matlab
from hardsight.datasets.interface import FileDataset
from hardsight.datasets.registry import source
from hardsight.files import quoted
from hardsight.names import check_name

PACS_DOMAINS = tuple(source("pacs").domains)
_MARS_FRAME = re.compile(r"(?P<identity>\d{4}|00-1)C(?P<camera>\d)T(?P<tracklet>\d{4})F(?P<frame>\d+)\.jpe?g")
_PACS_LISTS = ("splits", "kfold", "pacs_label", ".", "..")


def _read_office(
    name: str, folder: Path | str, split: str = "all", *, lists: Mapping[str, str] | None = None, prefix: str = "",
    size: Size = None,
) -> FileDataset:  # fmt: skip
    """Office-31, Office-Caltech10 or Office-Home: `<domain>/<class>/<file>`, or `<domain>/images/<class>/<file>`.

    A domain's name is also a split. `lists` maps domains to image lists that are read instead; `prefix` is taken off
    the paths in them.
    """
    folder, domains = Path(folder), source(name).domains
    check_name("split", split, ("all", *domains))
    chosen = tuple(domains) if split == "all" else (split,)
    places = {}
    for domain, candidates in domains.items():
        place = next((each for each in candidates if (folder / each).is_dir()), candidates[0])
        places[domain] = f"{place}/images" if (folder / place / "images").is_dir() else place
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
    commonest = {label: name for label, found in enumerate(folders) for name, _ in found.most_common(1)}
    name_of = {label: name for label, name in commonest.items() if name in classes}
    twice = [name for name, count in Counter(name_of.values()).items() if count > 1]
    if twice:
        numbers = " and ".join(str(label) for label, name in name_of.items() if name == twice[0])
        raise ValueError(f"lists must number each class folder once; {twice[0]} is both {numbers}")
    left_over = iter([name for name in classes if name not in name_of.values()])
    return [name_of[label] if label in name_of else next(left_over) for label in range(len(classes))]


def read_pacs(
    folder: Path | str, split: str = "all", *, domains: Sequence[str] = PACS_DOMAINS, size: Size = None
) -> FileDataset:
    """PACS: "all" reads the folders, "train" and "crossval" the authors' lists; `domains` may name some only."""
    folder, classes = Path(folder), source("pacs").classes
    check_name("split", split, ("all", "train", "crossval"))
    unknown = [domain for domain in domains if domain not in PACS_DOMAINS]
    if unknown or not domains:
        raise ValueError(f"domains must be among {list(PACS_DOMAINS)}; got {list(domains)}")
    if split == "all":
        places = {domain: domain for domain in domains}
        return read_domain_folders(folder, places, class_names=classes, name="pacs", split=split, size=size)
    found = {}
    for domain in domains:
        listed = first_file([folder / place / f"{domain}_{split}_kfold.txt" for place in _PACS_LISTS])
        found[domain] = parse_list(listed, len(classes), first_label=1)
    return of_domains(folder, found, classes, name="pacs", split=split, size=size)


def read_visda17(folder: Path | str, split: str = "train", *, size: Size = None) -> FileDataset:
    """VisDA-17 classification: "train" (synthetic), "validation" and "test" (real), by `<split>/image_list.txt`.

    Without a list, "train" and "validation" are read from their class folders.
    """
    check_name("split", split, ("train", "validation", "test"))
    listed, classes = Path(folder) / split / "image_list.txt", source("visda17").classes
    if listed.is_file():
        return read_image_list(listed.parent, listed, class_names=classes, name="visda17", split=split, size=size)
    if split == "test":
        raise FileNotFoundError(f"{listed} is not there, and the test images are not in class folders")
    return read_image_folder(folder, split, class_names=classes, name="visda17", size=size)


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


def read_mars(folder: Path | str, split: str = "train", *, size: Size = None) -> FileDataset:
    """MARS frames; columns `tracklet`, `camera` and `identity`; labels count the identities of the split's half.

    "train"; "test": every tracklet of the test half; "query": the authors' queries; "gallery": the rest of "test".
    """
    folder = Path(folder)
    check_name("split", split, ("train", "query", "gallery", "test"))
    half = "train" if split == "train" else "test"
    listed, frames = folder / "info" / f"{half}_name.txt", folder / f"bbox_{half}"
    if listed.is_file():
        names = text_lines(listed)
    else:
        names = [Path(path).name for person in subfolders(frames) for path in images_below(frames, person)]
    parsed: list[re.Match[str]] = []
    for name in names:
        if (match := _MARS_FRAME.fullmatch(name)) is None:
            raise ValueError(f"a frame of {folder} must be named like 0001C1T0001F001.jpg; got {quoted(name)}")
        parsed.append(match)
    identity = np.array([-1 if part["identity"] == "00-1" else int(part["identity"]) for part in parsed])
    camera = np.array([int(part["camera"]) for part in parsed])
    tracklet = _tracklets(folder, half, names, parsed, identity, camera)
    people = np.unique(identity[identity >= 0])
    labels = np.where(identity < 0, -1, np.searchsorted(people, identity))
    chosen = _chosen(folder, split, tracklet)
    columns = {"tracklet": tracklet, "camera": camera, "identity": identity}
    return collect(
        folder, [f"bbox_{half}/{parsed[index]['identity']}/{names[index]}" for index in chosen],
        torch.from_numpy(labels[chosen]),
        columns={key: torch.from_numpy(column[chosen]) for key, column in columns.items()},
        class_names=tuple(f"{person:04d}" for person in people), name="mars", split=split, size=size,
    )  # fmt: skip


def _tracklets(
    folder: Path, half: str, names: list[str], parsed: list[re.Match[str]], identity: np.ndarray, camera: np.ndarray
) -> np.ndarray:
    """The number of each frame's tracklet; a table that disagrees with the file names is rejected."""
    table = folder / "info" / f"tracks_{half}_info.mat"
    if not table.is_file():
        keys = [(part["identity"], part["camera"], part["tracklet"]) for part in parsed]
        number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([number_of[key] for key in keys])
    tracks = load_matlab(table, f"track_{half}_info").astype(np.int64)
    if tracks.ndim != 2 or tracks.shape[1] != 4:
        raise ValueError(f"{table} must hold [tracklets, 4]: first frame, last frame, identity, camera")
    first, last = tracks[:, 0] - 1, tracks[:, 1]
    if (first < 0).any() or (last > len(names)).any() or (first >= last).any():
        raise ValueError(f"{table} must name frames 1 to {len(names)}, those of {half}_name.txt")
    tracklet = np.full(len(names), -1)
    for number, (start, stop) in enumerate(zip(first, last, strict=True)):
        tracklet[start:stop] = number
    if (tracklet < 0).any():
        raise ValueError(f"{table} must give every frame a tracklet; {names[int((tracklet < 0).argmax())]} has none")
    if (tracks[tracklet, 2] != identity).any() or (tracks[tracklet, 3] != camera).any():
        wrong = int(((tracks[tracklet, 2] != identity) | (tracks[tracklet, 3] != camera)).argmax())
        raise ValueError(f"{table} must agree with the file names; it does not for {names[wrong]}")
    return tracklet


def _chosen(folder: Path, split: str, tracklet: np.ndarray) -> np.ndarray:
    if split in ("train", "test"):
        return np.arange(len(tracklet))
    table = folder / "info" / "query_IDX.mat"
    if not table.is_file():
        raise FileNotFoundError(f"{table} is not there, and only it says which tracklets are queries")
    queries = load_matlab(table, "query_IDX").astype(np.int64).reshape(-1) - 1
    if not len(queries):
        raise ValueError(f"{table} must name at least one tracklet; it is empty")
    wrong = queries[(queries < 0) | (queries > tracklet.max())]
    if len(wrong):
        raise ValueError(f"{table} must name tracklets 1 to {tracklet.max() + 1}; got {wrong[0] + 1}")
    return np.isin(tracklet, queries, invert=split == "gallery").nonzero()[0]
