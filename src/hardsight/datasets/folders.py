"""Images in folders: `root/<class>/<file>`, `root/<domain>/<class>/<file>`, and text lists of `path label`."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from hardsight.datasets.decoding import EXTENSIONS
from hardsight.datasets.interface import FileDataset, Size, Skipped
from hardsight.files import quoted, read_text
from hardsight.files.inside import Below, is_text, printable


class Described(TypedDict, total=False):
    """How a data set is called, and the size of its images."""

    name: str
    split: str
    size: Size


def read_image_folder(
    folder: Path | str,
    split: str = "all",
    *,
    class_names: Sequence[str] | None = None,
    allow_empty: bool = False,
    size: Size = None,
    name: str = "folder",
) -> FileDataset:
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
    folder: Path | str,
    domains: Mapping[str, str],
    *,
    class_names: Sequence[str] | None = None,
    **described: Unpack[Described],
) -> FileDataset:
    """`folder/<domain>/<class>/<file>`; `domains` maps each domain's name to its subfolder.

    Classes left out are those of all the domains together; a domain may lack one.
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
    root: Path,
    found: Mapping[str, tuple[list[str], list[int]]],
    class_names: Sequence[str],
    **described: Unpack[Described],
) -> FileDataset:
    """One data set of the paths and labels of each domain."""
    return collect(
        root,
        [path for paths, _ in found.values() for path in paths],
        [label for _, labels in found.values() for label in labels],
        domains=[number for number, (paths, _) in enumerate(found.values()) for _ in paths],
        domain_names=tuple(found),
        class_names=class_names,
        **described,
    )


def read_image_list(
    root: Path | str,
    list_file: Path | str,
    *,
    class_names: Sequence[str],
    first_label: int = 0,
    prefix: str = "",
    name: str = "list",
    split: str = "all",
    size: Size = None,
) -> FileDataset:
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
            last = first_label + num_classes - 1
            raise ValueError(
                f"{list_file}, line {number} must be a path and a label in [{first_label}, {last}]; got {quoted(line)}"
            )
        paths.append(path.strip().removeprefix(prefix))
        labels.append(int(label) - first_label)
    return paths, labels


def text_lines(path: Path | str) -> list[str]:
    """The lines of a text file that are not blank; a file that is not text is rejected."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def collect(
    root: Path,
    paths: Sequence[str],
    labels: Sequence[int] | Tensor,
    *,
    name: str = "folder",
    split: str = "all",
    class_names: Sequence[str],
    ids: Sequence[int] | None = None,
    domains: Sequence[int] | None = None,
    domain_names: Sequence[str] = (),
    columns: Mapping[str, Tensor] | None = None,
    size: Size = None,
) -> FileDataset:
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
