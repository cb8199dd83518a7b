"""Images in folders: `root/<class>/<file>`, `root/<domain>/<class>/<file>`, text lists of `path label`, and ImageNet.

ImageNet: `<wnid>/ILSVRC2012_val_00000001.JPEG`, or all in one folder with `val.txt` (`file label`, as Caffe lists them)
or Kaggle's `LOC_val_solution.csv`. Frequencies: a table of which share of the people shown an image under its class
selected it (Recht et al. 2019, https://github.com/modestyachts/ImageNetV2).
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardsight.datasets.formats import EXTENSIONS, Size
from hardsight.datasets.interface import FileDataset, Skipped
from hardsight.files import LARGEST_TEXT, RefusedError, plain_file, quoted, read_json, read_text, reading
from hardsight.files.inside import Below, is_text, printable

_WNID = re.compile(r"n\d{8}")
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})")
_FREQUENCY_FILES = ("selection_frequency.csv", "selection_frequency.json")
_IMAGES = ("image", "image_id", "file", "filename", "file_name", "name", "path", "id")
_FREQUENCIES = ("selection_frequency", "human_selection_frequency", "hsf", "frequency", "fraction_selected")


def read_image_folder(
    folder: Path | str, split: str = "all", *, class_names: Sequence[str] | None = None, allow_empty: bool = False,
    size: Size = None, name: str = "folder",
) -> FileDataset:  # fmt: skip
    """`folder/<class>/.../<file>`, classes and files in sorted order; a `split` other than "all" is a subfolder.

    A class folder without images is rejected unless `allow_empty`.
    """
    root = Path(folder) if split == "all" else Path(folder) / split
    classes = tuple(class_names or subfolders(root))
    if not classes:
        flat = images_below(root, ".")
        hint = f" but images ({len(flat)}): move them into a folder that is named as their class" if flat else ""
        raise ValueError(f"{root} must hold one folder for each class; it holds none{hint}")
    paths, labels = _in_class_folders(root, ".", classes, lambda _: allow_empty)
    return collect(root, paths, labels, class_names=classes, name=name, split=split, size=size)


def read_domain_folders(
    folder: Path | str, domains: Mapping[str, str], *, class_names: Sequence[str] | None = None, **described: Any
) -> FileDataset:
    """`folder/<domain>/<class>/<file>`; `domains` maps each domain's name to its subfolder.

    Classes left out are those of all the domains together; a domain may lack one. `described`: name, split and size.
    """
    root = Path(folder)
    missing = [str(root / place) for place in domains.values() if not (root / place).is_dir()]
    if missing:
        raise FileNotFoundError(f"the domain folder {missing[0]} is not there")
    classes = tuple(class_names or sorted({each for place in domains.values() for each in subfolders(root / place)}))
    found = {
        domain: _in_class_folders(root, place, classes, lambda folder: not folder.is_dir())
        for domain, place in domains.items()
    }
    return of_domains(root, found, classes, **described)


def of_domains(
    root: Path, found: Mapping[str, tuple[list[str], list[int]]], class_names: Sequence[str], **described: Any
) -> FileDataset:
    """One data set of the paths and labels of each domain."""
    return collect(
        root, [path for paths, _ in found.values() for path in paths],
        [label for _, labels in found.values() for label in labels],
        domains=[number for number, (paths, _) in enumerate(found.values()) for _ in paths], domain_names=tuple(found),
        class_names=class_names, **described,
    )  # fmt: skip


def read_image_list(
    root: Path | str, list_file: Path | str, *, class_names: Sequence[str], first_label: int = 0, prefix: str = "",
    name: str = "list", split: str = "all", size: Size = None,
) -> FileDataset:  # fmt: skip
    """The images that a text file lists as `path label`, paths relative to `root`; ids are line positions.

    `prefix` is taken off the front of each path first: published lists often name a folder of their author's.
    Entries that are not there or that point outside the root are left out and listed in `skipped`.
    """
    paths, labels = parse_list(list_file, len(class_names), first_label, prefix)
    return collect(Path(root), paths, labels, class_names=class_names, name=name, split=split, size=size)


def parse_list(
    list_file: Path | str, num_classes: int, first_label: int = 0, prefix: str = ""
) -> tuple[list[str], list[int]]:
    """Paths and zero-based labels of the lines `path label`; the path may hold spaces."""
    paths, labels = [], []
    for number, line in enumerate(text_lines(list_file), start=1):
        path, _, label = line.rpartition(" ")
        # Python makes no number of thousands of digits, and says so without the file's name.
        number_like = label.isdecimal() and len(label) < 20
        if not path or not number_like or not 0 <= int(label) - first_label < num_classes:
            wanted = f"a path and a label in [{first_label}, {first_label + num_classes - 1}]"
            raise ValueError(f"{list_file}, line {number} must be {wanted}; got {quoted(line)}")
        paths.append(path.strip().removeprefix(prefix))
        labels.append(int(label) - first_label)
    return paths, labels


def text_lines(path: Path | str) -> list[str]:
    """The lines of a text file that are not blank; a file that is not text is rejected."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def collect(
    root: Path, paths: Sequence[str], labels: Sequence[int] | Tensor, *, name: str = "folder", split: str = "all",
    class_names: Sequence[str], ids: Sequence[int] | None = None, domains: Sequence[int] | None = None,
    domain_names: Sequence[str] = (), columns: Mapping[str, Tensor] | None = None, size: Size = None,
) -> FileDataset:  # fmt: skip
    """A data set of the usable paths; the others are listed as skipped. Ids left out are positions in `paths`."""
    below = Below(root)
    problems = [below.problem(path) for path in paths]
    kept = torch.tensor([index for index, problem in enumerate(problems) if problem is None], dtype=torch.int64)
    if not len(kept):
        first = f"; the first, {printable(paths[0])[:200]}: {problems[0]}" if paths else ""
        raise ValueError(f"none of the {len(paths)} images named for {root} can be used{first}")
    numbers = torch.arange(len(paths)) if ids is None else torch.tensor(ids, dtype=torch.int64)
    return FileDataset(
        root=root,
        paths=tuple(paths[index] for index in kept.tolist()),
        labels=torch.as_tensor(labels, dtype=torch.int64)[kept],
        ids=numbers[kept],
        domains=None if domains is None else torch.as_tensor(domains, dtype=torch.int64)[kept],
        columns={key: column[kept] for key, column in (columns or {}).items()},
        skipped=tuple(
            Skipped(printable(path), problem, int(number))
            for path, problem, number in zip(paths, problems, numbers, strict=True)
            if problem is not None
        ),
        name=name,
        split=split,
        class_names=tuple(class_names),
        domain_names=tuple(domain_names),
        size=size,
    )


def _in_class_folders(
    root: Path, place: str, classes: Sequence[str], may_be_empty: Callable[[Path], bool]
) -> tuple[list[str], list[int]]:
    """Paths and labels of the images in `root/place/<class>`; a class folder without any is rejected unless it may."""
    paths, labels = [], []
    for label, class_name in enumerate(classes):
        found = images_below(root, f"{place}/{class_name}")
        if not found and not may_be_empty(root / place / class_name):
            raise ValueError(f"the class folder {root / place / class_name} holds no image")
        paths += found
        labels += [label] * len(found)
    return paths, labels


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in `folder`, sorted; hidden ones are not looked at."""
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} is not there")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not is_text(name):
            raise ValueError(f"the folder {printable(name)} in {folder} must have a name in UTF-8: rename it")
    return names


def images_below(root: Path, folder: str) -> list[str]:
    """Paths, relative to `root`, of the image files below `root/folder`, sorted.

    Neither hidden folders nor links to folders are entered.
    """
    found = []
    for place, folders, files in os.walk(root / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inner = os.path.relpath(place, root).replace(os.sep, "/")
        found += [
            f"{inner}/{file}"
            for file in files
            if os.path.splitext(file)[1].lower() in EXTENSIONS and not file.startswith(".")
        ]
    return sorted(found)


def read_imagenet_val(
    folder: Path | str, split: str = "val", *, frequencies: Path | str | None = None, size: Size = None
) -> FileDataset:
    """ImageNet's validation images; ids are the official numbers less one; column `selection_frequency` (NaN: none).

    `frequencies` left out is selection_frequency.csv or .json in the folder or beside it, where there is one.
    """
    folder = Path(folder)
    paths, labels, class_names = _listed(folder)
    if frequencies is None:
        places = [place / name for place in (folder, folder.parent) for name in _FREQUENCY_FILES]
        frequencies = next((place for place in places if place.is_file()), None)
    columns = {}
    if frequencies is not None:
        table = read_selection_frequency(frequencies)
        shares = [_share(table, path, class_names[label]) for path, label in zip(paths, labels, strict=True)]
        columns["selection_frequency"] = torch.tensor(shares, dtype=torch.float64)
        if all(math.isnan(share) for share in shares):
            raise ValueError(f"{frequencies} must name images of {folder}; none of its {len(table)} images is there")
    official = [_NUMBER.search(path) for path in paths]
    ids = [int(match[1]) - 1 for match in official if match]
    return collect(
        folder, paths, labels, ids=ids if len(ids) == len(paths) else None, columns=columns, class_names=class_names,
        name="imagenet-val", split=split, size=size,
    )  # fmt: skip


def read_imagenet_v2(folder: Path | str, split: str = "test", *, size: Size = None) -> FileDataset:
    """ImageNetV2: class folders named 0 to 999, each named as its label; one that is not there moves no other."""
    numbers = [int(name) for name in subfolders(Path(folder)) if name.isdecimal() and int(name) < 1000]
    class_names = [str(number) for number in range(max(numbers, default=-1) + 1)]
    found = read_image_folder(folder, class_names=class_names, allow_empty=True, name="imagenetv2", size=size)
    empty = found.class_counts()[numbers] == 0
    if bool(empty.any()):
        raise ValueError(f"the class folder {Path(folder) / str(numbers[int(empty.int().argmax())])} holds no image")
    return found


def read_selection_frequency(path: Path | str) -> dict[str, dict[str, float]]:
    """Selection frequencies by image (file name without ending) and wnid; "" where the table gives no wnid.

    CSV with a header: an image column, a frequency column, optionally `wnid`. JSON: {image: share},
    {image: {wnid: share}} or {wnid: {image: share}}.
    """
    path = plain_file(path, LARGEST_TEXT)
    table: dict[str, dict[str, float]] = {}
    with reading(path, "a table of images and selection frequencies"):
        for image, wnid, share in _shares(path):
            shares = table.setdefault(Path(image).stem, {})
            if shares.setdefault(wnid, float(share)) != float(share):
                both = f"{shares[wnid]:g} and {float(share):g}"
                raise RefusedError(f"{path} must give each image one frequency; {Path(image).stem} has {both}")
    for image, shares in table.items():
        if not all(0 <= share <= 1 for share in shares.values()):
            raise ValueError(f"{path} must hold frequencies in [0, 1]; {image} has {max(shares.values()):g}")
    return table


def _listed(folder: Path) -> tuple[list[str], list[int], tuple[str, ...]]:
    from hardsight.files.plain import read_csv

    classes = [name for name in subfolders(folder) if _WNID.fullmatch(name)]
    if classes:
        # The official order is that of the numbers in the file names, across the class folders.
        pairs = [(path, label) for label, name in enumerate(classes) for path in images_below(folder, name)]
        pairs.sort(key=lambda pair: Path(pair[0]).name)
        return [path for path, _ in pairs], [label for _, label in pairs], tuple(classes)
    for place in (folder, folder.parent):
        kaggle = place / "LOC_val_solution.csv"
        if kaggle.is_file():
            with reading(kaggle, "a CSV of ImageId and PredictionString, a wnid first in it"):
                rows = [(row["ImageId"], row["PredictionString"].split()[0]) for row in read_csv(kaggle).to_pylist()]
            label_of = {wnid: label for label, wnid in enumerate(sorted({wnid for _, wnid in rows}))}
            rows.sort()
            return [f"{image}.JPEG" for image, _ in rows], [label_of[wnid] for _, wnid in rows], tuple(label_of)
        if (place / "val.txt").is_file():
            paths, labels = parse_list(place / "val.txt", 1000)
            return paths, labels, tuple(str(label) for label in range(1000))
    wanted = "one folder per class (n01440764, ...), or val.txt or LOC_val_solution.csv"
    raise FileNotFoundError(f"{folder} must hold {wanted}; it holds none")


def _share(table: Mapping[str, Mapping[str, float]], path: str, class_name: str) -> float:
    """The image's share under its own class; where the class has a number and no wnid, its only share."""
    shares = table.get(Path(path).stem, {})
    if len(shares) == 1 and not _WNID.fullmatch(class_name):
        return next(iter(shares.values()))
    return shares.get(class_name, shares.get("", math.nan))


def _shares(path: Path) -> Iterator[tuple[str, str, Any]]:
    """Image, wnid and share of each row of a table of frequencies."""
    from hardsight.files.plain import read_csv

    if path.suffix.lower() == ".json":
        for key, value in read_json(path).items():
            if not isinstance(value, dict):
                yield key, "", value
                continue
            for inner, share in value.items():
                yield (inner, key, share) if _WNID.fullmatch(key) else (key, inner, share)
        return
    table = read_csv(path, column_types=dict.fromkeys((*_IMAGES, "wnid"), "string"))
    header = table.column_names
    image, share = (next((name for name in names if name in header), "") for names in (_IMAGES, _FREQUENCIES))
    if not image or not share:
        wanted = f"an image column ({', '.join(_IMAGES)}) and a frequency column ({', '.join(_FREQUENCIES)})"
        raise RefusedError(f"{path} must have {wanted}; got {quoted(header)}")
    for row in table.to_pylist():
        yield row[image], row.get("wnid") or "", row[share]
