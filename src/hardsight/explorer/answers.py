"""What the page asks and what it is told: plain values and arrays, without anything of the web."""

import getpass
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hardsight.cleaning.decisions import UNDO
from hardsight.explorer.columns import CLASSES, open_columns, state_of
from hardsight.explorer.decisions import NAMES, Decisions
from hardsight.explorer.features import nearest
from hardsight.explorer.filters import parse_filters, parse_view
from hardsight.explorer.query import share_below
from hardsight.explorer.selection import DECISION, Selection, Selections
from hardsight.explorer.source import Pictures, find_source, trajectory
from hardsight.files.parquet import open_table
from hardsight.files.tokens import tokens_of
from hardsight.names import check_name

_MOST_ROWS, _MOST_COLUMNS, _NEAREST = 200, 256, 10
_LONGEST_TEXT, _LONGEST_WHOLE, _LONGEST_NAME = 2000, 50_000, 80
# The axes of a map, as pairs in the order in which they are preferred; without any of them, two scores.
_AXES = (
    ("umap_x", "umap_y"), ("x", "y"), ("pca_x", "pca_y"), ("confidence", "avh"),
    ("confidence", "angular_visual_hardness"), ("model_confidence", "angular_visual_hardness"),
)  # fmt: skip


class Answers:
    """A table opened to be explored: every question of the page is a method. Safe to be asked by several threads."""

    def __init__(self, source: Path | str, images: Path | str | None = None, show: Sequence[str] = ()) -> None:
        self.source = find_source(source, images)
        self._since = state_of(self.source.table)
        self.columns = open_columns(self.source.table)
        for name in show:
            check_name("show", name, [one.name for one in self.columns.of("text", "list", "number")], "columns")
        self._shown = [
            one.name
            for one in self.columns.of("text", "list", "number")
            if one.kind == "shown" or one.name in _CARD or one.name in show
        ]
        with open_table(self.source.table) as file:
            self.tokens = tokens_of(self.source.table, file.schema)
        if self.source.class_names and all(one.isdecimal() for one in self.columns.class_names):
            names = self.source.class_names
            numbers = [int(one) for one in self.columns.class_names]
            self.columns.class_names = [names[one] if one < len(names) else str(one) for one in numbers]
        self.decisions = Decisions(self.columns, self.source.decisions, self.source.estimated)
        self.pictures = Pictures(self.columns, self.source)
        self.selections = Selections(self.columns, self.decisions.codes)

    def close(self) -> None:
        """Let the action list be finished."""
        self.decisions.close()

    def table(self) -> dict[str, Any]:
        """What there is to see: columns, classes, which of them come first."""
        names = self.columns.class_names
        columns = [
            asdict(one) | {"values": names if one.name in CLASSES and one.role == "list" else one.values}
            for one in self.columns.all.values()
        ]
        decision = {"name": DECISION, "role": "list", "title": "Decision", "kind": "", "values": NAMES}
        scores = {} if self.tokens is None else self.tokens.scores
        return {
            "name": self.source.name,
            "rows": self.columns.rows,
            "columns": [decision, *columns],
            "classes": names,
            "axes": self._axes,
            "sort": self._sort,
            "matrix": self._matrix,
            "pictures": self.pictures.any,
            "tokens": [{"name": name, "title": said.get("title") or name} for name, said in scores.items()],
            "user": _user(),
            "folder": str(self.source.decisions),
        }

    @cached_property
    def _numbers(self) -> list[str]:
        return [one.name for one in self.columns.of("number")]

    @cached_property
    def _axes(self) -> list[str]:
        pair = next((list(pair) for pair in _AXES if set(pair) <= set(self._numbers)), None)
        scores = [one for one in self._numbers if self.columns.all[one].kind == "score" and one != "suspicion"]
        rest = [one for one in self._numbers if one not in scores and one != "rank"]
        return pair or (scores + rest)[:2]

    @cached_property
    def _sort(self) -> dict[str, Any]:
        """The order of the gallery at first: the most suspicious, else the hardest by the first score."""
        if "suspicion" in self._numbers:
            return {"by": "suspicion", "descending": True}
        scores = [one for one in self.columns.of("number") if one.kind == "score"] or self.columns.of("number")
        first = scores[0] if scores else None
        return {"by": first.name if first else "", "descending": not first or first.direction != "larger is easier"}

    @cached_property
    def _matrix(self) -> list[str] | None:
        lists = [one.name for one in self.columns.of("list")]
        second = next((one for one in ("expected", "predicted") if one in lists), None)
        return ["label", second] if second and "label" in lists else None

    def counts(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The counts of a selection: of histograms, lists, a matrix and a map, as far as they are asked for."""
        filters = parse_filters(asked.get("filters"))
        sizes = {one.name: len(one.values) for one in self.columns.of("list", "several")} | {DECISION: len(NAMES)}
        parts: dict[str, np.ndarray] = {}
        held = self.selections.sampled if asked.get("sampled") else self.selections
        selection = Selection(held, filters)
        for name in _names(asked.get("histograms"), self._numbers):
            parts[f"histogram {name}"] = selection.histogram(name).astype(np.uint32)
        for name in _names(asked.get("lists"), list(sizes)):
            parts[f"list {name}"] = selection.listed(name, sizes[name]).astype(np.uint32)
        if asked.get("matrix") and self._matrix:
            parts["matrix"] = selection.matrix(*self._matrix).astype(np.uint32)
        if isinstance(asked.get("map"), Mapping):
            parts |= _map(selection, asked["map"])
        facts = {"count": selection.rows.count * held.every, "exact": held.every == 1}
        return facts, parts

    def page(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Some rows of a selection, by a number: what a gallery shows of each."""
        filters = parse_filters(asked.get("filters"))
        start, count = _whole(asked.get("start", 0)), min(_whole(asked.get("count", 60)), _MOST_ROWS)
        by, selection = asked.get("by"), Selection(self.selections, filters)
        rows = selection.every_row()[start : start + count]
        if by:
            rows = selection.page(str(by), start, count, descending=bool(asked.get("descending")))
        cards = self.cards(rows.tolist(), str(by or ""), asked.get("tokens"))
        return {"rows": cards, "count": selection.rows.count}

    def cards(self, rows: list[int], by: str = "", tokens: Any = None) -> list[dict[str, Any]]:
        """What a gallery shows of these rows; `tokens` is the score that colours texts."""
        columns = {"id": self.columns.texts("id", rows)}
        for name in [*self._shown, *([by] if by else [])]:
            columns[name] = self._said(name, rows)
        if "expected" not in columns and "predicted" in self.columns.all:
            columns["expected"] = self._said("predicted", rows)
        if tokens and self.tokens is not None:
            check_name("tokens", tokens, list(self.tokens.scores))
            columns[_SPANS] = [self._spans(one, str(tokens)) for one in columns["id"]]
        cards = [{name: _plain(values[at]) for name, values in columns.items()} for at in range(len(rows))]
        for card, row in zip(cards, rows, strict=True):
            card |= {"row": row, "mark": _mark(self.decisions.of(row))}
        return cards

    def _spans(self, identity: Any, score: str) -> list[list[Any]]:
        """Of each token of a text its first character, the one behind its last, its tenth and its score."""
        if self.tokens is None or not isinstance(identity, int):
            return []
        return [[one.start, one.end, one.tenth, _plain(one.value)] for one in self.tokens.spans(identity, score)]

    def _said(self, name: str, rows: list[int]) -> list[Any]:
        column = self.columns.all[name]
        if column.role != "list":
            return self.columns.texts(name, rows)
        values = [*(self.columns.class_names if name in CLASSES else column.values), None]
        return [values[code] for code in self.columns.array(name)[rows].tolist()]

    def sample(self, row: int, tokens: str = "") -> dict[str, Any]:
        self._check_row(row)
        told: dict[str, Any] = self.cards([row], tokens=tokens)[0]
        for one in self.columns.of("text", "list"):
            if one.name not in _OWN:
                told[one.name] = _plain(self._said(one.name, [row])[0], _LONGEST_WHOLE)
        for one in self.columns.of("several"):
            bits = int(self.columns.array(one.name)[row])
            told[one.name] = ", ".join(value for at, value in enumerate(one.values) if bits >> at & 1)
        kinds = self.columns.all
        scores = [(one, float(self.columns.array(one)[row])) for one in self._numbers if kinds[one].kind != "place"]
        # Of its class; of all where there are no classes.
        codes = self.columns.array("label") if "label" in [one.name for one in self.columns.of("list")] else None
        members = np.arange(self.columns.rows) if codes is None else np.flatnonzero(codes == codes[row])
        told["scores"] = []
        for name, value in scores:
            below = _plain(share_below(self.columns.array(name)[members], value))
            told["scores"].append({"name": name, "value": _plain(value), "below": below})
        told["neighbours"] = self.cards(self._nearest(row))
        told["history"] = [_mark(one) for one in self.decisions.history(row)]
        told["trajectory"] = trajectory(self.source.records, told["id"])
        told["heat"] = self.pictures.heat(row) is not None
        return told

    def _nearest(self, row: int) -> list[int]:
        """The nearest samples by angle: as an audit found them, else by the features in the table."""
        if self.columns.of("neighbours"):
            near = self.columns.arrow("neighbours")[row].as_py() or []
            return [one for one in near if one is not None and 0 <= one < self.columns.rows]
        features = next(iter(self.columns.of("features")), None)
        if features is None:
            return []
        kept = self.columns.arrow(features.name)
        return nearest(kept.flatten().to_numpy().reshape(len(kept), -1), row, _NEAREST)

    def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Decide on rows, or on a whole selection whose count the person has seen."""
        by = str(asked.get("by") or _user())[:_LONGEST_NAME]
        rows = asked.get("rows")
        if rows is None:
            selected = Selection(self.selections, parse_filters(asked.get("filters"))).every_row()
            if len(selected) != asked.get("count"):
                raise ValueError(f"the selection has changed: it holds {len(selected):,} samples now; look again")
            rows = selected
        elif not isinstance(rows, list) or len(rows) > _MOST_VALUES:
            raise ValueError(f"rows must be a list of at most {_MOST_VALUES:,}")
        else:
            for row in rows:
                self._check_row(row)
        action, label = asked.get("action"), asked.get("label")
        check_name("action", action, (*NAMES[1:], UNDO))
        self.decisions.decide(rows, str(action), label, by)
        return {"rows": [int(row) for row in rows[:_MOST_VALUES]], **self.news(asked.get("since"))}

    def news(self, since: Any = None) -> dict[str, Any]:
        """What has happened: marks since the one of that number, progress, whether the table is still the same."""
        marks = self.decisions.refresh()
        first = _whole(since) if since is not None else len(marks)
        new = {}
        for one in marks[max(first, len(marks) - _MOST_VALUES) :]:
            row = self.columns.row_of(one.id)
            if row is not None:
                new[row] = _mark(self.decisions.of(row))
        found = self.decisions.progress()._asdict()
        problem = self.decisions.error
        if state_of(self.source.table) != self._since:
            problem = f"{self.source.table.name} has changed since it was opened: what is shown is older; start again"
        return {"marks": len(marks), "changed": [{"row": row, "mark": mark} for row, mark in new.items()],
                "progress": found, "problem": problem}  # fmt: skip

    def _check_row(self, row: Any) -> None:
        if not isinstance(row, int) or not 0 <= row < self.columns.rows:
            raise ValueError(f"row must be a row of the table, 0 to {self.columns.rows - 1}; got {row!r}")


# What a card says that is no column; a column of such a name is not shown.
_SPANS = "spans"
_OWN = frozenset({"row", "mark", _SPANS})
_CARD = frozenset({"label", "expected", "text", "path", "suspicion"})
_MOST_VALUES = 10_000


def _map(selection: Selection, asked: Mapping[str, Any]) -> dict[str, np.ndarray]:
    colour = asked.get("colour")
    view, x, y = parse_view(asked.get("view")), str(asked.get("x")), str(asked.get("y"))
    parts = {f"map {name}": part for name, part in selection.grid(x, y, view, str(colour) if colour else None).items()}
    if asked.get("ground"):
        parts |= {f"ground {name}": part for name, part in Selection(selection.of, ()).grid(x, y, view, None).items()}
    return parts


def _names(given: Any, known: list[str]) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > _MOST_COLUMNS:
        raise ValueError(f"columns must be a list of at most {_MOST_COLUMNS}")
    for one in given:
        check_name("column", one, known, "columns")
    return list(dict.fromkeys(given))


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"start and count must be whole numbers from 0 on; got {value!r}")
    return value


def _mark(mark: Any) -> dict[str, Any] | None:
    return None if mark is None else {"action": mark.action, "label": mark.label, "by": mark.by, "at": mark.at}


def _plain(value: Any, longest: int = _LONGEST_TEXT) -> Any:
    """A value as JSON has it: no NaN, no text without an end."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}…"
    return value if isinstance(value, int | bool | list) or value is None else str(value)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getpid()}"
