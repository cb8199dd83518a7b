"""The coefficients equal their definitions, with and without ties; p-values equal scipy's; bad input is refused."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch

from hardsight.alignment import correlate, p_value_of
from hardsight.alignment.correlation import COEFFICIENTS

METHODS = ("spearman", "pearson", "kendall")
SCIPY = {"spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr, "kendall": scipy.stats.kendalltau}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [4, 5, 17, 60])
@pytest.mark.parametrize("ties", [True, False])
def test_a_slow_loop_agrees(method: str, n: int, ties: bool, make_columns: Callable, slow: dict) -> None:
    score, human = make_columns(n, seed=n, ties=ties)
    found = correlate(score, human, method)
    assert found.coefficient == pytest.approx(slow[method](score, human), abs=1e-13)
    assert found.n == n


@pytest.mark.parametrize("method", METHODS)
def test_p_values_are_scipys(method: str, make_columns: Callable) -> None:
    for score, human in (make_columns(40), make_columns(9, ties=False), (-make_columns(40)[0], make_columns(40)[1])):
        found = correlate(score, human, method)
        assert found.p_value == pytest.approx(SCIPY[method](score, human).pvalue, rel=1e-9)


@pytest.mark.parametrize(("n", "critical"), [(5, 1.0), (6, 0.886), (7, 0.786), (8, 0.738)])
def test_few_pairs_have_the_exact_p_of_the_published_tables(n: int, critical: float) -> None:
    """The smallest |rho| that is significant at 5 %, two-sided, as tables of critical values print it."""
    generator = np.random.default_rng(0)
    found = [correlate(np.arange(n), generator.permutation(n)) for _ in range(30)] + [correlate(range(n), range(n))]
    significant = [abs(one.coefficient) for one in found if one.p_value <= 0.05]
    others = [abs(one.coefficient) for one in found if one.p_value > 0.05]
    assert min(significant) >= critical - 5e-4 > max(others)
    # In order or against it: two of all orders.
    assert found[-1].p_value == pytest.approx(2 / math.factorial(n))


def test_four_pairs_in_order_are_one_order_of_24() -> None:
    assert correlate([1, 2, 3, 4], [2, 4, 6, 9]).p_value == pytest.approx(2 / 24)
    # With a tie, two of the 24 orders are the same one.
    assert correlate([1, 2, 3, 4], [2, 4, 6, 6]).p_value == pytest.approx(4 / 24)


def _holds_laws(coefficient: Callable[[np.ndarray, np.ndarray], float], ranks: bool) -> bool:
    generator = np.random.default_rng(3)
    x, y = generator.standard_normal(50), generator.integers(0, 5, 50).astype(float)
    order = generator.permutation(50)
    value = coefficient(x, y)
    same = [coefficient(y, x), coefficient(x[order], y[order]), coefficient(3 * x + 7, y), -coefficient(-x, y)]
    same += [coefficient(np.exp(x), y)] if ranks else []
    return bool(np.allclose(same, value, atol=1e-12)) and abs(value) <= 1


@pytest.mark.parametrize("method", METHODS)
def test_laws(method: str) -> None:
    """Symmetric, blind to order, shift and scale, turned with the score; ranks are blind to any rising function."""
    assert _holds_laws(COEFFICIENTS[method], ranks=method != "pearson")


def test_the_laws_reject_wrong_coefficients() -> None:
    def ordinal_ranks(x: np.ndarray, y: np.ndarray) -> float:
        # Ties broken by position: depends on the order of the samples.
        return float(np.corrcoef(np.argsort(np.argsort(x)), np.argsort(np.argsort(y)))[0, 1])

    def product(x: np.ndarray, y: np.ndarray) -> float:
        return float((x * y).mean())

    assert not _holds_laws(ordinal_ranks, ranks=True)
    assert not _holds_laws(product, ranks=False)
    assert not _holds_laws(COEFFICIENTS["pearson"], ranks=True)


@pytest.mark.parametrize("method", METHODS)
def test_perfect_and_opposite(method: str) -> None:
    rising = np.arange(30.0)
    assert correlate(rising, rising, method).coefficient == 1
    opposite = correlate(rising, -rising, method)
    assert opposite.coefficient == -1
    assert opposite.p_value < 1e-20


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1e150, 1e308])
def test_extreme_values_stay_finite(method: str, scale: float, make_columns: Callable) -> None:
    score, human = make_columns(30, ties=False)
    usual = correlate(score / 10, human, method).coefficient
    assert correlate(score / 10 * scale, human, method).coefficient == pytest.approx(usual, abs=1e-9)


def test_binary_columns_tied_nearly_everywhere(slow: dict) -> None:
    """Two values only: the three coefficients are one and the same, phi."""
    score, human = np.array([0, 0, 0, 1, 1, 0, 1, 0.0]), np.array([0, 0, 1, 1, 1, 0, 0, 0.0])
    phi = (2 * 4 - 1 * 1) / (3 * 5 * 3 * 5) ** 0.5
    for method in METHODS:
        assert correlate(score, human, method).coefficient == pytest.approx(phi)
        assert slow[method](score, human) == pytest.approx(phi)


def test_tensors_lists_and_integers_are_columns() -> None:
    values = [3, 1, 2, 5, 4]
    human = [0.1, 0.4, 0.2, 0.9, 0.8]
    expected = correlate(values, human).coefficient
    assert correlate(torch.tensor(values), torch.tensor(human)).coefficient == pytest.approx(expected)
    half = torch.tensor(values, dtype=torch.bfloat16, requires_grad=True)
    assert correlate(half, human).coefficient == pytest.approx(expected)


def test_kendall_of_a_million_pairs() -> None:
    """n log n: by comparing all pairs this would take days. For normal pairs tau is 2/pi arcsin(rho)."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal(1_000_000)
    y = 0.6 * x + 0.8 * generator.standard_normal(1_000_000)
    found = correlate(x, y.round(2), "kendall")
    assert found.coefficient == pytest.approx(2 / np.pi * np.arcsin(0.6), abs=3e-3)


def test_the_papers_p_values() -> None:
    """AVH, Table 1: AVH and confidence far below 0.001, every entry of the norm's row "much higher than 0.05"."""
    counts = [29987, 837, 2732, 6541, 11066, 8811]
    assert sum(counts[1:]) == counts[0]
    norm = [0.0017, 0.0013, 0.0007, 0.0005, 0.0004, 0.0003]
    assert min(p_value_of(r, n) for r, n in zip(norm, counts, strict=True)) > 0.7
    for row in ([0.36, 0.228, 0.125, 0.124, 0.103, 0.094], [0.325, 0.192, 0.122, 0.102, 0.078, 0.056]):
        assert max(p_value_of(r, n) for r, n in zip(row, counts, strict=True)) < 1e-6


@pytest.mark.parametrize(
    ("score", "human", "sentence"),
    [
        ([0.5] * 6, [1, 2, 3, 4, 5, 6], "score must vary to be correlated; all 6 values are tied at 0.5"),
        ([1, 2, 3, 4, 5, 6], [1.0] * 6, "human must vary to be correlated; all 6 values are tied at 1"),
        ([0] * 6, [0] * 6, "score must vary"),
        ([1, 2, 3], [1, 2, 3], "score must hold at least 4 pairs to be correlated; got 3"),
        ([], [], "at least 4 pairs to be correlated; got 0"),
        (
            [1, 2, np.nan, 4, np.nan],
            [1, 2, 3, 4, 5],
            "score must be finite; 2 of 5 values are not, first nan at position 2",
        ),
        ([1, 2, 3, 4], [1, 2, 3, np.inf], "human must be finite; 1 of 4 values are not, first inf at position 3"),
        ([1, 2, 3, 4], [1, 2, 3, 4, 5], "human must have one value for each of score's 4; got 5"),
        ([[1, 2], [3, 4]], [1, 2], r"score must be one number per sample, of shape \[n\]; got shape \[2, 2\]"),
    ],
)
def test_bad_columns_are_one_sentence(score: list, human: list, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refusal:
        correlate(score, human)
    assert "\n" not in str(refusal.value)


def test_bad_arguments_are_one_sentence() -> None:
    rising = [1, 2, 3, 4]
    with pytest.raises(TypeError, match="score must hold numbers"):
        correlate(["a", "b", "c", "d"], rising)
    with pytest.raises(ValueError, match="method must be one of spearman, pearson, kendall; got 'cosine'"):
        correlate(rising, rising, "cosine")
    with pytest.raises(ValueError, match=r"generator must be a numpy\.random\.Generator"):
        correlate(rising, rising, resamples=10)
    with pytest.raises(ValueError, match="n must be at least 4 with 1 covariates; got 3"):
        p_value_of(0.5, 3, covariates=1)


def test_p_values_are_of_correlations() -> None:
    for wrong in (1.5, float("nan")):
        with pytest.raises(ValueError, match=r"coefficient must be a correlation in \[-1, 1\]"):
            p_value_of(wrong, 10)
