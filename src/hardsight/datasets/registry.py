"""The data sets known by name: where they are, what they hold, who reads them, and whether the files are complete."""

import dataclasses
import hashlib
import importlib
import inspect
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.names import check_name, unknown_name

ROOT_VARIABLE = "HARDSIGHT_DATA"


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known about a data set before it is read; sources.toml says what each value means."""

    name: str
    title: str
    reader: str
    splits: Mapping[str, int | None]
    num_classes: int | None
    folders: tuple[str, ...]
    layout: str
    md5: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: Sequence[str] = ()
    classes: tuple[str, ...] = ()
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    domains: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, name: str, row: dict[str, Any]) -> "Source":
        """From a row of the table."""
        row = {"num_classes": None, "folders": (), "classes": ()} | row
        row |= {key: tuple(row[key]) for key in ("folders", "classes")}
        splits = {split: None if count < 0 else count for split, count in row["splits"].items()}
        return cls(name=name, **row | {"splits": splits})


_TABLE = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
SOURCES = tuple(Source.of(name, row) for name, row in _TABLE.items())


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(source.name for source in SOURCES)


def source(name: str) -> Source:
    """What is known about a data set; "CIFAR-10" and "cifar10" are the same name."""
    for candidate in SOURCES:
        if plain_name(candidate.name) == plain_name(name):
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
    # Besides the folder and the split.
    takes = list(inspect.signature(read).parameters)[2:]
    for option in options:
        check_name(f"an option of {known.name}", option, takes, "options")
    return read(folder, split, **options)


def reader(known: Source) -> Callable[..., ArrayDataset | FileDataset]:
    """The function that reads a source; its module is imported only now."""
    module, function = known.reader.split(":")
    read: Callable[..., Any] = getattr(importlib.import_module(f"hardsight.datasets.{module}"), function)
    return read


def data_root(root: Path | str | None, known: Source) -> Path:
    """The given root, else `$HARDSIGHT_DATA`."""
    chosen = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not chosen:
        content = "the images" if known.folders == (".",) else known.folders[0]
        raise ValueError(f"${ROOT_VARIABLE} must be set, or root given, to the folder that holds {content}")
    return Path(chosen).expanduser()


def find(known: Source, root: Path) -> Path:
    """The first of the source's folders that is there."""
    for folder in known.folders:
        if (root / folder).is_dir():
            return root / folder
    if known.folders == (".",):
        raise FileNotFoundError(f"the folder {root} is {'a file' if root.exists() else 'not there'}")
    looked = " or ".join(str(root / folder) for folder in known.folders)
    remedy = f"pass root= or set ${ROOT_VARIABLE} to the folder that holds it"
    raise FileNotFoundError(f"{known.name} was looked for in {looked} and is not there: {remedy}")


def describe(known: Source) -> dict[str, Any]:
    """A source as plain values, for tables and JSON."""
    return {key: getattr(known, key) for key in ("name", "title", "splits", "num_classes", "folders", "layout")}


def plain_name(name: str) -> str:
    """A data set's name as it is compared: letters and digits alone, small."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


@dataclasses.dataclass(frozen=True)
class SplitState:
    """One split: what was found, what the public release holds, and what is wrong."""

    split: str
    found: int | None
    expected: int | None
    problem: str | None


@dataclasses.dataclass(frozen=True)
class State:
    """One data set below a root: "complete", "incomplete" or "absent".

    `checksums` has each file there whose MD5 is published: "match" or "differs".
    """

    name: str
    state: str
    folder: str | None
    splits: tuple[SplitState, ...]
    checksums: dict[str, str]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one sentence a split."""
        return tuple(f"{split.split}: {split.problem}" for split in self.splits if split.problem)


def check(root: Path | str, names: Sequence[str] = (), *, decode: bool = False) -> Iterator[State]:
    """The state of every known data set below `root`, one after the other; with `decode` every image is decoded."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"the root {root} is not a folder")
    # What may be anywhere, or nowhere, is neither complete nor incomplete.
    chosen = [source(name) for name in names] or [each for each in SOURCES if each.folders not in ((), (".",))]
    return (_state(known, root, decode) for known in chosen)


def _state(known: Source, root: Path, decode: bool) -> State:
    try:
        folder = find(known, root) if known.folders else Path()
    except FileNotFoundError:
        return State(known.name, "absent", None, (), {})
    splits, missing = [], 0
    for split, expected in known.splits.items():
        found, problem = None, None
        try:
            samples = reader(known)(folder, split)
            found, skipped = len(samples), samples.skipped
            if decode and isinstance(samples, FileDataset):
                skipped += samples.unreadable()
            if skipped:
                problem = f"{len(skipped)} files cannot be used, the first {skipped[0]}"
            elif expected not in (None, found):
                problem = f"{found} samples instead of {expected}"
        except FileNotFoundError as error:
            missing += 1
            if split in known.optional:
                continue
            problem = str(error)
        except (ValueError, OSError) as error:
            problem = str(error)
        splits.append(SplitState(split, found, expected, problem))
    state = "incomplete" if any(split.problem for split in splits) else "complete"
    if missing == len(known.splits):
        state = "absent"
    checksums: dict[str, str] = {}
    for name in filter(lambda name: (folder / name).is_file(), known.md5):
        with (folder / name).open("rb") as file:
            # MD5 is what the publishers give: it finds accidents, not forgeries.
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        checksums[name] = "match" if digest == known.md5[name] else "differs"
    return State(known.name, state, str(folder), tuple(splits), checksums)
