"""Three coefficients, their p-values, partial correlation, and scores turned to agree with people."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.inputs import Values, as_pairs, check_options
from hardsight.names import check_name

# Up to so many pairs all orders are looked through: 8! = 40,320.
MOST_EXACT = 8
# Within this of 1, a million products of float64 cannot be distinguished from a perfect correlation.
_PERFECT = 1e-13


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval: `resamples` counts those that had a coefficient (a constant resample has none)."""

    low: float
    high: float
    level: float
    resamples: int


@dataclass(frozen=True)
class Correlation:
    """A coefficient in [-1, 1], its p-value against no correlation, and the number of pairs."""

    method: str
    coefficient: float
    p_value: float
    n: int
    interval: Interval | None = None


def whole(coefficient: float) -> float:
    """1 or -1 for what differs from it by rounding: which side it falls on, and a z made of it, would mean nothing."""
    return math.copysign(1.0, coefficient) if abs(coefficient) > 1 - _PERFECT else coefficient


def pearson(x: Values, y: Values) -> float:
    """Covariance over the product of the standard deviations, in [-1, 1]."""
    return whole(float(unit_deviations(x) @ unit_deviations(y)))


def spearman(x: Values, y: Values) -> float:
    """Pearson's coefficient of the ranks, ties at their mean rank; in [-1, 1]."""
    return pearson(ranks(x), ranks(y))


def kendall(x: Values, y: Values) -> float:
    """Kendall's tau-b: concordant less discordant pairs, over the pairs not tied in x and in y; in O(n log n)."""
    from scipy.stats import kendalltau

    # With "auto", scipy would enumerate permutations for a p-value that nobody asks for here.
    return whole(float(kendalltau(x, y, method="asymptotic").statistic))


COEFFICIENTS = {"spearman": spearman, "pearson": pearson, "kendall": kendall}


def correlation_matrix(columns: Sequence[Values], method: str) -> Float[np.ndarray, "columns columns"]:
    """The coefficient of every two columns; 1 on the diagonal. A column is ranked once, not once for each other."""
    matrix = np.eye(len(columns))
    units = [] if method == "kendall" else [unit_deviations(ranks(x) if method == "spearman" else x) for x in columns]
    for column, row in itertools.combinations(range(len(columns)), 2):
        found = whole(float(units[row] @ units[column])) if units else kendall(columns[row], columns[column])
        matrix[row, column] = matrix[column, row] = found
    return matrix


def ranks(values: Values) -> Values:
    """Ranks from 1, ties at their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values))


def unit_deviations(values: Values) -> Values:
    """Deviations from the mean, scaled to length one; scaling first keeps huge and tiny values in range."""
    scaled = values / max(np.abs(values).max(), np.finfo(np.float64).tiny)
    deviations = scaled - scaled.mean()
    deviations /= np.abs(deviations).max()
    unit: Values = deviations / np.linalg.norm(deviations)
    return unit


def p_value_of(coefficient: float, n: int, *, covariates: int = 0) -> float:
    """Probability of a coefficient so far from zero, of products or of ranks, from `n` uncorrelated pairs: Student's t.

    t = r sqrt(d / (1 - r^2)) with d = n - 2 degrees of freedom, one fewer for each covariate that is controlled for.
    """
    from scipy.special import stdtr

    if not abs(coefficient) <= 1:
        raise ValueError(f"coefficient must be a correlation in [-1, 1]; got {coefficient!r}")
    degrees = n - 2 - covariates
    if degrees < 1:
        raise ValueError(f"n must be at least {covariates + 3} with {covariates} covariates; got {n}")
    rest = (1 - coefficient) * (1 + coefficient)
    t = np.inf * np.sign(coefficient) if rest <= 0 else coefficient * np.sqrt(degrees / rest)
    return min(1.0, 2 * float(stdtr(degrees, -abs(t))))


def exact_spearman_p(x: Values, y: Values) -> float:
    """The share of all orders of y whose rank correlation with x is at least as far from zero; ties stay ties."""
    first, second = unit_deviations(ranks(x)), unit_deviations(ranks(y))
    # Orders that tie with the one found must count, whatever rounding says of them.
    return float((abs(second[_orders(len(y))] @ first) >= abs(second @ first) - 1e-9).mean())


@functools.cache
def _orders(n: int) -> np.ndarray:
    return np.array(list(itertools.permutations(range(n))), np.int8)


def normal_p(statistic: float, alternative: str = "two-sided") -> float:
    """The p-value of a statistic that is standard normal; "greater" and "less" ask about one side."""
    from scipy.special import ndtr

    check_name("alternative", alternative, ("two-sided", "greater", "less"))
    if alternative == "two-sided":
        return min(1.0, 2 * float(ndtr(-abs(statistic))))
    return float(ndtr(-statistic if alternative == "greater" else statistic))


# Smallest share of a column's variance that the others may leave over, before it counts as determined by them.
_DETERMINED = 1e-10


def partial_correlation(score: Any, human: Any, *covariates: Any, method: str = "spearman") -> Correlation:
    """Correlation of score and human with the covariates held fixed, from the inverse of the correlation matrix.

    For Pearson's this equals the correlation of what a linear regression on the covariates leaves over, for Spearman's
    the same on ranks; for one covariate it is (r_xy - r_xz r_yz) / sqrt((1 - r_xz^2)(1 - r_yz^2)), Kendall's included.
    Correctness is a covariate of zeros and ones. The p-value of Kendall's is the normal approximation for tau.
    """
    check_options(method)
    if not covariates:
        raise ValueError("covariates must hold at least one column to control for; got none")
    named = {"covariate" if len(covariates) == 1 else f"covariate {at}": each for at, each in enumerate(covariates, 1)}
    columns = as_pairs(score=score, human=human, **named)
    samples, held = len(columns[0]), len(covariates)
    if samples < held + 4:
        raise ValueError(f"score must hold at least {held + 4} pairs to control for {held}; got {samples}")
    matrix = correlation_matrix(columns, method)
    if np.linalg.eigvalsh(matrix[2:, 2:])[0] < _DETERMINED:
        raise ValueError(f"{' and '.join(named)} must not determine one another; hold fewer of them fixed")
    # What the covariates leave of score and human: the Schur complement, whose inverse is the inverse's corner.
    rest = matrix[:2, :2] - matrix[:2, 2:] @ np.linalg.solve(matrix[2:, 2:], matrix[2:, :2])
    for at, name in enumerate(("score", "human")):
        if rest[at, at] < _DETERMINED:
            raise ValueError(f"{name} must not be determined by {' and '.join(named)}; nothing is left to correlate")
    coefficient = float(np.clip(rest[0, 1] / np.sqrt(rest[0, 0] * rest[1, 1]), -1.0, 1.0))
    if method == "kendall":
        free = samples - held
        spread = np.sqrt(2 * (2 * free + 5) / (9 * free * (free - 1)))
        p_value = normal_p(coefficient / spread)
    else:
        p_value = p_value_of(coefficient, samples, covariates=held)
    return Correlation(method, coefficient, p_value, samples)


@dataclass(frozen=True)
class Column:
    """A named column, and whether larger means "harder" or "easier"; None where nobody wrote it down."""

    name: str
    values: Any
    direction: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class Turned:
    """Scores that all point the way of the human column; `around` says which had to be multiplied by -1."""

    names: tuple[str, ...]
    scores: Float[np.ndarray, "scores samples"]
    around: tuple[bool, ...]
    human: Float[np.ndarray, "samples"]

    def given(self, at: int) -> Float[np.ndarray, "samples"]:
        """A score as it was given."""
        score: Values = -self.scores[at] if self.around[at] else self.scores[at]
        return score


def turn(scores: Sequence[Column], human: Column, method: str = "spearman") -> Turned:
    """Turn scores by their direction, or to the side they lean to by this coefficient.

    A human column without a direction is taken as "easier".
    """
    if not scores:
        raise ValueError("scores must hold at least one column; got none")
    names = tuple(score.name for score in scores)
    if len(set(names)) < len(names):
        raise ValueError(f"scores must have different names; got {', '.join(names)}")
    for column in (*scores, human):
        if column.direction not in (None, "harder", "easier"):
            raise ValueError(f"direction must be harder, easier or None; for {column.name!r} got {column.direction!r}")
    turned, around = [], []
    for score in scores:
        x, y = as_pairs(**{f"score {score.name!r}": score.values, f"human column {human.name!r}": human.values})
        if score.direction is None:
            around.append(COEFFICIENTS[method](x, y) < 0)
        else:
            around.append(score.direction != (human.direction or "easier"))
        turned.append(-x if around[-1] else x)
    return Turned(names, np.stack(turned), tuple(around), y)
