"""The data sets known by name: where they lie, what they hold, who reads them."""

import dataclasses
import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.datasets.sources import SOURCES, Source
from hardsight.names import check_name, unknown_name

ROOT_VARIABLE = "HARDSIGHT_DATA"


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(source.name for source in SOURCES)


def source(name: str) -> Source:
    """What is known about a data set; "CIFAR-10" and "cifar10" are the same name."""
    wanted = plain_name(name)
    for candidate in SOURCES:
        if plain_name(candidate.name) == wanted:
            return candidate
    raise unknown_name("name", name, names(), "data sets")


def load(
    name: str, split: str | None = None, root: Path | str | None = None, **options: Any
) -> ArrayDataset | FileDataset:
    """Read a data set by name from below `root` (left out: `$HARDSIGHT_DATA`).

    `split` left out is the first that `source(name).splits` names. `options` go to the reader: see its docstring.
    """
    known = source(name)
    split = next(iter(known.splits)) if split is None else split
    check_name(f"split of {known.name}", split, known.splits)
    folder = find(known, data_root(root, known)) if known.folders else Path()
    read = reader(known)
    for option in options:
        check_name(f"an option of {known.name}", option, _options_of(read), "options")
    return read(folder, split, **options)


def _options_of(read: Callable[..., Any]) -> list[str]:
    """What a reader takes besides the folder and the split."""
    return list(inspect.signature(read).parameters)[2:]


def reader(known: Source) -> Callable[..., ArrayDataset | FileDataset]:
    """The function that reads a source; its module is imported only now."""
    module, function = known.reader.split(":")
    return getattr(importlib.import_module(f"hardsight.datasets.{module}"), function)


def data_root(root: Path | str | None, known: Source) -> Path:
    """The given root, else `$HARDSIGHT_DATA`."""
    chosen = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not chosen:
        content = "the images" if known.folders == (".",) else known.folders[0]
        raise ValueError(
            f"${ROOT_VARIABLE} must be set, or root given, to the folder that holds {content}; got neither"
        )
    return Path(chosen).expanduser()


def find(known: Source, root: Path) -> Path:
    """The first of the source's folders that is there."""
    for folder in known.folders:
        if (root / folder).is_dir():
            return root / folder
    if known.folders == (".",):
        raise FileNotFoundError(f"the folder {root} is {'a file' if root.exists() else 'not there'}")
    looked = " or ".join(str(root / folder) for folder in known.folders)
    raise FileNotFoundError(
        f"{known.name} was looked for in {looked} and is not there: "
        f"pass root= or set ${ROOT_VARIABLE} to the folder that holds it"
    )


def describe(known: Source) -> dict[str, Any]:
    """A source as plain values, for tables and JSON."""
    row = dataclasses.asdict(known)
    return {key: row[key] for key in ("name", "title", "splits", "num_classes", "folders", "layout")}


def plain_name(name: str) -> str:
    """A data set's name as it is compared: letters and digits alone, small."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
