"""Partial correlation equals what regression leaves over, and the textbook formula for one covariate."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from hardsight.alignment import correlate, partial_correlation
from hardsight.alignment.correlation import COEFFICIENTS


@pytest.fixture
def correct() -> np.ndarray:
    return (np.random.default_rng(9).random(80) < 0.7).astype(float)


def _left_over(values: np.ndarray, *covariates: np.ndarray) -> np.ndarray:
    design = np.stack([np.ones_like(values), *covariates], 1)
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("count", [1, 2])
def test_regression_leaves_the_same(method: str, count: int, make_columns: Callable, correct: np.ndarray) -> None:
    score, human = make_columns(80)
    covariates = [correct, np.random.default_rng(3).standard_normal(80) + score][:count]
    found = partial_correlation(score, human, *covariates, method=method)
    columns = [score, human, *covariates]
    if method == "spearman":
        columns = [scipy.stats.rankdata(column) for column in columns]
    x, y = (_left_over(column, *columns[2:]) for column in columns[:2])
    r = float(x @ y / np.sqrt((x @ x) * (y @ y)))
    assert found.coefficient == pytest.approx(r, abs=1e-10)
    degrees = 80 - 2 - count
    t = r * np.sqrt(degrees / (1 - r**2))
    assert found.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t), degrees), rel=1e-8)


@pytest.mark.parametrize("method", ["pearson", "spearman", "kendall"])
def test_the_formula_for_one_covariate(method: str, make_columns: Callable, correct: np.ndarray) -> None:
    score, human = make_columns(80)
    coefficient = COEFFICIENTS[method]
    xy, xz, yz = coefficient(score, human), coefficient(score, correct), coefficient(human, correct)
    expected = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_correlation(score, human, correct, method=method).coefficient == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("method", ["pearson", "spearman", "kendall"])
def test_a_score_turned_around_turns_the_coefficient(method: str, make_columns: Callable, correct: np.ndarray) -> None:
    score, human = make_columns(80)
    plain = partial_correlation(score, human, correct, method=method)
    turned = partial_correlation(-score, human, correct, method=method)
    assert plain.coefficient > 0.1
    assert (turned.coefficient, turned.p_value) == pytest.approx((-plain.coefficient, plain.p_value), rel=1e-9)


def test_kendalls_p_value_is_that_of_tau_with_fewer_pairs(make_columns: Callable) -> None:
    """A tau of n - k pairs has the variance 2 (2 (n - k) + 5) / (9 (n - k) (n - k - 1)), k the covariates."""
    score, human = make_columns(12, ties=False)
    held = [np.random.default_rng(seed).standard_normal(12) for seed in (1, 2)]
    found = partial_correlation(score, human, *held, method="kendall")
    variance = 2 * (2 * 10 + 5) / (9 * 10 * 9)
    expected = 2 * scipy.stats.norm.sf(abs(found.coefficient) / np.sqrt(variance))
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_a_common_cause_explains_the_correlation_away() -> None:
    """Score and human share nothing but the covariate: correlated before, not after."""
    generator = np.random.default_rng(0)
    cause = generator.standard_normal(2000)
    score, human = cause + generator.standard_normal(2000), cause + generator.standard_normal(2000)
    assert correlate(score, human).p_value < 1e-50
    assert partial_correlation(score, human, cause).p_value > 0.01


def test_an_unrelated_covariate_changes_little(make_columns: Callable) -> None:
    score, human = make_columns(2000)
    noise = np.random.default_rng(5).standard_normal(2000)
    for method in ("pearson", "spearman", "kendall"):
        before = correlate(score, human, method).coefficient
        assert partial_correlation(score, human, noise, method=method).coefficient == pytest.approx(before, abs=0.01)


def test_refusals(make_columns: Callable) -> None:
    score, human = make_columns(20, ties=False)
    with pytest.raises(ValueError, match="covariates must hold at least one column"):
        partial_correlation(score, human)
    with pytest.raises(ValueError, match="covariate must vary to be correlated; all 20 values are tied at 1"):
        partial_correlation(score, human, np.ones(20))
    with pytest.raises(ValueError, match="score must not be determined by covariate; nothing is left"):
        partial_correlation(score, human, 2 * score + 1, method="pearson")
    with pytest.raises(ValueError, match="covariate 1 and covariate 2 must not determine one another"):
        partial_correlation(score, human, human**3, human**3)
    with pytest.raises(ValueError, match="at least 5 pairs to control for 1; got 4"):
        partial_correlation(score[:4], human[:4], [1, 2, 3, 5])
