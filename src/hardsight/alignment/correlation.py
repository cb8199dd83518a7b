"""`correlate`: how strongly a score follows what people see, with a p-value and a bootstrap interval."""

from typing import Any

import numpy as np

from hardsight.alignment.bootstrap import KINDS, bootstrap_correlations
from hardsight.alignment.coefficients import COEFFICIENTS, MOST_EXACT, Correlation, exact_spearman_p, p_value_of, whole
from hardsight.alignment.inputs import ALTERNATIVES, METHODS, as_pairs, check_resampling
from hardsight.names import check_name


def correlate(
    score: Any,
    human: Any,
    method: str = "spearman",
    *,
    alternative: str = "two-sided",
    resamples: int = 0,
    level: float = 0.95,
    interval: str = "bca",
    generator: np.random.Generator | None = None,
) -> Correlation:
    """Spearman's, Pearson's or Kendall's (tau-b) coefficient of two columns, in [-1, 1].

    The p-value is Student's t, but for Spearman's of at most 8 pairs, where it is exact, and for Kendall's, where it is
    scipy's (exact for few pairs without ties). With `resamples`, a "bca" or "percentile" interval from that many draws
    of whole pairs; `generator` must then be given.

    >>> correlate([1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 5, 6], "kendall").coefficient
    0.7333333333333333
    """
    check_name("method", method, METHODS)
    check_name("alternative", alternative, ALTERNATIVES)
    check_name("interval", interval, KINDS)
    check_resampling(resamples, level, generator)
    x, y = as_pairs(score=score, human=human)
    coefficient, p_value = _tested(x, y, method, alternative)
    found = None
    if resamples and generator is not None:
        drawn = bootstrap_correlations(x[None], y, method, resamples=resamples, generator=generator)
        found = drawn.interval(level=level, kind=interval)
    return Correlation(method, coefficient, p_value, len(x), alternative, found)


def _tested(x: np.ndarray, y: np.ndarray, method: str, alternative: str) -> tuple[float, float]:
    """The coefficient and its p-value."""
    if method == "kendall":
        from scipy.stats import kendalltau

        # Both at once: of a million pairs each takes seconds.
        found = kendalltau(x, y, alternative=alternative)
        return whole(float(found.statistic)), float(found.pvalue)
    coefficient = COEFFICIENTS[method](x, y)
    if method == "spearman" and len(x) <= MOST_EXACT:
        return coefficient, exact_spearman_p(x, y, alternative)
    return coefficient, p_value_of(coefficient, len(x), alternative=alternative)
