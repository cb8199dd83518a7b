"""Counts over a selection of samples: pure functions of numpy arrays, a byte or two a value.

A number is binned once, to one byte; what a page shows of a selection is then counted, which takes about a
millisecond a column and million rows. Every filter is a mask of the rows that pass; a selection is those that pass all.
A brush that moves adds a few rows and takes a few away: only these are counted again.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

# Bins of a number; the last value of the byte is for what is missing.
BINS, MISSING = 255, 255
# Of a sample so many values say where the bulk of a column is.
_LOOKED_AT = 200_000
_TAIL = 0.0005


class View(NamedTuple):
    """A rectangle of a map, in the units of its axes."""

    left: float
    bottom: float
    right: float
    top: float


def bounds(values: np.ndarray) -> tuple[float, float]:
    """Between which numbers to bin: from least to largest, or the bulk where a few lie far out; (0, 1) for nothing."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    least, most = float(finite.min()), float(finite.max())
    low, high = np.quantile(finite[:: max(1, len(finite) // _LOOKED_AT)].astype(np.float64), (_TAIL, 1 - _TAIL))
    bulk = float(high - low)
    low = least if low - least <= bulk / 4 or not bulk else float(low)
    high = most if most - high <= bulk / 4 or not bulk else float(high)
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def binned(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Each number's bin as one byte, in equal steps from `low` to `high`; what lies outside is in the outermost.

    Missing values, NaN, are `MISSING`.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.clip((values.astype(np.float64) - low) * (BINS / (high - low)), 0, BINS - 1)
        return np.where(np.isnan(scale), MISSING, scale).astype(np.uint8)


def failing(passes: Sequence[np.ndarray], rows: int) -> np.ndarray:
    failed = np.zeros(rows, np.uint8)
    for mask in passes:
        failed += ~mask
    return failed


class Rows:
    """The rows that pass, as a mask over all."""

    def __init__(self, passes: np.ndarray) -> None:
        self.passes = passes
        self._since: tuple[Rows, np.ndarray, np.ndarray] | None = None

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(self.passes))

    @cached_property
    def numbers(self) -> np.ndarray | None:
        """The numbers of these rows; None for all."""
        return None if self.count == len(self.passes) else np.flatnonzero(self.passes)

    def since(self, before: "Rows") -> tuple[np.ndarray, np.ndarray]:
        """The rows that have come and those that have gone since; kept, for all columns ask the same."""
        found = self._since
        if found is None or found[0] is not before:
            changed = np.flatnonzero(self.passes != before.passes)
            stays = self.passes[changed]
            found = self._since = (before, changed[stays], changed[~stays])
            # What that one was compared to need not be kept.
            before._since = None
        return found[1], found[2]


def passing(failed: np.ndarray, *own: np.ndarray) -> Rows:
    """The rows that pass all filters but those that are a column's `own`."""
    return Rows((failed - failing(own, len(failed)) if own else failed) == 0)


def taken(column: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    return column if rows is None else column.take(rows)


def counted(codes: np.ndarray, rows: np.ndarray | None, size: int) -> np.ndarray:
    """How often each of `size` codes occurs at these rows."""
    return np.bincount(taken(codes, rows), minlength=size)[:size]


def recounted(codes: np.ndarray, rows: Rows, size: int, before: tuple[Rows, np.ndarray] | None) -> np.ndarray:
    """The same as `counted`, from the counts over the rows of another time where fewer rows have changed than pass."""
    if before is not None:
        came, went = rows.since(before[0])
        if len(came) + len(went) < rows.count:
            found: np.ndarray = before[1] + counted(codes, came, size) - counted(codes, went, size)
            return found
    return counted(codes, rows.numbers, size)


def bits_counted(counts: np.ndarray, size: int) -> np.ndarray:
    """How many rows have each of `size` bits set, from how many have each pattern of them."""
    each = np.arange(len(counts))
    return np.array([counts[(each >> bit) & 1 == 1].sum() for bit in range(size)], np.int64)


def pairs_counted(first: np.ndarray, second: np.ndarray, rows: np.ndarray | None, size: int) -> np.ndarray:
    """How many of these rows have each pair of codes: [size, size]."""
    both = taken(first, rows).astype(np.int64) * size + taken(second, rows)
    return np.bincount(both, minlength=size * size).reshape(size, size)


def places(x: np.ndarray, y: np.ndarray, view: View, side: int) -> np.ndarray:
    """The place of each point in a grid of `side` x `side` over the view, row by row from the top; after it if outside.

    A point outside has the place `side` x `side`.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        across = (x - view.left) * (side / (view.right - view.left))
        down = (view.top - y) * (side / (view.top - view.bottom))
        shown = (across >= 0) & (across <= side) & (down >= 0) & (down <= side)
    across, down = np.where(shown, across, 0), np.where(shown, down, 0)
    place = np.minimum(down.astype(np.int32), side - 1) * side + np.minimum(across.astype(np.int32), side - 1)
    return np.where(shown, place, np.int32(side * side))


def density(counts: np.ndarray) -> np.ndarray:
    """Counts as one byte each, on a scale of logarithms: 0 only for none."""
    most = counts.max(initial=1)
    return np.where(counts, 1 + 254 * np.log(np.maximum(counts, 1)) / max(np.log(most), 1e-9), 0).astype(np.uint8)


def mean_bin(place: np.ndarray, bins: np.ndarray, size: int) -> np.ndarray:
    """The mean bin of the points at each of `size` places, as one byte; `MISSING` where there is none."""
    known = bins != MISSING
    place, bins = place[known], bins[known]
    counts = counted(place, None, size)
    sums = np.bincount(place, weights=bins, minlength=size)[:size]
    return np.where(counts, np.rint(sums / np.maximum(counts, 1)), MISSING).astype(np.uint8)


def commonest(place: np.ndarray, codes: np.ndarray, size: int, number: int) -> np.ndarray:
    """The commonest of `number` codes at each of `size` places, as one byte; `MISSING` where there is none."""
    known = codes < number
    counts = counted(place[known] * number + codes[known], None, size * number).reshape(size, number)
    return np.where(counts.any(1), counts.argmax(1), MISSING).astype(np.uint8)


def inside(x: np.ndarray, y: np.ndarray, polygon: np.ndarray) -> np.ndarray:
    """Whether each point lies inside a polygon [corners, 2], by counting the edges to its right."""
    low, high = polygon.min(0), polygon.max(0)
    near = np.flatnonzero((x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1]))
    px, py = x.take(near), y.take(near)
    odd = np.zeros(len(near), bool)
    for (ax, ay), (bx, by) in zip(polygon, np.roll(polygon, -1, 0), strict=True):
        if ay != by:
            odd ^= ((ay > py) != (by > py)) & (px < (bx - ax) * (py - ay) / (by - ay) + ax)
    found = np.zeros(len(x), bool)
    found[near[odd]] = True
    return found


def page_of(
    bins: np.ndarray, values: np.ndarray, rows: np.ndarray | None, start: int, count: int, *, descending: bool
) -> np.ndarray:
    """The selected rows from place `start` on by their values; ties keep the table's order, what is missing comes last.

    The bins say which of them lie there: only the values of these few are looked at.
    """
    codes = taken(bins, rows)
    order = np.append(np.arange(BINS)[:: -1 if descending else 1], MISSING)
    reached = np.cumsum(np.bincount(codes, minlength=MISSING + 1)[order])
    stop = min(start + count, len(codes))
    if start >= stop:
        return np.zeros(0, np.int64)
    first, last = np.searchsorted(reached, start, side="right"), np.searchsorted(reached, stop)
    wanted = np.zeros(MISSING + 1, bool)
    wanted[order[first : last + 1]] = True
    near = np.flatnonzero(wanted[codes])
    near = near if rows is None else rows[near]
    keys = values[near] * (-1 if descending else 1)
    skipped = int(reached[first - 1]) if first else 0
    shown: np.ndarray = near[smallest(np.where(np.isnan(keys), np.inf, keys), start - skipped, stop - skipped)]
    return shown


def smallest(keys: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Where the smallest key but `start`, and those after it up to `stop`, are; ties in their order."""
    low, high = np.partition(keys, (start, stop - 1))[[start, stop - 1]]
    near = np.flatnonzero((keys >= low) & (keys <= high))
    skipped = np.count_nonzero(keys < low)
    return near[np.argsort(keys[near], kind="stable")][start - skipped : stop - skipped]


def share_below(values: np.ndarray, value: float) -> float:
    """Which share of the values that are there is smaller, ties counted half; NaN without any."""
    known = values[~np.isnan(values)]
    if not len(known) or np.isnan(value):
        return float("nan")
    return float(((known < value).sum() + ((known == value).sum() - 1) / 2) / max(1, len(known) - 1))
