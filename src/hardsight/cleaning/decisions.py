"""What people decide about samples: the action list, a CSV file to edit, and `marks.jsonl`, which is only added to.

The list says what happens to each suspected sample:

| column | what it holds |
|---|---|
| `id` | the sample |
| `label` | its label when the list was written |
| `expected` | the class it probably should be |
| `action` | `keep`, `relabel` or `drop`; edit this |
| `new_label` | the label that `relabel` gives; edit this where `expected` is wrong too |
| `suspicion`, `reasons`, `path` | why it is on the list and where it lies; ignored when the list is read back |
| `text` and others | what was asked to be shown of a sample; ignored too |

A spreadsheet runs a cell that starts like a formula, and starts a cell wherever it is told to split. So a sign that
begins a formula is written with an apostrophe before it, at the beginning and behind every separator, and a character
that ends a line or cannot be seen is written as an escape (`\\r`, `\\x00`). Both are undone when the list is read.

A line of `marks.jsonl` is a decision, on disk before it counts:

    {"id": 17, "action": "relabel", "label": "cat", "by": "ada", "at": "2026-01-01T12:00:00+00:00"}

The later line wins and all of them stay. `undo` takes back the last decision of the same person about the sample that
has not been taken back yet. Several processes may write the same file; a line that was cut off is passed over.
"""

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hardsight.files import LARGEST_TEXT, RefusedError, plain_file, read_bytes
from hardsight.names import check_name, unknown_name
from hardsight.records import is_shown, require_column, sync_folder, write_text

ACTIONS = ("keep", "relabel", "drop")
MARKS_FILE = "marks.jsonl"
DECISIONS = (*ACTIONS, "unsure")
UNDO = "undo"
COLUMNS = ("id", "label", "expected", "action", "new_label", "suspicion", "reasons", "path")
_NEEDED = ("id", "label", "action", "new_label")
_SEPARATORS = ",;\t|"
# Where a cell may start, for whoever splits there, with or without regard to quotes; then the sign of a formula, also
# in its full-width form.
_START, _SIGN = r"((?:^|[,;|])[\s\"']*)", "([=+\\-@＝＋－＠])"
_FORMULA, _GUARDED = re.compile(_START + _SIGN), re.compile(f"{_START}'{_SIGN}")
_UNSEEN = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPE = re.compile(r"\\(?:([\\nrt])|x([0-9a-f]{2})|u([0-9a-f]{4}))")
_LETTERS = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = {meant: f"\\{letter}" for letter, meant in _LETTERS.items()}


@dataclass(frozen=True)
class Action:
    """One line of the list; `line` is its number in the file."""

    id: str
    label: str
    action: str
    new_label: str
    line: int


def write_actions(path: Path | str, issues: pa.Table) -> None:
    """Write suspects (`LabelIssues.suspects`) as a list to edit: each is kept, and `new_label` is the expected class.

    Where the suspects have columns `action` and `new_label`, these are what has been decided.
    """
    for column in ("id", "label", "expected", "suspicion", "reasons"):
        require_column(issues, column)
    named = "label_name" in issues.column_names
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    shown = [name for name in issues.column_names if is_shown(issues.schema.field(name)) and name not in COLUMNS]
    writer.writerow([*COLUMNS, *(guarded(name) for name in shown)])
    for row in issues.to_pylist():
        label, expected = (row["label_name"], row["expected_name"]) if named else (row["label"], row["expected"])
        suspicion = "" if row["suspicion"] is None else f"{row['suspicion']:.6f}"
        decided, new = row.get("action") or "keep", row.get("new_label") or expected
        cells = [row["id"], label, expected, decided, new, suspicion, row["reasons"], row.get("path")]
        writer.writerow([guarded(cell) for cell in [*cells, *(row[name] for name in shown)]])
    write_text(path, text.getvalue())


def read_actions(path: Path | str) -> list[Action]:
    """Read an edited list; what is wrong is rejected with the number of its line.

    Commas, semicolons, tabs and bars separate alike, because spreadsheets save with any of them.
    """
    path = Path(path)
    try:
        text = read_bytes(path, LARGEST_TEXT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text; byte {error.start} is not") from None
    lines = io.StringIO(text, newline="")
    separator = max(_SEPARATORS, key=re.split("[\r\n]", text, maxsplit=1)[0].count)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        with _cells_of_any_length(len(text)):
            header = [name.strip() for name in next(reader, [])]
            wrong = next((name for name in _NEEDED if header.count(name) != 1), None)
            if wrong is not None:
                said = f"{wrong!r} {header.count(wrong)} times"
                raise ValueError(f"{path} must have each of the columns {', '.join(_NEEDED)} once; {said}")
            actions = [_action(path, reader.line_num, header, cells) for cells in reader if any(cells)]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: it does not read as CSV ({error})") from None
    first: dict[str, int] = {}
    for one in actions:
        if first.setdefault(one.id, one.line) != one.line:
            raise ValueError(
                f"{path}, line {one.line}: id {one.id!r} must occur once; it is on line {first[one.id]} too"
            )
    return actions


@contextlib.contextmanager
def _cells_of_any_length(most: int) -> Iterator[None]:
    """Python's own limit is 131,072 characters, less than a name may have; it is one for the whole process."""
    before = csv.field_size_limit(max(most, 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _action(path: Path, line: int, header: list[str], cells: list[str]) -> Action:
    if len(cells) != len(header):
        raise ValueError(f"{path}, line {line}: it must have {len(header)} cells as its header has; got {len(cells)}")
    row = {name: _ESCAPE.sub(_unescape, _GUARDED.sub(r"\1\2", cell)) for name, cell in zip(header, cells, strict=True)}
    chosen = row["action"].strip().lower()
    if chosen not in ACTIONS:
        raise unknown_name(f"{path}, line {line}: action", row["action"], ACTIONS)
    if chosen == "relabel" and not row["new_label"]:
        raise ValueError(f"{path}, line {line}: new_label must be filled where the action is relabel; it is empty")
    return Action(row["id"], row["label"], chosen, row["new_label"], line)


def guarded(value: Any) -> str:
    """A cell of the list that no spreadsheet runs; reading the list gives the value's text back."""
    text = _UNSEEN.sub(_escape, "" if value is None else str(value))
    return _FORMULA.sub(r"\1'\2", text)


def _escape(found: re.Match[str]) -> str:
    one = found[0]
    return _ESCAPED.get(one) or (f"\\x{ord(one):02x}" if ord(one) < 0x100 else f"\\u{ord(one):04x}")


def _unescape(found: re.Match[str]) -> str:
    letter, short, long = found.groups()
    return _LETTERS[letter] if letter else chr(int(short or long, 16))


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
            self.all.append(mark)
            standing = self._standing.setdefault(str(mark.id), [])
            own = next((at for at in reversed(range(len(standing))) if standing[at].by == mark.by), None)
            if mark.action != UNDO:
                standing.append(mark)
            elif own is not None:
                del standing[own]
        return new

    def append(self, marks: Sequence[Mark]) -> list[Mark]:
        """Add decisions: when this returns they are on disk. The new lines are returned, those of others among them.

        Where the disk is full the file is left as it was, and OSError is raised.
        """
        lines = "".join(json.dumps(asdict(mark), ensure_ascii=False) + "\n" for mark in marks)
        data = lines.encode("utf-8", "backslashreplace")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        with self.path.open("a+b", buffering=0) as file:
            handle = file.fileno()
            _lock(handle)
            end = os.lseek(handle, 0, os.SEEK_END)
            # A line that a killed writer left must not swallow the next one.
            torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
            try:
                _write(handle, b"\n" + data if torn else data)
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, end)
                raise
        if new:
            sync_folder(self.path.parent)
        return self.refresh()


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


def _lock(handle: int) -> None:
    """Nobody else writes until the file is closed; where the system has no such lock, there is one process alone."""
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
