"""A selection of a table's samples: which rows pass the filters, and what the page shows of them."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.explorer import query
from hardsight.explorer.columns import CLASSES, Column, Columns
from hardsight.explorer.filters import Filter
from hardsight.explorer.query import Rows, View
from hardsight.names import check_name

# While a brush is dragged so many rows are counted at most, spread over the table; at rest all are.
SAMPLED = 2_000_000
# A map shows points where no more than this are in view, else how many there are.
POINTS, SIDE = 4000, 256
PLACES = SIDE * SIDE
DECISION = "decision"
_MASKS = 48
# With more classes than this the matrix of pairs is a list of the commonest.
MOST_IN_MATRIX, _PAIRS = 40, 200


class Selections:
    """The columns in memory, the masks of filters and the last counts; any thread may ask.

    `every` above 1 looks at every so manieth row only.
    """

    def __init__(self, columns: Columns, decision: np.ndarray, every: int = 1) -> None:
        self.columns, self.decision, self.every = columns, decision, every
        self.rows = len(range(0, columns.rows, every))
        self._kept = lru_cache(_MASKS)(self._passing)
        self._counted: dict[str, tuple[Any, Rows, np.ndarray]] = {}
        self._arrays: dict[tuple[str, str], np.ndarray] = {}
        self._placed: tuple[Any, np.ndarray] = (None, np.zeros(0, np.int32))

    @cached_property
    def sampled(self) -> "Selections":
        """The same of so few rows that counts follow a hand."""
        every = -(-self.columns.rows // SAMPLED)
        return self if every == 1 else Selections(self.columns, self.decision, every)

    def array(self, name: str, part: str = "value") -> np.ndarray:
        if name == DECISION:
            return self.decision[:: self.every]
        if self.every == 1:
            return self.columns.array(name, part)
        if (name, part) not in self._arrays:
            self._arrays[name, part] = np.ascontiguousarray(self.columns.array(name, part)[:: self.every])
        return self._arrays[name, part]

    def mask(self, one: Filter) -> np.ndarray:
        """Which rows pass a filter; those of the last filters are kept, while decisions may change at any time."""
        return self._passing(one) if DECISION in one.columns else self._kept(one)

    def counts(self, of: str, codes: np.ndarray, rows: Rows, size: int, tag: Any = None) -> np.ndarray:
        """How often each code occurs at these rows, from the last counts of the same name and tag."""
        last = self._counted.get(of)
        before = last[1:] if last is not None and last[0] == tag else None
        found = query.recounted(codes, rows, size, before)
        self._counted[of] = tag, rows, found
        return found

    def places(self, x: str, y: str, view: View) -> np.ndarray:
        """Where each row lies on the map; that of the last view is kept, while brushes move."""
        placed = self._placed
        if placed[0] != (x, y, view):
            across, up = (self.array(self.column(one, "number").name) for one in (x, y))
            placed = self._placed = ((x, y, view), query.places(across, up, view, SIDE))
        return placed[1]

    def column(self, name: str, *roles: str) -> Column:
        """The column of that name and of one of these roles; ValueError where there is none."""
        known = [one.name for one in self.columns.of(*roles)]
        check_name("column", name, known, "columns")
        return self.columns.all[name]

    def _passing(self, one: Filter) -> np.ndarray:
        if one.kind == "search":
            # The rows whose id is these words, or one of whose texts holds them, whatever the case.
            found = pc.equal(self.columns.arrow("id").cast(pa.large_string()), one.values[0])
            for column in self.columns.of("text"):
                held = pc.match_substring(self.columns.arrow(column.name), one.values[0], ignore_case=True)
                found = pc.or_(found, pc.fill_null(held, False))
            mask: np.ndarray = found.to_numpy(zero_copy_only=False)[:: self.every]
            return mask
        if one.kind == "brush":
            (name,) = one.columns
            bins = self.array(self.column(name, "number").name, "bin")
            low, high = one.values
            within: np.ndarray = (bins >= low) & (bins <= high)
            return within
        if one.kind == "lasso":
            x, y = (self.array(self.column(name, "number").name) for name in one.columns)
            return query.inside(x, y, np.array(one.values))
        if one.kind == "pair":
            first, second = (self.array(self.column(name, "list").name) for name in one.columns)
            either = np.zeros(self.rows, bool)
            for a, b in one.values:
                either |= (first == a) & (second == b)
            return either
        return self._listed(one)

    def _listed(self, one: Filter) -> np.ndarray:
        (name,) = one.columns
        if name != DECISION and self.column(name, "list", "several").role == "several":
            wanted = sum(1 << code for code in set(one.values) if code < 16)
            held: np.ndarray = (self.array(name) & np.uint16(wanted)) != 0
            return held
        codes = self.array(name)
        known = np.zeros(1 << 16, bool)
        known[[code for code in one.values if code < 1 << 16]] = True
        listed: np.ndarray = known[codes]
        return listed


class Selection:
    """The rows that pass all filters, and counts of them; a column's own filters do not narrow its own counts."""

    def __init__(self, of: Selections, filters: Sequence[Filter]) -> None:
        self.of, self.filters = of, filters
        self._masks = [of.mask(one) for one in filters]
        self.failed = query.failing(self._masks, of.rows)

    @cached_property
    def rows(self) -> Rows:
        return query.passing(self.failed)

    def _others(self, *columns: str) -> Rows:
        own = [mask for one, mask in zip(self.filters, self._masks, strict=True) if one.columns == columns]
        return query.passing(self.failed, *own) if own else self.rows

    def histogram(self, name: str) -> np.ndarray:
        """How many samples are in each bin, and last how many have no value."""
        self.of.column(name, "number")
        return self.of.every * self.of.counts(name, self.of.array(name, "bin"), self._others(name), query.BINS + 1)

    def listed(self, name: str, size: int) -> np.ndarray:
        """How many samples have each value of a list, and last how many have none."""
        rows, codes = self._others(name), self.of.array(name)
        if name == DECISION:
            return self.of.every * query.counted(codes, rows.numbers, size + 1)
        if self.of.column(name, "list", "several").role == "several":
            return self.of.every * query.bits_counted(self.of.counts(name, codes, rows, 1 << size), size)
        return self.of.every * self.of.counts(name, codes, rows, size + 1)

    def matrix(self, first: str, second: str) -> np.ndarray:
        """Rows of [code, code, count]: all pairs of few classes that occur, the commonest differing ones of many."""
        check_name("column", first, CLASSES)
        size = len(self.of.column(first, "list").values) + 1
        self.of.column(second, "list")
        a, b = self.of.array(first), self.of.array(second)
        counts = query.pairs_counted(a, b, self._others(first, second).numbers, size)[: size - 1, : size - 1]
        if size - 1 > MOST_IN_MATRIX:
            np.fill_diagonal(counts, 0)
        given, other = np.nonzero(counts)
        found = np.stack([given, other, self.of.every * counts[given, other]], 1)
        return found if size - 1 <= MOST_IN_MATRIX else found[np.argsort(-found[:, 2], kind="stable")][:_PAIRS]

    def grid(self, x: str, y: str, view: View, colour: str | None) -> dict[str, np.ndarray]:
        """A map of the selection: its points where they are few, else how many lie where, and a colour for each."""
        places = self.of.places(x, y, view)
        counts = self.of.counts("map" if self.filters else "ground", places, self.rows, PLACES, (x, y, view))
        if counts.sum() <= POINTS:
            rows = np.flatnonzero(self.rows.passes & (places < PLACES))
            points = np.stack([self.of.array(one)[rows] for one in (x, y)], 1).astype(np.float32)
            tints = np.zeros(0, np.uint8) if colour is None else self._tints(colour)[rows].astype(np.uint8)
            return {"points": points, "rows": (rows * self.of.every).astype(np.uint32), "tints": tints}
        found = {"density": query.density(counts)}
        if colour is not None:
            place, tints = (query.taken(one, self.rows.numbers) for one in (places, self._tints(colour)))
            if self._is_number(colour):
                found["tints"] = query.mean_bin(place, tints, PLACES)
            else:
                found["tints"] = query.commonest(place, tints, PLACES, 16)
        return found

    def _is_number(self, name: str) -> bool:
        return name in self.of.columns.all and self.of.columns.all[name].role == "number"

    def _tints(self, name: str) -> np.ndarray:
        """A column as colours: the bins of a number, the first codes of a list."""
        if self._is_number(name):
            return self.of.array(name, "bin")
        if name != DECISION:
            self.of.column(name, "list")
        codes = self.of.array(name)
        return codes if codes.dtype == np.uint8 else np.minimum(codes, query.MISSING).astype(np.uint8)

    def page(self, by: str, start: int, count: int, *, descending: bool) -> np.ndarray:
        self.of.column(by, "number")
        bins, values = self.of.array(by, "bin"), self.of.array(by)
        return query.page_of(bins, values, self.rows.numbers, start, count, descending=descending)

    def every_row(self) -> np.ndarray:
        return np.flatnonzero(self.rows.passes)
