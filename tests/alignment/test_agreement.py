"""Rank agreement: the matrix is pairwise correlation, W a function of its mean, and both know perfect agreement."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from hardsight.alignment import correlate, correlation, rank_agreement


def test_entries_are_correlations(make_columns: Callable) -> None:
    scores = dict(zip("abc", (*make_columns(50), make_columns(50, seed=4)[0]), strict=True))
    for method in ("spearman", "pearson", "kendall"):
        found = rank_agreement(scores, method)
        assert found.names == ("a", "b", "c")
        np.testing.assert_array_equal(np.diag(found.matrix), 1)
        np.testing.assert_array_equal(found.matrix, found.matrix.T)
        assert found.matrix[0, 2] == correlate(scores["a"], scores["c"], method).coefficient


def test_each_column_is_ranked_once(make_columns: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million samples that takes a second, and thirty scores make 435 pairs."""
    columns, ranked, ranks = [make_columns(20, seed=seed)[0] for seed in range(6)], [], correlation.ranks
    monkeypatch.setattr(correlation, "ranks", lambda values: ranked.append(values) or ranks(values))
    matrix = correlation.correlation_matrix(columns, "spearman")
    assert len(ranked) == len(columns)
    assert matrix[4, 1] == correlation.spearman(columns[4], columns[1])


def test_w_follows_from_the_mean_rank_correlation(make_columns: Callable) -> None:
    """Without ties, mean rho = (m W - 1) / (m - 1) exactly; a W not divided by m^2 would miss it."""
    generator = np.random.default_rng(0)
    cause = generator.standard_normal(40)
    found = rank_agreement({name: cause + generator.standard_normal(40) for name in "abcd"})
    mean = found.matrix[np.triu_indices(4, 1)].mean()
    assert mean == pytest.approx((4 * found.w - 1) / 3, abs=1e-12)


def test_w_with_ties_by_friedman() -> None:
    """Friedman's statistic, corrected for ties, is m (n - 1) W."""
    scores = np.random.default_rng(1).integers(0, 4, (3, 12)).astype(float)
    found = rank_agreement(dict(zip("abc", scores, strict=True)))
    theirs = scipy.stats.friedmanchisquare(*scores.T)
    assert 3 * 11 * found.w == pytest.approx(theirs.statistic)
    assert found.p_value == pytest.approx(theirs.pvalue)


def test_perfect_and_opposite() -> None:
    rising = np.arange(10.0)
    assert rank_agreement({"a": rising, "b": np.exp(rising), "c": rising**3}).w == pytest.approx(1)
    assert rank_agreement({"a": rising, "b": -rising}).w == pytest.approx(0)
    with pytest.raises(ValueError, match="at least 2 rankings to compare; got 1"):
        rank_agreement({"a": rising})
    with pytest.raises(ValueError, match="b must vary"):
        rank_agreement({"a": rising, "b": rising * 0})
