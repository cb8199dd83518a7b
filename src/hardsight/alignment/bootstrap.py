"""Bootstrap of correlations: whole pairs are drawn with replacement, ranks are made again in every resample.

Values are sorted once: ranks of a resample follow from how often each value was drawn. Several scores of the same
samples share their resamples: the difference of two of them gets an interval of its own.

Very many samples are drawn in parts, the m out of n bootstrap (Bickel, Götze & van Zwet 1997): the spread of a
coefficient of m samples is sqrt(n / m) times that of n. Not so Pearson's with a few outliers: a part that
misses them is no smaller picture of the whole.
"""

import itertools
import math
from collections.abc import Iterable
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
    whole,
)
from hardsight.alignment.inputs import Values, as_pairs, check_options

# Values of a column drawn at once: 2**17 float64 are 1 MiB, which a core's cache holds; larger chunks are slower.
_CHUNK = 2**17
# Acceleration comes from leaving out samples one by one, or in so many blocks where there are more samples; its error
# is then about sqrt(15) / 6 / blocks = 0.003, which moves a tail of 2.5 % by less than 0.1 %.
_MOST_BLOCKS = 200
# Few resamples know their tails no better than few blocks know the acceleration.
_FEWEST_BLOCKS = 50

# More samples than the first are drawn in parts of the second.
MOST_WHOLE, PART = 2**16, 2**13
# A value that so many share leaves a part too few others: they are drawn whole, however many they are.
_MOST_TIED = 0.95


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
    scores: Float[np.ndarray, "scores samples"], human: Float[np.ndarray, "samples"], method: str = "spearman", *,
    resamples: int = 2000, generator: np.random.Generator,
) -> Bootstrap:  # fmt: skip
    """Correlate every score with the human column on `resamples` draws of whole samples, with replacement.

    Rank coefficients of more than 65,536 samples come from draws of 8,192 each, and are narrowed to what all would
    give.
    """
    check_options(method, resamples, generator)
    *columns, human = as_pairs(**{f"score {at}": score for at, score in enumerate(scores)}, human=human)
    scores, samples = np.stack(columns), len(human)
    estimates = np.array([COEFFICIENTS[method](score, human) for score in scores])
    parts = drawn_in_parts(method, human, *scores)
    size = PART if parts else samples
    drawn = (generator.integers(0, samples, size) for _ in range(resamples))
    replicates = _coefficients(scores, human, method, drawn)
    if parts:
        replicates = estimates[:, None] + math.sqrt(size / samples) * (replicates - estimates[:, None])
        # Of so many samples the acceleration is smaller than what blocks can measure.
        return Bootstrap(estimates, replicates, np.empty((len(scores), 0)))
    # Blocks are drawn: of a table that is sorted, neighbours are alike, and a block of them is no sample.
    order = generator.permutation(samples)
    blocks = np.array_split(order, min(samples, _MOST_BLOCKS, max(resamples, _FEWEST_BLOCKS)))
    others = (np.delete(np.arange(samples), block) for block in blocks)
    return Bootstrap(estimates, replicates, _coefficients(scores, human, method, others))


def _coefficients(
    scores: np.ndarray, human: Values, method: str, draws: Iterable[np.ndarray]
) -> Float[np.ndarray, "scores draws"]:
    """The coefficient of each score on each of these draws of samples; NaN where a draw does not vary."""
    ranked = method == "spearman"
    columns = [np.unique(one, return_inverse=True)[1] if ranked else _around_median(one) for one in (*scores, human)]
    found = [np.empty((len(scores), 0))]
    # Draws of equal length are one array operation, as many as a core's cache holds.
    for size, same in itertools.groupby(draws, key=len):
        while some := list(itertools.islice(same, max(1, _CHUNK // size))):
            rows = np.stack(some)
            if method == "kendall":
                found.append(np.array([[kendall(score[row], human[row]) for row in rows] for score in scores]))
                continue
            *units, seen = (_unit_rows(column[rows], ranked) for column in columns)
            found.append(np.array([np.einsum("ds,ds->d", unit, seen) for unit in units]))
    return np.hstack(found).clip(-1.0, 1.0)


def _unit_rows(values: np.ndarray, ranked: bool) -> Float[np.ndarray, "draws drawn"]:
    """Each draw less its mean, of length one. `ranked`: the values are the places of those drawn among all values."""
    if ranked:
        distinct = values.max() + 1
        places = values + distinct * np.arange(len(values))[:, None]
        times = np.bincount(places.ravel(), minlength=distinct * len(values)).reshape(len(values), distinct)
        # The mean rank of a tie is the rank reached, less half of (its size - 1).
        values = np.take_along_axis(times.cumsum(1) - (times - 1) / 2, values, 1)
    deviations = values - values.mean(1, keepdims=True)
    length = np.linalg.norm(deviations, axis=1, keepdims=True)
    # What rounding leaves of a constant draw is no variance.
    varies = (length > 0) & (values != values[:, :1]).any(1, keepdims=True)
    unit: np.ndarray = deviations / np.where(varies, length, np.nan)
    return unit


def _around_median(values: np.ndarray) -> np.ndarray:
    """Deviations from the median, of 1 at most: sums of their squares lose nothing to cancellation.

    The mean will not do: one value far out moves it away from all the others, and from resamples without that value.
    """
    scaled = values / np.abs(values).max()
    deviations = scaled - np.median(scaled)
    near: np.ndarray = deviations / np.abs(deviations).max()
    return near


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


def drawn_in_parts(method: str, *columns: Float[np.ndarray, "samples"]) -> bool:
    """Whether there are so many samples that a part is enough, and whether all columns vary enough in a part."""
    if method == "pearson" or len(columns[0]) <= MOST_WHOLE:
        return False
    return all(np.unique(one, return_counts=True)[1].max() <= _MOST_TIED * len(one) for one in columns)


def correlate(
    score: Any, human: Any, method: str = "spearman", *, resamples: int = 0, level: float = 0.95,
    generator: np.random.Generator | None = None,
) -> Correlation:  # fmt: skip
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
