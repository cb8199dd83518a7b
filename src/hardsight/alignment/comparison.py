"""Do two scores follow people equally well, and do several rank the same samples alike?

Both correlations of a comparison usually share the same samples and the same human column: they are dependent, and
Steiger's or Meng, Rosenthal and Rubin's test is the right one. Fisher's for independent correlations is what the AVH
paper used (one-sided); on dependent ones it is conservative where the two scores resemble each other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.bootstrap import bootstrap_correlations
from hardsight.alignment.correlation import COEFFICIENTS, Interval, correlation_matrix, normal_p, ranks
from hardsight.alignment.inputs import FEWEST_PAIRS, as_pairs, check_options

# By so much may a correlation be off that was printed with two digits.
_PRINTED = 0.02


@dataclass(frozen=True)
class ZTest:
    """A statistic that is standard normal when the two correlations are equal; positive where the first is larger."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """Two correlations with the same human column, that of the two scores with each other, and the tests between them.

    `steiger` and `meng` rest on the covariance of product moments of normal values: they fit Spearman's coefficient,
    which is Pearson's of ranks, and Pearson's where values are not skewed. For Kendall's they are None, and `interval`
    (of first - second) decides, as it does for Pearson's of skewed values.
    """

    method: str
    first: float
    second: float
    between: float
    n: int
    fisher: ZTest
    steiger: ZTest | None
    meng: ZTest | None
    interval: Interval | None = None


def fisher_z_test(
    first: float, second: float, n_first: int, n_second: int | None = None, *, alternative: str = "two-sided"
) -> ZTest:
    """(atanh r1 - atanh r2) / sqrt(1/(n1 - 3) + 1/(n2 - 3)): Fisher's test for correlations of different samples.

    "greater" asks whether the first is larger, as AVH's Tables 2 and 6 to 9 do.

    >>> round(fisher_z_test(0.360, 0.325, 29987, alternative="greater").statistic, 2)
    4.86
    """
    n_second = n_first if n_second is None else n_second
    _check(min(n_first, n_second), first, second)
    spread = math.sqrt(1 / (n_first - 3) + 1 / (n_second - 3))
    statistic = (math.atanh(first) - math.atanh(second)) / spread
    return ZTest(statistic, normal_p(statistic, alternative))


def steiger_test(first: float, second: float, between: float, n: int, *, alternative: str = "two-sided") -> ZTest:
    """Steiger's (1980, Eq. 14) Z for two correlations with one column of the same `n` samples.

    The difference of Fisher's z over its standard error, the covariance of the two taken at their mean correlation;
    `between` is the correlation of the two scores with each other.
    """
    _check(n, first, second, between)
    mean = (first + second) / 2
    rest = 1 - mean**2
    covariance = (between * (1 - 2 * mean**2) - mean**2 * (1 - 2 * mean**2 - between**2) / 2) / rest**2
    return _of_dependent(first, second, (2 - 2 * covariance) / (n - 3), alternative)


def meng_rosenthal_rubin_test(
    first: float, second: float, between: float, n: int, *, alternative: str = "two-sided"
) -> ZTest:
    """Meng, Rosenthal and Rubin's (1992, Eq. 1) Z for two correlations with one column of the same `n` samples."""
    _check(n, first, second, between)
    mean_square = (first**2 + second**2) / 2
    # Their f must not exceed 1: for such correlations the expansion it comes from no longer holds.
    factor = min(1.0, (1 - between) / (2 * (1 - mean_square)))
    height = (1 - factor * mean_square) / (1 - mean_square)
    variance = 2 * (1 - between) * height / (n - 3)
    return _of_dependent(first, second, variance, alternative)


def compare_correlations(
    first: Any, second: Any, human: Any, method: str = "spearman", *, signed: bool = False, resamples: int = 0,
    level: float = 0.95, generator: np.random.Generator | None = None,
) -> Comparison:  # fmt: skip
    """All tests of whether `first` or `second` correlates more strongly with `human`, on the same samples.

    Strengths are compared, as the paper does: a score that falls where people's frequency rises is turned around first.
    `signed` compares the coefficients as they are.
    """
    check_options(method, resamples, generator, level)
    *columns, y = as_pairs(first=first, second=second, human=human)
    coefficient = COEFFICIENTS[method]
    if not signed:
        columns = [-score if coefficient(score, y) < 0 else score for score in columns]
    strengths, between = [coefficient(score, y) for score in columns], coefficient(columns[0], columns[1])
    found = None
    if resamples and generator is not None:
        drawn = bootstrap_correlations(np.stack(columns), y, method, resamples=resamples, generator=generator)
        found = drawn.difference(0, 1, level=level)
    return compared(method, strengths[0], strengths[1], between, len(y), found)


def compared(
    method: str, first: float, second: float, between: float, n: int, interval: Interval | None = None
) -> Comparison:
    """The same from coefficients that are known already."""
    fisher = fisher_z_test(first, second, n)
    steiger = None if method == "kendall" else steiger_test(first, second, between, n)
    meng = None if method == "kendall" else meng_rosenthal_rubin_test(first, second, between, n)
    return Comparison(method, first, second, between, n, fisher, steiger, meng, interval)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values: below 0.05 after it, at most 5 % of such families hold a false one."""
    for p_value in p_values:
        if not 0 <= p_value <= 1:
            raise ValueError(f"p_values must lie in [0, 1]; got {p_value!r}")
    order, adjusted = np.argsort(p_values, kind="stable"), np.empty(len(p_values))
    times = np.arange(len(p_values), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, times * np.asarray(p_values)[order]))
    found: list[float] = adjusted.tolist()
    return found


def _of_dependent(first: float, second: float, variance: float, alternative: str) -> ZTest:
    """The difference over its standard error; of two scores that rank alike, both are nothing but rounding."""
    difference = math.atanh(first) - math.atanh(second)
    statistic = 0.0
    if abs(difference) >= 1e-12:
        statistic = difference / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, difference)
    return ZTest(statistic, normal_p(statistic, alternative))


def _check(n: int, first: float, second: float, between: float | None = None) -> None:
    if not n >= FEWEST_PAIRS:
        raise ValueError(f"n must be at least {FEWEST_PAIRS} pairs; got {n}")
    for name, value in (("first", first), ("second", second)):
        if not abs(value) < 1:
            raise ValueError(f"{name} must be a correlation in (-1, 1), where Fisher's z is finite; got {value!r}")
    if between is None:
        return
    if not abs(between) <= 1:
        raise ValueError(f"between must be a correlation in [-1, 1]; got {between!r}")
    # Three correlations of the same columns bound each other; past the bounds a test would be surest of all.
    middle, reach = first * second, math.sqrt((1 - first**2) * (1 - second**2))
    if abs(between - middle) > reach + _PRINTED:
        bounds = f"[{middle - reach:.3f}, {middle + reach:.3f}], as first and second leave it, all three signed"
        raise ValueError(f"between must lie in {bounds}; got {between!r}")


@dataclass(frozen=True)
class RankAgreement:
    """`matrix[i, j]` is the correlation of rankings i and j; `w` is Kendall's coefficient of concordance, in [0, 1].

    W is 1 where all rank alike and about 1 / (number of rankings) where they have nothing in common; `p_value` is that
    of the chi-squared approximation.
    """

    names: tuple[str, ...]
    method: str
    matrix: Float[np.ndarray, "rankings rankings"]
    w: float
    p_value: float
    n: int


def rank_agreement(
    scores: Mapping[str, Any], method: str = "spearman", *, matrix: Float[np.ndarray, "rankings rankings"] | None = None
) -> RankAgreement:
    """All correlations between named scores of the same samples, and Kendall's W over all of them, corrected for ties.

    Turn the scores one way first (larger is harder, say): W of two opposite rankings is 0. `matrix`: the correlations,
    where they are known already.
    """
    from scipy.special import chdtrc

    check_options(method)
    if len(scores) < 2:
        raise ValueError(f"scores must name at least 2 rankings to compare; got {len(scores)}")
    columns = as_pairs(**{str(name): values for name, values in scores.items()})
    matrix = correlation_matrix(columns, method) if matrix is None else matrix
    ranked = np.stack([ranks(column) for column in columns])
    rankings, samples = ranked.shape
    spread = float(((ranked.sum(0) - ranked.sum(0).mean()) ** 2).sum())
    tied = np.concatenate([np.unique(row, return_counts=True)[1] for row in ranked]).astype(np.float64)
    # 12 S / (m^2 (n^3 - n) - m T), T the sum of t^3 - t over all ties of t samples (Kendall and Smith, 1939).
    w = 12 * spread / (rankings**2 * (float(samples) ** 3 - samples) - rankings * float((tied**3 - tied).sum()))
    w = min(1.0, max(0.0, w))
    p_value = float(chdtrc(samples - 1, rankings * (samples - 1) * w))
    return RankAgreement(tuple(map(str, scores)), method, matrix, w, p_value, samples)
