"""The action list: a CSV file in which a person says what happens to each suspected sample.

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
"""

import contextlib
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hardsight.files import LARGEST_TEXT, read_bytes
from hardsight.names import check_name, unknown_name
from hardsight.records import is_shown, require_column, write_text

ACTIONS = ("keep", "relabel", "drop")
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


def write_actions(path: Path | str, issues: pa.Table, *, action: str = "keep") -> None:
    """Write suspects (`LabelIssues.suspects`) as a list to edit; `new_label` starts as the expected class.

    Where the suspects have columns `action` and `new_label`, these are what has been decided.
    """
    check_name("action", action, ACTIONS)
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
        decided, new = row.get("action") or action, row.get("new_label") or expected
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
            header = _header(path, next(reader, []))
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


def _header(path: Path, cells: list[str]) -> list[str]:
    header = [name.strip() for name in cells]
    wrong = next((name for name in _NEEDED if header.count(name) != 1), None)
    if wrong is not None:
        times = header.count(wrong)
        raise ValueError(f"{path} must have each of the columns {', '.join(_NEEDED)} once; {wrong!r} {times} times")
    return header


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
    row = {name: _unguard(cell) for name, cell in zip(header, cells, strict=True)}
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


def _unguard(cell: str) -> str:
    return _ESCAPE.sub(_unescape, _GUARDED.sub(r"\1\2", cell))


def _escape(found: re.Match[str]) -> str:
    one = found[0]
    return _ESCAPED.get(one) or (f"\\x{ord(one):02x}" if ord(one) < 0x100 else f"\\u{ord(one):04x}")


def _unescape(found: re.Match[str]) -> str:
    letter, short, long = found.groups()
    return _LETTERS[letter] if letter else chr(int(short or long, 16))
