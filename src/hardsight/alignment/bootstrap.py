"""Bootstrap of correlations: whole pairs are drawn with replacement, ranks are made again in every resample.

A resample is written as weights, how often each pair was drawn. Ranks of a weighted sample follow from cumulative
weights along an order that never changes, so nothing is sorted again, and a chunk of resamples is one array operation.
Several scores of the same samples share their resamples: the difference of two of them gets an interval of its own.

Very many samples are drawn in parts, the m out of n bootstrap (Bickel, Götze & van Zwet 1997): the spread of a
coefficient of m samples is sqrt(n / m) times that of n. Not so Pearson's with a few outliers: a part that
misses them is no smaller picture of the whole.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.correlation import (
    COEFFICIENTS,
    MOST_EXACT,
    Correlation,
    Interval,
    exact_spearman_p,
    kendall,
    p_value_of,
    pearson,
    ranks,
    whole,
)
from hardsight.alignment.inputs import Values, as_pairs, check_options

# Weights held at once, in numbers: 2**17 float64 are 1 MiB, which a core's cache holds; larger chunks are slower.
_CHUNK = 2**17
# Acceleration comes from leaving out samples one by one, or in so many blocks where there are more samples; its error
# is then about sqrt(15) / 6 / blocks = 0.003, which moves a tail of 2.5 % by less than 0.1 %.
_MOST_BLOCKS = 200
# Few resamples know their tails no better than few blocks know the acceleration.
_FEWEST_BLOCKS = 50

Weights = Float[np.ndarray, "resamples samples"]
Weighted = Callable[[Weights], Float[np.ndarray, "scores resamples"]]


@dataclass(frozen=True)
class Bootstrap:
    """Coefficients of several scores with one human column: as measured, on every resample, with blocks left out."""

    estimates: Float[np.ndarray, "scores"]
    replicates: Float[np.ndarray, "scores resamples"]
    left_out: Float[np.ndarray, "scores blocks"]

    def interval(self, score: int = 0, *, level: float = 0.95) -> Interval:
        """Interval of one score's coefficient."""
        return interval_of(self.estimates[score], self.replicates[score], self.left_out[score], level)

    def difference(self, first: int, second: int, *, level: float = 0.95) -> Interval:
        """Interval of first - second on the same resamples."""
        estimate, replicates, left_out = (
            values[first] - values[second] for values in (self.estimates, self.replicates, self.left_out)
        )
        return interval_of(estimate, replicates, left_out, level)


def bootstrap_correlations(
    scores: Float[np.ndarray, "scores samples"],
    human: Float[np.ndarray, "samples"],
    method: str = "spearman",
    *,
    resamples: int = 2000,
    generator: np.random.Generator,
) -> Bootstrap:
    """Correlate every score with the human column on `resamples` draws of whole samples, with replacement.

    Rank coefficients of more than 65,536 samples come from draws of 8,192 each, and are narrowed to what all would
    give.
    """
    check_options(method, resamples, generator)
    *columns, human = as_pairs(**{f"score {at}": score for at, score in enumerate(scores)}, human=human)
    scores, samples = np.stack(columns), len(human)
    estimates = np.array([COEFFICIENTS[method](score, human) for score in scores])
    parts = drawn_in_parts(method, human, *scores)
    if parts or method == "kendall":
        size = PART if parts else samples
        drawn = (generator.integers(0, samples, size) for _ in range(resamples))
        replicates = estimates[:, None] + math.sqrt(size / samples) * (
            _coefficients(scores, human, method, drawn) - estimates[:, None]
        )
    else:
        weighted = _WEIGHTED[method](scores, human)
        none = np.empty((len(scores), 0))
        replicates = np.hstack([none, *(weighted(times) for times in _resampled(samples, resamples, generator))])
    if parts:
        # Of so many samples the acceleration is smaller than what blocks can measure.
        return Bootstrap(estimates, replicates, np.empty((len(scores), 0)))
    # Blocks are drawn: of a table that is sorted, neighbours are alike, and a block of them is no sample.
    order = generator.permutation(samples)
    blocks = np.array_split(order, min(samples, _MOST_BLOCKS, max(resamples, _FEWEST_BLOCKS)))
    if method == "kendall":
        others = (np.delete(np.arange(samples), block) for block in blocks)
        return Bootstrap(estimates, replicates, _coefficients(scores, human, method, others))
    return Bootstrap(estimates, replicates, np.hstack([weighted(kept) for kept in _without(blocks, samples)]))


def _coefficients(
    scores: np.ndarray, human: Values, method: str, drawn: Iterable[np.ndarray]
) -> Float[np.ndarray, "scores draws"]:
    """The coefficient of each score on each of these draws of samples, with ranks of its own."""
    # Ranks of the human column are made once a draw, for all scores.
    prepare, coefficient = (ranks, pearson) if method == "spearman" else (np.asarray, kendall)
    found = []
    for rows in drawn:
        seen = prepare(human[rows])
        found.append([coefficient(prepare(score[rows]), seen) for score in scores])
    return np.array(found).T


def _resampled(samples: int, resamples: int, generator: np.random.Generator) -> Iterator[Weights]:
    """How often each sample was drawn, some resamples at a time."""
    chunk = max(1, _CHUNK // samples)
    for start in range(0, resamples, chunk):
        drawn = generator.integers(0, samples, (min(chunk, resamples - start), samples))
        drawn += samples * np.arange(len(drawn))[:, None]
        yield np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def _without(blocks: list[np.ndarray], samples: int) -> Iterator[Weights]:
    """1 for each sample but those of a block, some blocks at a time."""
    chunk = max(1, _CHUNK // samples)
    for start in range(0, len(blocks), chunk):
        some = blocks[start : start + chunk]
        weights = np.ones((len(some), samples))
        for row, block in zip(weights, some, strict=True):
            row[block] = 0
        yield weights


def interval_of(
    estimate: float,
    replicates: Float[np.ndarray, "resamples"],
    left_out: Float[np.ndarray, "blocks"],
    level: float,
) -> Interval:
    """Percentiles of the replicates, moved for bias and for a spread that changes with the coefficient (BCa).

    Efron, 1987: bias from the share of replicates below the estimate (ties count half), acceleration from the skewness
    of the jackknife. Resamples without a coefficient are left out and not counted.
    """
    from scipy.special import ndtr, ndtri

    seen = replicates[np.isfinite(replicates)]
    if not len(seen):
        return Interval(np.nan, np.nan, level, 0)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    below = ((seen < estimate).sum() + 0.5 * (seen == estimate).sum()) / len(seen)
    if 0 < below < 1:
        left = left_out[np.isfinite(left_out)]
        influence = left.mean() - left if len(left) else left
        spread = float((influence**2).sum())
        acceleration = float((influence**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
        bias = ndtri(below)
        moved = bias + ndtri(tails)
        rest = 1 - acceleration * moved
        # Past its pole the quotient has the other sign: what is meant is beyond all.
        tails = ndtr(bias + np.divide(moved, rest, out=np.copysign(np.inf, moved), where=rest > 0))
    low, high = np.quantile(seen, tails)
    return Interval(float(low), float(high), level, len(seen))


def _weighted_pearson(scores: np.ndarray, human: np.ndarray) -> Weighted:
    y = _around_median(human)
    x = np.stack([_around_median(score) for score in scores])
    moments = np.concatenate([np.stack([y, y * y]), x, x * x, x * y]).T.copy()

    def weighted(weights: Weights) -> np.ndarray:
        sums = weights @ moments / weights.sum(1, keepdims=True)
        count = len(scores)
        mean_y, square_y, mean_x = sums[:, :1], sums[:, 1:2], sums[:, 2 : 2 + count]
        square_x, product = sums[:, 2 + count : 2 + 2 * count], sums[:, 2 + 2 * count :]
        return _ratio(product - mean_x * mean_y, _variance(square_x, mean_x), _variance(square_y, mean_y)).T

    return weighted


def _around_median(values: np.ndarray) -> np.ndarray:
    """Deviations from the median, of 1 at most: sums of their squares lose nothing to cancellation.

    The mean will not do: one value far out moves it away from all the others, and from resamples without that value.
    """
    scaled = values / np.abs(values).max()
    deviations = scaled - np.median(scaled)
    near: np.ndarray = deviations / np.abs(deviations).max()
    return near


def _weighted_spearman(scores: np.ndarray, human: np.ndarray) -> Weighted:
    score_ranks, human_ranks = [_WeightedRanks(score) for score in scores], _WeightedRanks(human)

    def weighted(weights: Weights) -> np.ndarray:
        y, spread_y = human_ranks(weights)
        y *= weights
        found = np.empty((len(scores), len(weights)))
        for row, make_ranks in zip(found, score_ranks, strict=True):
            x, spread_x = make_ranks(weights)
            row[:] = _ratio(np.einsum("rs,rs->r", x, y), spread_x, spread_y)
        return found

    return weighted


class _WeightedRanks:
    """Ranks of resamples less their mean, in the samples' order, and the sum of their squares."""

    def __init__(self, values: np.ndarray) -> None:
        distinct, self.group = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.group, kind="stable")
        self.last = np.searchsorted(self.group[self.order], np.arange(len(distinct)), side="right") - 1

    def __call__(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        reached = np.cumsum(np.take(weights, self.order, axis=1), axis=1)
        if len(self.last) < len(self.order):
            reached = np.take(reached, self.last, axis=1)
        tied = np.diff(reached, axis=1, prepend=0.0)
        # The mean rank of a tie is the rank reached, less half of (its size - 1); the mean of all ranks is (n + 1) / 2.
        deviations = reached - (tied + reached[:, -1:]) / 2
        spread = np.einsum("rg,rg,rg->r", tied, deviations, deviations)
        return np.take(deviations, self.group, axis=1), spread


_WEIGHTED: dict[str, Callable[[np.ndarray, np.ndarray], Weighted]] = {
    "pearson": _weighted_pearson,
    "spearman": _weighted_spearman,
}


def _variance(square: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Mean square less squared mean; what rounding leaves of a constant resample is no variance."""
    variance = square - mean**2
    return np.where(variance > 1e-12 * square, variance, 0.0)


def _ratio(product: np.ndarray, square_x: np.ndarray, square_y: np.ndarray) -> np.ndarray:
    """product / sqrt(square_x square_y), NaN where a resample does not vary."""
    scale = np.sqrt(square_x * square_y)
    ratio: np.ndarray = np.divide(product, scale, out=np.full_like(product, np.nan), where=scale > 0)
    return ratio.clip(-1.0, 1.0)


# More samples than the first are drawn in parts of the second. A product so short is made by one thread: to wake
# another for each of thousands takes longer than they do.
MOST_WHOLE, PART = 2**16, 2**13
# A value that so many share leaves a part too few others: they are drawn whole, however many they are.
_MOST_TIED = 0.95


def drawn_in_parts(method: str, *columns: Float[np.ndarray, "samples"]) -> bool:
    """Whether there are so many samples that a part is enough, and whether all columns vary enough in a part."""
    if method == "pearson" or len(columns[0]) <= MOST_WHOLE:
        return False
    return all(np.unique(one, return_counts=True)[1].max() <= _MOST_TIED * len(one) for one in columns)


def correlate(
    score: Any,
    human: Any,
    method: str = "spearman",
    *,
    resamples: int = 0,
    level: float = 0.95,
    generator: np.random.Generator | None = None,
) -> Correlation:
    """Spearman's, Pearson's or Kendall's (tau-b) coefficient of two columns, in [-1, 1].

    The p-value is two-sided and Student's t, but for Spearman's of at most 8 pairs, where it is exact, and for
    Kendall's, where it is scipy's (exact for few pairs without ties). With `resamples`, a BCa interval from that many
    draws of whole pairs; `generator` must then be given.

    >>> correlate([1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 5, 6], "kendall").coefficient
    0.7333333333333333
    """
    check_options(method, resamples, generator, level)
    x, y = as_pairs(score=score, human=human)
    found = None
    if resamples and generator is not None:
        drawn = bootstrap_correlations(x[None], y, method, resamples=resamples, generator=generator)
        found = drawn.interval(level=level)
    if method == "kendall":
        from scipy.stats import kendalltau

        # Both at once: of a million pairs each takes seconds.
        tau = kendalltau(x, y)
        return Correlation(method, whole(float(tau.statistic)), float(tau.pvalue), len(x), found)
    coefficient = COEFFICIENTS[method](x, y)
    exact = method == "spearman" and len(x) <= MOST_EXACT
    p_value = exact_spearman_p(x, y) if exact else p_value_of(coefficient, len(x))
    return Correlation(method, coefficient, p_value, len(x), found)
