"""What is to be correlated: options, values as float64 arrays, groups of samples."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from hardsight.names import check_name

# Below it the variance of Fisher's z, 1 / (n - 3), does not exist.
FEWEST_PAIRS = 4

METHODS = ("spearman", "pearson", "kendall")

Values = Float[np.ndarray, "samples"]


def check_options(method: str, resamples: int = 0, generator: Any = None, level: float = 0.95) -> None:
    """Raise a ValueError that names the first option that cannot be used."""
    check_name("method", method, METHODS)
    if not isinstance(resamples, int | np.integer) or resamples < 0:
        raise ValueError(f"resamples must be a whole number, 0 (no interval) or more; got {resamples!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), the share of intervals that hold the truth; got {level!r}")
    if resamples and not isinstance(generator, np.random.Generator):
        got = type(generator).__name__
        raise ValueError(f"generator must be a numpy.random.Generator where resamples are drawn; got {got}")


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
        first = f"{len(bad)} of {len(values)} values are not, first {values[bad[0]]} {where}"
        raise ValueError(f"{name} must be finite; {first}{remedy}")
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
