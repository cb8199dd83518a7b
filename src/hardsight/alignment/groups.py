"""Correlation within parts of the data: bins of human frequency (AVH, Table 1), classes, coarse classes (Fig. 19)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Integer

from hardsight.alignment.coefficients import Correlation
from hardsight.alignment.correlation import correlate
from hardsight.alignment.inputs import Groups, as_groups, as_pairs, rows_of_groups

FIVE_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class GroupCorrelation:
    """The correlation inside one group of `n` samples; where it is None, `reason` says why."""

    group: Any
    n: int
    correlation: Correlation | None
    reason: str | None = None


@dataclass(frozen=True)
class GranularCorrelation(GroupCorrelation):
    """A coarse class, and how many fine classes of it occur."""

    fine_classes: int = 0


def bin_of(values: Any, edges: Sequence[float] = FIVE_BINS) -> Integer[np.ndarray, "samples"]:
    """The bin of each value: bins hold their lower edge but not their upper one, the last holds both; -1 is outside.

    >>> bin_of([0.0, 0.2, 0.9, 1.0, 1.5]).tolist()
    [0, 1, 4, 4, -1]
    """
    bounds = np.asarray(edges, np.float64)
    if bounds.ndim != 1 or len(bounds) < 2 or not (np.diff(bounds) > 0).all():
        raise ValueError(f"edges must rise, with at least one bin between them; got {list(edges)}")
    array = np.asarray(values, np.float64)
    found = np.searchsorted(bounds, array, side="right") - 1
    found[array == bounds[-1]] = len(bounds) - 2
    found[(found >= len(bounds) - 1) | ~np.isfinite(array)] = -1
    return found


def correlate_in_bins(
    score: Any, human: Any, edges: Sequence[float] = FIVE_BINS, method: str = "spearman", **options: Any
) -> list[GroupCorrelation]:
    """Correlation within each bin of the human column, lowest first; the group is the bin's (low, high).

    `options` are those of `correlate`.
    """
    x, y = as_pairs(score=score, human=human)
    bins = bin_of(y, edges)
    bounds = itertools.pairwise(edges)
    return [_within(bound, x, y, np.flatnonzero(bins == at), method, options) for at, bound in enumerate(bounds)]


def correlate_by_group(
    score: Any, human: Any, groups: Any, method: str = "spearman", **options: Any
) -> list[GroupCorrelation]:
    """Correlation within each group, in sorted order: per class, per domain, right and wrong predictions, ..."""
    x, y = as_pairs(score=score, human=human)
    names, codes = as_groups(groups, len(x))
    members = rows_of_groups(codes, len(names))
    return [_within(name.item(), x, y, rows, method, options) for name, rows in zip(names, members, strict=True)]


def correlate_by_granularity(
    score: Any, human: Any, labels: Any, coarse_of: Mapping[Any, Any], method: str = "spearman", **options: Any
) -> list[GranularCorrelation]:
    """Correlation within each coarse class, those of many fine classes first; `coarse_of` maps a fine label to its own.

    Where `human` is a selection frequency, the paper counts it at the coarse granularity too: everyone who chose any of
    the coarse class's members (`hardsight.datasets.human_selection_frequency` with a hierarchy).
    """
    names, codes = as_groups(labels, len(as_pairs(score=score, human=human)[0]))
    missing = [name.item() for name in names if name.item() not in coarse_of]
    if missing:
        raise ValueError(
            f"coarse_of must name a coarse class for every label; {len(missing)} of {len(names)} are missing, "
            f"first {missing[0]!r}"
        )
    parents = [coarse_of[name.item()] for name in names]
    coarse, of_fine = as_groups(parents, len(parents))
    found = correlate_by_group(score, human, Groups(coarse, of_fine[codes]), method, **options)
    found_granular = [
        GranularCorrelation(one.group, one.n, one.correlation, one.reason, parents.count(one.group)) for one in found
    ]
    return sorted(found_granular, key=lambda one: -one.fine_classes)


def _within(
    name: Any, x: np.ndarray, y: np.ndarray, rows: np.ndarray, method: str, options: Mapping[str, Any]
) -> GroupCorrelation:
    count = len(rows)
    try:
        score, human = as_pairs(score=x[rows], human=y[rows])
    except ValueError as refusal:
        # A group may be small or constant without the data being bad.
        return GroupCorrelation(name, count, None, str(refusal))
    return GroupCorrelation(name, count, correlate(score, human, method, **options))
