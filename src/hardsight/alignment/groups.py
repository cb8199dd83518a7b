"""Parts of the data: correlation in bins (AVH, Table 1), classes and coarse ones (Fig. 19), scaling, joint counts."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from hardsight.alignment.bootstrap import correlate
from hardsight.alignment.correlation import Correlation
from hardsight.alignment.inputs import Group, as_groups, as_pairs, as_values

FIVE_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class GroupCorrelation:
    """The correlation inside one group of `n` samples; where it is None, `reason` says why.

    `fine_classes`: of a coarse class, how many of its fine ones occur.
    """

    group: Any
    n: int
    correlation: Correlation | None
    reason: str | None = None
    fine_classes: int | None = None


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
    return [correlate_within(group, x, y, method, **options) for group in bins_as_groups(y, edges)]


def bins_as_groups(human: Float[np.ndarray, "samples"], edges: Sequence[float]) -> list[Group]:
    """The samples of each bin, lowest first; the name is (low, high)."""
    bins = bin_of(human, edges)
    return [Group(bounds, np.flatnonzero(bins == at)) for at, bounds in enumerate(itertools.pairwise(edges))]


def correlate_by_group(
    score: Any, human: Any, groups: Any, method: str = "spearman", **options: Any
) -> list[GroupCorrelation]:
    """Correlation within each group, in sorted order: per class, per domain, right and wrong predictions, ..."""
    x, y = as_pairs(score=score, human=human)
    return [correlate_within(group, x, y, method, **options) for group in as_groups(groups, len(x))]


def correlate_by_granularity(
    score: Any, human: Any, labels: Any, coarse_of: Mapping[Any, Any], method: str = "spearman", **options: Any
) -> list[GroupCorrelation]:
    """Correlation within each coarse class, those of many fine classes first; `coarse_of` maps a fine label to its own.

    Where `human` is a selection frequency, the paper counts it at the coarse granularity too: everyone who chose any of
    the coarse class's members (`hardsight.datasets.cifar_selection_frequency` with a hierarchy).
    """
    x, y = as_pairs(score=score, human=human)
    coarse = coarse_groups(as_groups(labels, len(x)), coarse_of)
    return [correlate_within(group, x, y, method, **options) for group in coarse]


def coarse_groups(fine: Sequence[Group], coarse_of: Mapping[Any, Any]) -> list[Group]:
    """The coarse classes of these fine ones, those of many fine classes first."""
    missing = [group.name for group in fine if group.name not in coarse_of]
    if missing:
        lacking = f"{len(missing)} of {len(fine)} are missing, first {missing[0]!r}"
        raise ValueError(f"coarse_of must name a coarse class for every label; {lacking}")
    found = [
        Group(name, np.sort(np.concatenate([fine[at].rows for at in members])), len(members))
        for name, members, _ in as_groups([coarse_of[group.name] for group in fine], len(fine))
    ]
    return sorted(found, key=lambda group: -(group.fine_classes or 0))


def correlate_within(group: Group, x: np.ndarray, y: np.ndarray, method: str, **options: Any) -> GroupCorrelation:
    """The correlation inside a group; a group may be small or constant without the data being bad."""
    found = GroupCorrelation(group.name, len(group.rows), None, None, group.fine_classes)
    try:
        score, human = as_pairs(score=x[group.rows], human=y[group.rows])
    except ValueError as problem:
        return replace(found, reason=str(problem))
    return replace(found, correlation=correlate(score, human, method, **options))


def scale_linearly(values: Any) -> Float[np.ndarray, "samples"]:
    """(v - smallest) / (largest - smallest), in [0, 1], as AVH is scaled before plotting; constant values become 0.

    >>> scale_linearly([2.0, 3.0, 6.0]).tolist()
    [0.0, 0.25, 1.0]
    """
    array = as_values("values", values)
    if not np.isfinite(array).all():
        raise ValueError(f"values must be finite; {int((~np.isfinite(array)).sum())} of {len(array)} are not")
    if not len(array) or array.min() == array.max():
        return np.zeros_like(array)
    low, high = array.min(), array.max()
    # Halves first: the difference of two finite numbers may be infinite, that of their halves is not.
    scaled: np.ndarray = (array / 2 - low / 2) / (high / 2 - low / 2)
    return scaled


def scale_within_groups(values: Any, groups: Any) -> Float[np.ndarray, "samples"]:
    """`scale_linearly` within each group: how the paper normalises the feature norm by class (Table 1, Fig. 5)."""
    array = as_values("values", values)
    scaled = np.empty_like(array)
    for group in as_groups(groups, len(array)):
        scaled[group.rows] = scale_linearly(array[group.rows])
    return scaled


def joint_histogram(
    score: Float[np.ndarray, "samples"], human: Float[np.ndarray, "samples"], bins: int = 25
) -> dict[str, np.ndarray]:
    """`counts[i, j]` samples in human bin i and score bin j, and the edges; those of the score scaled to [0, 1].

    Bins are equal, the last of each side closed; frequencies in [0, 1] get the whole of [0, 1] as range.
    """
    human_edges, score_edges = equal_edges(*human_range(human), bins), equal_edges(0.0, 1.0, bins)
    counts = np.histogram2d(human, scale_linearly(score), bins=(human_edges, score_edges))[0]
    return {"counts": counts.astype(np.int64), "human_edges": human_edges, "score_edges": score_edges}


def equal_edges(low: float, high: float, bins: int) -> Float[np.ndarray, "edges"]:
    """Edges of equal bins from low to high, which may be as far apart as floats can be."""
    return 2 * np.linspace(low / 2, high / 2, bins + 1)


def human_range(human: Float[np.ndarray, "samples"]) -> tuple[float, float]:
    """[0, 1] for what may be a frequency, otherwise from the smallest to the largest."""
    low, high = float(human.min()), float(human.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
