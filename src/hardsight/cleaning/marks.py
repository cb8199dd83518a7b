"""Decisions about samples, `marks.jsonl`: one JSON line for each, only ever added to, on disk before it counts.

    {"id": 17, "action": "relabel", "label": "cat", "by": "ada", "at": "2026-01-01T12:00:00+00:00"}

The later line wins and all of them stay. `undo` takes back the last decision of the same person about the sample that
has not been taken back yet. Several processes may write the same file; a line that was cut off is passed over.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hardsight.files import RefusedError, plain_file
from hardsight.names import check_name
from hardsight.records import sync_folder

MARKS_FILE = "marks.jsonl"
DECISIONS = ("keep", "relabel", "drop", "unsure")
UNDO = "undo"


@dataclass(frozen=True)
class Mark:
    """A decision: what is to happen to the sample `id`, who said so (`by`) and when (`at`, ISO 8601).

    `label` is the new label where the action is relabel.
    """

    id: Any
    action: str
    label: str | None
    by: str
    at: str

    def __post_init__(self) -> None:
        check_name("action", self.action, (*DECISIONS, UNDO))
        if (self.action == "relabel") != isinstance(self.label, str):
            raise ValueError(f"label must be given for relabel, and for nothing else; got {self.label!r}")


class Marks:
    """The decisions in a file, in their order; `refresh` reads what others have added since."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.all: list[Mark] = []
        self._standing: dict[str, list[Mark]] = {}
        self._read = 0
        self.refresh()

    def of(self, identity: Any) -> Mark | None:
        """The decision that holds for a sample."""
        standing = self._standing.get(str(identity))
        return standing[-1] if standing else None

    def decided(self) -> list[Mark]:
        """The decision that holds for each sample that has one."""
        return [standing[-1] for standing in self._standing.values() if standing]

    def refresh(self) -> list[Mark]:
        """Read the lines that were added since the last time, and return them."""
        try:
            size = plain_file(self.path).stat().st_size
        except FileNotFoundError:
            return []
        if size < self._read:
            raise RefusedError(f"{self.path} must only be added to; it has become shorter")
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole = file.read(size - self._read).rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
        new = [mark for line in whole.split(b"\n") if (mark := _parsed(line)) is not None]
        for mark in new:
            self._apply(mark)
        return new

    def append(self, marks: Sequence[Mark]) -> list[Mark]:
        """Add decisions: when this returns they are on disk. The new lines are returned, those of others among them.

        Where the disk is full the file is left as it was, and OSError is raised.
        """
        lines = "".join(json.dumps(asdict(mark), ensure_ascii=False) + "\n" for mark in marks)
        data = lines.encode("utf-8", "backslashreplace")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            with _locked(handle):
                end = os.lseek(handle, 0, os.SEEK_END)
                # A line that a killed writer left must not swallow the next one.
                torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
                try:
                    _write(handle, b"\n" + data if torn else data)
                    os.fsync(handle)
                except OSError:
                    os.ftruncate(handle, end)
                    raise
        finally:
            os.close(handle)
        if new:
            sync_folder(self.path.parent)
        return self.refresh()

    def _apply(self, mark: Mark) -> None:
        self.all.append(mark)
        standing = self._standing.setdefault(str(mark.id), [])
        if mark.action != UNDO:
            standing.append(mark)
            return
        own = next((at for at in reversed(range(len(standing))) if standing[at].by == mark.by), None)
        if own is not None:
            del standing[own]


def _parsed(line: bytes) -> Mark | None:
    try:
        found = json.loads(line)
        return Mark(found["id"], found["action"], found["label"], str(found["by"]), str(found["at"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


@contextlib.contextmanager
def _locked(handle: int) -> Iterator[None]:
    """Nobody else writes meanwhile; where the system has no such lock, a single process is taken for granted."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield  # closing the file lets go
