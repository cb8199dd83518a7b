"""What is to be correlated: options, values as float64 arrays, groups of samples, two lists of ids joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from hardsight.names import check_name

# Below it the variance of Fisher's z, 1 / (n - 3), does not exist.
FEWEST_PAIRS = 4

METHODS = ("spearman", "pearson", "kendall")
ALTERNATIVES = ("two-sided", "greater", "less")
INTERVALS = ("bca", "percentile")

Values = Float[np.ndarray, "samples"]


def check_options(
    method: str, alternative: str = "two-sided", interval: str = "bca", resamples: int = 0, generator: Any = None,
    level: float = 0.95,
) -> None:  # fmt: skip
    """Raise a ValueError that names the first option that cannot be used."""
    check_name("method", method, METHODS)
    check_name("alternative", alternative, ALTERNATIVES)
    check_name("interval", interval, INTERVALS)
    if not isinstance(resamples, int | np.integer) or resamples < 0:
        raise ValueError(f"resamples must be a whole number, 0 (no interval) or more; got {resamples!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), the share of intervals that hold the truth; got {level!r}")
    if resamples and not isinstance(generator, np.random.Generator):
        raise ValueError(
            f"generator must be a numpy.random.Generator where resamples are drawn; got {type(generator).__name__}"
        )


def as_values(name: str, values: Any) -> Values:
    """One number per sample as float64; a tensor may live on any device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers; got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name} must be one number per sample, of shape [n]; got shape {list(array.shape)}")
    return array.astype(np.float64)


def as_pairs(**named: Any) -> list[Values]:
    """Columns of equal length that can be correlated: at least 4 finite values each, not all the same."""
    columns = {name: as_values(name, values) for name, values in named.items()}
    first, size = next((name, len(values)) for name, values in columns.items())
    for name, values in columns.items():
        if len(values) != size:
            raise ValueError(f"{name} must have one value for each of {first}'s {size}; got {len(values)}")
    if size < FEWEST_PAIRS:
        raise ValueError(f"{first} must hold at least {FEWEST_PAIRS} pairs to be correlated; got {size}")
    for name, values in columns.items():
        check_usable(name, values)
    return list(columns.values())


def check_usable(name: str, values: Values, ids: Sequence[Any] | None = None, *, remedy: str = "") -> None:
    """Raise where values are not finite, naming the first (by its id where there are ids), or never vary.

    `remedy` ends the sentence about the former.
    """
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        where = f"at position {bad[0]}" if ids is None else f"for id {ids[int(bad[0])]!r}"
        raise ValueError(
            f"{name} must be finite; {len(bad)} of {len(values)} values are not, first {values[bad[0]]} {where}{remedy}"
        )
    if values.min() == values.max():
        raise ValueError(f"{name} must vary to be correlated; all {len(values)} values are tied at {values[0]:g}")


class Group(NamedTuple):
    """Samples that belong together: the group's name, their positions in order, and of how many fine classes."""

    name: Any
    rows: Integer[np.ndarray, "members"]
    fine_classes: int | None = None


def as_groups(groups: Any, samples: int) -> list[Group]:
    """The groups that occur, in sorted order, from one name for each sample."""
    array = np.asarray(groups.detach().cpu() if hasattr(groups, "detach") else groups)
    if array.shape != (samples,):
        raise ValueError(f"groups must name one group for each of {samples} samples; got shape {list(array.shape)}")
    # NaN alone differs from itself.
    missing = sum(one is None or one != one for one in array.tolist())
    if missing:
        raise ValueError(f"groups must name one group for each of {samples} samples; {missing} have none")
    try:
        names, codes = np.unique(array, return_inverse=True)
    except TypeError:
        kinds = sorted({type(one).__name__ for one in array.tolist()})
        raise ValueError(f"groups must be all text or all numbers; got {' and '.join(kinds)}") from None
    # Sorted once, not looked through for every group.
    members = np.split(np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(names)).cumsum()[:-1])
    return [Group(name.item(), rows) for name, rows in zip(names, members, strict=True)]


@dataclass(frozen=True)
class Match:
    """Rows of the two lists that carry the same id, in the first's order, and the ids that only one of them has."""

    first: Integer[np.ndarray, "matched"]
    second: Integer[np.ndarray, "matched"]
    only_first: list[Any]
    only_second: list[Any]

    def sentence(self, names: tuple[str, str]) -> str:
        """How many ids match, and the first missing on either side."""
        sides = ((self.only_first, *names), (self.only_second, *reversed(names)))
        missing = [
            f"{len(only):,} of {here} are missing in {there}, first {only[0]!r}" for only, here, there in sides if only
        ]
        return "; ".join([f"{len(self.first):,} ids of {names[0]} and {names[1]} match", *missing])


def match_ids(
    first: Sequence[Any], second: Sequence[Any], *, names: tuple[str, str] = ("first", "second"), partial: bool = False
) -> Match:
    """Match ids, as text where one side holds numbers and the other text; 7 and 7.0 are one id.

    One list may be part of the other. Where each has ids the other lacks, something is probably wrong: an error, unless
    `partial`. Errors in any case are ids that occur twice, missing ids, and fewer than 4 that match.
    """
    kinds = [{float if isinstance(one, int) else type(one) for one in ids} for ids in (first, second)]
    if kinds[0] != kinds[1]:
        first, second = ([None if one is None else str(one) for one in ids] for ids in (first, second))
    there, here = _places(second, names[1]), _places(first, names[0])
    rows = [(at, there[one]) for one, at in here.items() if one in there]
    matched = np.array(rows, np.int64).reshape(-1, 2)
    only_first, only_second = [one for one in first if one not in there], [one for one in second if one not in here]
    match = Match(matched[:, 0], matched[:, 1], only_first, only_second)
    if len(rows) < FEWEST_PAIRS:
        raise ValueError(f"at least {FEWEST_PAIRS} ids must match: {match.sentence(names)}")
    if only_first and only_second and not partial:
        raise ValueError(
            "the ids of one table must all be in the other, or a partial match be asked for (--partial): "
            f"{match.sentence(names)}"
        )
    return match


def _places(ids: Sequence[Any], name: str) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for at, one in enumerate(ids):
        if one is None:
            raise ValueError(f"every row of {name} must have an id; row {at + 1} has none")
        if one in places:
            raise ValueError(f"ids of {name} must be unique; {one!r} occurs in rows {places[one] + 1} and {at + 1}")
        places[one] = at
    return places
