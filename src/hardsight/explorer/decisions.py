"""Decisions on a table's samples: marks on disk, a code for each row, the action list, how far a review has come."""

import contextlib
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hardsight.cleaning.decisions import COLUMNS, DECISIONS, MARKS_FILE, Mark, Marks, read_actions, write_actions
from hardsight.explorer.columns import Columns

ACTIONS_FILE = "actions.csv"
# What a list calls the decision on a row: nothing comes first.
NAMES = ("undecided", *DECISIONS)
# Suspects are judged in so many groups of neighbouring ranks.
_GROUPS, _FEWEST, _DRAWS = 8, 10, 4000
_INTERVAL = (0.025, 0.975)
UNDECIDED, RIGHT, WRONG, UNSURE = 0, 1, 2, 3
_OUTCOME = np.array([UNDECIDED, RIGHT, WRONG, WRONG, UNSURE], np.uint8)
_MOST_AT_ONCE = 10_000


class Decisions:
    """What has been decided on each row; `error` says why the action list could not be written, empty when it was."""

    def __init__(self, columns: Columns, folder: Path, estimated: int = 0) -> None:
        self.columns, self.folder, self.estimated = columns, folder, estimated
        self.codes = np.zeros(columns.rows, np.uint8)
        self.error = ""
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._closed, self._written = False, (0, 0)
        self.marks = Marks(folder / MARKS_FILE)
        self._note(self.marks.all)
        self._writer = threading.Thread(target=self._write_list, daemon=True)
        self._writer.start()
        if self.marks.all:
            # The last writer may have been killed between a mark and the list.
            self._wake.set()

    def close(self) -> None:
        """Stop, once the list on disk is that of all decisions."""
        self._closed = True
        self._wake.set()
        self._writer.join()

    def refresh(self) -> list[Mark]:
        """All marks, those that others have made included."""
        with self._lock:
            new = self.marks.refresh()
            self._note(new)
        if new:
            self._wake.set()
        return self.marks.all

    def decide(self, rows: Sequence[int] | np.ndarray, action: str, label: str | None, by: str) -> int:
        """Put a decision on these rows, or take this person's last one back; when this returns it is on disk."""
        if len(rows) > _MOST_AT_ONCE:
            raise ValueError(f"at most {_MOST_AT_ONCE:,} samples can be decided at once; got {len(rows):,}")
        if action == "relabel" and label not in self.columns.class_names:
            raise ValueError(f"label must be one of the classes; got {label!r}")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        ids = self.columns.texts("id", rows)
        marks = [Mark(one, action, label if action == "relabel" else None, by, at) for one in ids]
        with self._lock:
            self._note(self.marks.refresh())
            self._note(self.marks.append(marks))
        self._wake.set()
        return len(marks)

    def of(self, row: int) -> Mark | None:
        return self.marks.of(self.columns.texts("id", [row])[0])

    def history(self, row: int) -> list[Mark]:
        """All that was decided on a row, the first first, what was taken back and that it was included."""
        identity = str(self.columns.texts("id", [row])[0])
        return [one for one in self.marks.all if str(one.id) == identity]

    @cached_property
    def suspects(self) -> np.ndarray:
        """The rows that an audit found to be probably wrong, most suspicious first; none in a mere table of scores.

        A run that has estimated how many labels are wrong has as many suspects.
        """
        known, most = self.columns.all, self.columns.rows
        numbers = [one.name for one in self.columns.of("number") if one.name != "rank" or one.kind != "score"]
        order = next((name for name in ("rank", "suspicion") if name in numbers), None)
        if "issue" in known and known["issue"].values:
            wanted = self.columns.array("issue") == [*known["issue"].values, "true"].index("true")
        elif "kinds" in known and "mislabelled" in known["kinds"].values:
            bit = known["kinds"].values.index("mislabelled")
            wanted = (self.columns.array("kinds") >> bit) & 1 == 1
        else:
            wanted, most = np.full(self.columns.rows, order is not None), self.estimated
        rows = np.flatnonzero(wanted)
        if order is not None:
            values = self.columns.array(order)[rows]
            rows = rows[np.argsort(values if order == "rank" else -values, kind="stable")]
        return rows[:most]

    def progress(self) -> "Progress":
        """How many of the suspects are decided, and what is to be expected of the others."""
        return progress(_OUTCOME[self.codes[self.suspects]])

    def _note(self, marks: Sequence[Mark]) -> None:
        for one in marks:
            row = self.columns.row_of(one.id)
            if row is not None:
                standing = self.marks.of(one.id)
                self.codes[row] = 0 if standing is None else NAMES.index(standing.action)

    def _write_list(self) -> None:
        closed = False
        while not closed:
            self._wake.wait()
            self._wake.clear()
            # Looked at before the list is written: what was decided while the last one was is in this one.
            closed = self._closed
            if not self.marks.all:
                continue
            try:
                self._adopt()
                with self._lock:
                    table = self._listed()
                write_actions(self.folder / ACTIONS_FILE, table)
                self._written = _signature(self.folder / ACTIONS_FILE)
                self.error = ""
            except (OSError, ValueError) as problem:
                self.error = f"{ACTIONS_FILE} could not be written: {problem}"

    def _adopt(self) -> None:
        """What a person has written into the list by hand becomes a decision, before the list is written over."""
        path = self.folder / ACTIONS_FILE
        if not path.is_file() or _signature(path) == self._written:
            return
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        rows = self.columns.row_of
        edited = [one for one in read_actions(path) if one.action != "keep"]
        with self._lock:
            # Read after the list: whoever else writes it has put the mark on disk before.
            self._note(self.marks.refresh())
            marked = {str(one.id) for one in self.marks.all}
            known = [(row, one) for one in edited if one.id not in marked and (row := rows(one.id)) is not None]
            ids = self.columns.texts("id", [row for row, _ in known])
            marks = [
                Mark(own, one.action, one.new_label if one.action == "relabel" else None, ACTIONS_FILE, at)
                for own, (_, one) in zip(ids, known, strict=True)
            ]
            if marks:
                self._note(self.marks.append(marks))

    def _listed(self) -> pa.Table:
        """The suspects, then all others that have been decided, as an action list holds them."""
        rows = np.concatenate([self.suspects, np.setdiff1d(np.flatnonzero(self.codes), self.suspects)])
        found: dict[str, list[Any]] = {"id": self.columns.texts("id", rows)}
        standing = [self.marks.of(one) for one in found["id"]]
        found["action"] = [one.action if one and one.action in ("relabel", "drop") else "keep" for one in standing]
        found["new_label"] = [one.label if one else None for one in standing]
        lists = {one.name for one in self.columns.of("list")}
        names = [*self.columns.class_names, None]
        for name in ("label", "expected"):
            column = name if name in self.columns.all else "predicted"
            codes = self.columns.array(column)[rows].tolist() if column in lists else [len(names) - 1] * len(rows)
            found[name] = [names[code] for code in codes]
        for name in ("suspicion", "reasons", "path"):
            with contextlib.suppress(KeyError):
                found[name] = self.columns.texts(name, rows)
        found = {"suspicion": [None] * len(rows), "reasons": [None] * len(rows)} | found
        table = pa.table(found)
        for one in self.columns.of("text"):
            if one.kind == "shown" and one.name not in COLUMNS:
                texts = pa.array(self.columns.texts(one.name, rows), pa.string())
                table = table.append_column(pa.field(one.name, pa.string(), metadata={"kind": "shown"}), texts)
        return table


def _signature(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


class Progress(NamedTuple):
    """Counts over the suspects, and the expected number of wrong labels among those not decided, with 95 %.

    `expected`, `low` and `high` are None where nothing has been decided yet.
    """

    suspects: int
    right: int
    wrong: int
    unsure: int
    expected: float | None
    low: float | None
    high: float | None


def progress(outcome: np.ndarray) -> Progress:
    """Progress over the suspects, most suspicious first; `outcome` is UNDECIDED, RIGHT, WRONG or UNSURE.

    In each group of neighbouring ranks those not decided are taken to be wrong as often as those decided (a Beta
    distribution; its prior is the share over all decided and weighs as much as one sample). A group without a decision
    borrows those of the nearest group of higher suspicion that has one, else of lower. Where suspicion orders well this
    expects too many rather than too few.
    """
    counts = np.bincount(outcome, minlength=4)
    found = Progress(len(outcome), int(counts[RIGHT]), int(counts[WRONG]), int(counts[UNSURE]), None, None, None)
    left = int(counts[UNDECIDED] + counts[UNSURE])
    if not found.right + found.wrong:
        return found
    if not left:
        return found._replace(expected=0.0, low=0.0, high=0.0)
    groups = np.array_split(outcome, min(_GROUPS, max(1, len(outcome) // _FEWEST)))
    overall = (found.wrong + 0.5) / (found.wrong + found.right + 1)
    wrong, right = (np.array([(group == one).sum() for group in groups]) for one in (WRONG, RIGHT))
    judged = np.flatnonzero(wrong + right)
    generator, total = np.random.default_rng(0), np.zeros(_DRAWS)
    sources = [max((one for one in judged if one <= at), default=judged[0]) for at in range(len(groups))]
    for source in sorted(set(sources)):
        undecided = sum(
            int(((group == UNDECIDED) | (group == UNSURE)).sum())
            for group, own in zip(groups, sources, strict=True)
            if own == source
        )
        # The groups that borrow from one are wrong together or right together: one share for all of them.
        share = generator.beta(wrong[source] + overall, right[source] + 1 - overall, _DRAWS)
        total += generator.binomial(undecided, share)
    low, high = np.quantile(total, _INTERVAL)
    return found._replace(expected=float(total.mean()), low=float(low), high=float(high))
