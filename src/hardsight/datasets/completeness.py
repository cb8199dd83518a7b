"""What of the known data sets lies below a root, and whether it is whole: counts, and checksums where published."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from hardsight.datasets.interface import FileDataset
from hardsight.datasets.registry import find, reader, source
from hardsight.datasets.sources import SOURCES, Source

Completeness = Literal["complete", "incomplete", "absent"]
Agreement = Literal["match", "differs"]


@dataclasses.dataclass(frozen=True)
class SplitState:
    """One split: what was found, what the public release holds, and what is wrong."""

    split: str
    found: int | None
    expected: int | None
    problem: str | None


@dataclasses.dataclass(frozen=True)
class State:
    """One data set below a root; `checksums` has each file there whose MD5 is published."""

    name: str
    state: Completeness
    folder: str | None
    splits: tuple[SplitState, ...]
    checksums: dict[str, Agreement]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one sentence a split."""
        return tuple(f"{split.split}: {split.problem}" for split in self.splits if split.problem)


def check(root: Path | str, names: Sequence[str] = (), *, decode: bool = False) -> Iterator[State]:
    """The state of every known data set below `root`, one after the other; with `decode` every image is decoded."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"the root {root} is not a folder")
    # What lies anywhere, or nowhere, is neither complete nor incomplete.
    chosen = [source(name) for name in names] or [each for each in SOURCES if each.folders not in ((), (".",))]
    return (_state(known, root, decode) for known in chosen)


def _state(known: Source, root: Path, decode: bool) -> State:
    try:
        folder = find(known, root) if known.folders else Path()
    except FileNotFoundError:
        return State(known.name, "absent", None, (), {})
    splits, missing = [], 0
    for split, expected in known.splits.items():
        try:
            found, problem = _read(known, folder, split, expected, decode)
        except FileNotFoundError as error:
            missing += 1
            if split in known.optional:
                continue
            found, problem = None, str(error)
        except (ValueError, OSError) as error:
            found, problem = None, str(error)
        splits.append(SplitState(split, found, expected, problem))
    state: Completeness = "incomplete" if any(split.problem for split in splits) else "complete"
    if missing == len(known.splits):
        state = "absent"
    return State(known.name, state, str(folder), tuple(splits), _checksums(known, folder))


def _read(known: Source, folder: Path, split: str, expected: int | None, decode: bool) -> tuple[int | None, str | None]:
    samples = reader(known)(folder, split)
    if isinstance(samples, FileDataset):
        skipped = samples.skipped + (samples.unreadable() if decode else ())
        if skipped:
            return len(samples), f"{len(skipped)} files cannot be used, the first {skipped[0]}"
    if expected is not None and len(samples) != expected:
        return len(samples), f"{len(samples)} samples instead of {expected}"
    return len(samples), None


def _checksums(known: Source, folder: Path) -> dict[str, Agreement]:
    found: dict[str, Agreement] = {}
    for name, published in known.md5.items():
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                # MD5 is what the publishers give: it finds accidents, not forgeries.
                digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            found[name] = "match" if digest == published else "differs"
    return found
