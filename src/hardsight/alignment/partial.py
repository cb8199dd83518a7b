"""Partial correlation: what a score still says about people once correctness, or anything else, is known."""

from typing import Any

import numpy as np

from hardsight.alignment.coefficients import Correlation, correlation_matrix, normal_p, p_value_of
from hardsight.alignment.inputs import ALTERNATIVES, METHODS, as_pairs
from hardsight.names import check_name

# Smallest share of a column's variance that the others may leave over, before it counts as determined by them.
_DETERMINED = 1e-10


def partial_correlation(
    score: Any, human: Any, *covariates: Any, method: str = "spearman", alternative: str = "two-sided"
) -> Correlation:
    """Correlation of score and human with the covariates held fixed, from the inverse of the correlation matrix.

    For Pearson's this equals the correlation of what a linear regression on the covariates leaves over, for Spearman's
    the same on ranks; for one covariate it is (r_xy - r_xz r_yz) / sqrt((1 - r_xz^2)(1 - r_yz^2)), Kendall's included.
    Correctness is a covariate of zeros and ones. The p-value of Kendall's is the normal approximation for tau.
    """
    check_name("method", method, METHODS)
    check_name("alternative", alternative, ALTERNATIVES)
    if not covariates:
        raise ValueError("covariates must hold at least one column to control for; got none")
    named = {"covariate" if len(covariates) == 1 else f"covariate {at}": each for at, each in enumerate(covariates, 1)}
    columns = as_pairs(score=score, human=human, **named)
    samples, held = len(columns[0]), len(covariates)
    if samples < held + 4:
        raise ValueError(f"score must hold at least {held + 4} pairs to control for {held}; got {samples}")
    coefficient = _partial(columns, method, list(named))
    if method == "kendall":
        free = samples - held
        spread = np.sqrt(2 * (2 * free + 5) / (9 * free * (free - 1)))
        p_value = normal_p(coefficient / spread, alternative)
    else:
        p_value = p_value_of(coefficient, samples, covariates=held, alternative=alternative)
    return Correlation(method, coefficient, p_value, samples, alternative)


def _partial(columns: list[np.ndarray], method: str, names: list[str]) -> float:
    matrix = correlation_matrix(columns, method)
    if np.linalg.eigvalsh(matrix[2:, 2:])[0] < _DETERMINED:
        raise ValueError(f"{' and '.join(names)} must not determine one another; hold fewer of them fixed")
    # What the covariates leave of score and human: the Schur complement, whose inverse is the inverse's corner.
    rest = matrix[:2, :2] - matrix[:2, 2:] @ np.linalg.solve(matrix[2:, 2:], matrix[2:, :2])
    for at, name in enumerate(("score", "human")):
        if rest[at, at] < _DETERMINED:
            raise ValueError(f"{name} must not be determined by {' and '.join(names)}; nothing is left to correlate")
    return float(np.clip(rest[0, 1] / np.sqrt(rest[0, 0] * rest[1, 1]), -1.0, 1.0))
