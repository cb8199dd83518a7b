"""What a page selects by: brushes, lists, pairs of classes, a lasso, words; read from a stranger's JSON."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hardsight.explorer.query import BINS, View
from hardsight.files import quoted

MOST_FILTERS, MOST_CORNERS, MOST_VALUES, LONGEST_WORDS = 64, 512, 2000, 200


@dataclass(frozen=True)
class Filter:
    """One condition on a sample; `columns` are those that it is about, `values` what it asks of them.

    | kind | columns | values |
    |---|---|---|
    | brush | a number | first and last bin |
    | list | a list, or several | the codes, any of which will do |
    | pair | two columns of classes | pairs of codes, any of which will do |
    | lasso | two numbers | the corners of a polygon |
    | search | none | the words, which any text or the id must hold |
    """

    kind: str
    columns: tuple[str, ...]
    values: tuple[Any, ...]


def parse_filters(given: Any) -> tuple[Filter, ...]:
    """The filters of a request; ValueError where it is anything else."""
    if not isinstance(given, list) or len(given) > MOST_FILTERS:
        raise ValueError(f"filters must be a list of at most {MOST_FILTERS}; got {quoted(given)}")
    return tuple(_parsed(one) for one in given)


def parse_view(given: Any) -> View:
    """A rectangle of a map that is not empty."""
    if not isinstance(given, list) or len(given) != 4:
        raise ValueError(f"view must be four numbers; got {quoted(given)}")
    view = View(*(_number(one) for one in given))
    if not (view.left < view.right and view.bottom < view.top):
        raise ValueError(f"view must have its left below its right and its bottom below its top; got {quoted(given)}")
    return view


def _parsed(given: Any) -> Filter:
    if not isinstance(given, Mapping) or given.get("kind") not in _VALUES:
        raise ValueError(f"filter must have a kind out of {', '.join(_VALUES)}; got {quoted(given)}")
    kind, (columns, read) = given["kind"], _VALUES[given["kind"]]
    names = given.get("columns", [])
    if not isinstance(names, list) or len(names) != columns or not all(isinstance(one, str) for one in names):
        raise ValueError(f"filter must name {columns} columns for a {kind}; got {quoted(names)}")
    values = given.get("values")
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_VALUES:
        raise ValueError(f"filter must have 1 to {MOST_VALUES} values; got {quoted(values)}")
    return Filter(kind, tuple(names), read(values))


def _brush(values: list[Any]) -> tuple[Any, ...]:
    low, high = (_whole(one) for one in _exactly(values, 2))
    if not 0 <= low <= high < BINS:
        raise ValueError(f"brush must go from a bin to a later one of {BINS}; got {quoted(values)}")
    return low, high


def _pairs(values: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(_whole(one) for one in _exactly(pair, 2)) for pair in values)


def _polygon(values: list[Any]) -> tuple[Any, ...]:
    if not 3 <= len(values) <= MOST_CORNERS:
        raise ValueError(f"lasso must have 3 to {MOST_CORNERS} corners; got {len(values)}")
    return tuple(tuple(_number(one) for one in _exactly(corner, 2)) for corner in values)


def _words(values: list[Any]) -> tuple[Any, ...]:
    (words,) = _exactly(values, 1)
    if not isinstance(words, str) or not 1 <= len(words) <= LONGEST_WORDS:
        raise ValueError(f"search must be 1 to {LONGEST_WORDS} characters; got {quoted(words)}")
    return (words,)


_VALUES: dict[str, tuple[int, Callable[[list[Any]], tuple[Any, ...]]]] = {
    "brush": (1, _brush),
    "list": (1, lambda values: tuple(map(_whole, values))),
    "pair": (2, _pairs),
    "lasso": (2, _polygon),
    "search": (0, _words),
}


def _exactly(values: Any, count: int) -> list[Any]:
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"filter must have {count} values here; got {quoted(values)}")
    return values


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ValueError(f"values must be whole numbers from 0 on; got {quoted(value)}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or abs(value) > 1e300:
        raise ValueError(f"values must be finite numbers; got {quoted(value)}")
    return float(value)
