"""The tests between correlations reproduce the AVH paper's tables and published examples, and keep their level."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from hardsight.alignment import (
    compare_correlations,
    correlate,
    fisher_z_test,
    holm,
    meng_rosenthal_rubin_test,
    steiger_test,
)

N = 29987
# AVH, Tables 6 to 9 (Table 2 prints ResNet-50's again): coefficient with AVH, with confidence, the z of both, Z, p.
PRINTED = {
    "AlexNet spearman": (0.339, 0.325, 0.352, 0.337, 1.92, 0.027),
    "AlexNet pearson": (0.324, 0.31, 0.336, 0.320, 1.90, 0.028),
    "AlexNet kendall": (0.244, 0.23, 0.249, 0.234, 1.81, 0.035),
    "VGG-19 spearman": (0.349, 0.335, 0.364, 0.348, 1.94, 0.026),
    "VGG-19 pearson": (0.358, 0.343, 0.374, 0.357, 2.09, 0.018),
    "VGG-19 kendall": (0.244, 0.229, 0.249, 0.233, 1.94, 0.026),
    "ResNet-50 spearman": (0.360, 0.325, 0.377, 0.337, 4.85, None),
    "ResNet-50 pearson": (0.385, 0.341, 0.406, 0.355, 6.2, None),
    "ResNet-50 kendall": (0.257, 0.231, 0.263, 0.235, 3.38, 0.0003),
    "DenseNet-121 pearson": (0.390, 0.347, 0.412, 0.362, 6.09, None),
    "DenseNet-121 kendall": (0.262, 0.234, 0.268, 0.238, 3.65, 0.0001),
}
MISPRINT = (0.367, 0.329, 0.4059, 0.355, 6.2)


@pytest.mark.parametrize("row", PRINTED)
def test_the_papers_rows(row: str) -> None:
    """Z to 0.01, the one-sided p to its last printed digit (the paper cuts digits off; ours stays within one unit)."""
    first, second, z_first, z_second, statistic, p_value = PRINTED[row]
    found = fisher_z_test(first, second, N, alternative="greater")
    assert abs(found.statistic - statistic) < 0.01
    assert math.atanh(first) == pytest.approx(z_first, abs=0.0012)
    assert math.atanh(second) == pytest.approx(z_second, abs=0.0012)
    if p_value is None:
        assert found.p_value < 0.00001
    else:
        unit = 0.0001 if p_value < 0.001 else 0.001
        assert abs(found.p_value - p_value) < unit


def test_the_twelfth_row_is_a_misprint() -> None:
    """DenseNet-121, Spearman: the printed z-scores are those of ResNet-50, Pearson, not of the coefficients beside."""
    first, second, z_first, z_second, statistic = MISPRINT
    found = fisher_z_test(first, second, N, alternative="greater")
    assert found.statistic == pytest.approx(5.30, abs=0.01)
    assert abs(found.statistic - statistic) > 0.85
    _, _, other_first, other_second, other_statistic, _ = PRINTED["ResNet-50 pearson"]
    assert (z_first, z_second, statistic) == pytest.approx((other_first, other_second, other_statistic), abs=2e-4)
    assert abs(math.atanh(first) - z_first) > 0.02


# Worked examples, as collected with their sources in the tests of the R package cocor (Diedenhofen and Musch, 2015).
@pytest.mark.parametrize(
    ("first", "second", "n_first", "n_second", "statistic"),
    [
        (0.92, 0.82, 60, 50, 2.19),  # Guilford and Fruchter, 1978, p. 164 (printed 2.18)
        (0.71, 0.28, 200, 78, 4.42),  # Glass and Stanley, 1970, p. 312 (printed 4.40)
        (0.657, 0.430, 62, 143, 2.11),  # Cohen et al., 2003, p. 49 (2.13 from two digits)
    ],
)
def test_fisher_published(first: float, second: float, n_first: int, n_second: int, statistic: float) -> None:
    assert round(fisher_z_test(first, second, n_first, n_second).statistic, 2) == statistic


def test_steiger_published() -> None:
    """Steiger, 1980, case A, p. 249: he prints -0.8913 from a covariance rounded to two digits."""
    assert steiger_test(0.4, 0.5, 0.1, 103).statistic == pytest.approx(-0.8887185, abs=5e-8)
    # Silver, Hittner and May, 2006 (the program depcor).
    found = steiger_test(0.3, 0.4, 0.5, 100)
    assert (round(found.statistic, 4), round(found.p_value, 4)) == (-1.0718, 0.2838)


def test_meng_rosenthal_rubin_published() -> None:
    """Meng, Rosenthal and Rubin, 1992, p. 173: Z = 1.68, one-sided p = 0.047; the interval of the difference of z."""
    found = meng_rosenthal_rubin_test(0.63, -0.03, -0.19, 15, alternative="greater")
    assert (round(found.statistic, 2), round(found.p_value, 3)) == (1.68, 0.047)
    difference = math.atanh(0.63) - math.atanh(-0.03)
    half = scipy.stats.norm.ppf(0.975) * difference / found.statistic
    assert (round(difference - half, 3), round(difference + half, 3)) == (-0.129, 1.672)
    # Silver, Hittner and May, 2006.
    found = meng_rosenthal_rubin_test(0.3, 0.4, 0.5, 100)
    assert (round(found.statistic, 4), round(found.p_value, 4)) == (-1.0707, 0.2843)


@pytest.mark.parametrize(
    ("first", "second", "row"),
    [
        (0.5, 0.2, [1.62, 1.70, 1.80, 1.91, 2.06, 2.24, 2.50, 2.87, 3.50]),
        (0.7, 0.4, [2.03, 2.10, 2.20, 2.32, 2.47, 2.66, 2.94, 3.35, 4.05]),
    ],
)
def test_meng_rosenthal_rubin_tabled(first: float, second: float, row: list[float]) -> None:
    """May and Hittner, 1997: Z of 50 samples for correlations of the two scores from 0 to 0.8."""
    found = [meng_rosenthal_rubin_test(first, second, between / 10, 50).statistic for between in range(9)]
    assert found == pytest.approx(row, abs=0.0055)


def test_meng_rosenthal_rubin_of_opposite_scores() -> None:
    """Their f is at most 1 (1992, below Eq. 1): h is then 1, the variance of z that of Fisher's without the rest."""
    first, second, between, n = 0.3, 0.1, -0.91, 103
    assert (1 - between) / (2 - first**2 - second**2) > 1
    expected = (math.atanh(first) - math.atanh(second)) * math.sqrt((n - 3) / (2 * (1 - between)))
    assert meng_rosenthal_rubin_test(first, second, between, n).statistic == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_dependent_tests_keep_their_level(method: str) -> None:
    """Two scores that follow people equally and resemble each other: 5 % of 600 draws are called different.

    Fisher's test calls too few, because it takes the two correlations for independent.
    """
    generator = np.random.default_rng(0)
    covariance = np.array([[1, 0.8, 0.5], [0.8, 1, 0.5], [0.5, 0.5, 1]])
    draws = generator.multivariate_normal(np.zeros(3), covariance, (600, 80))
    called = {"steiger": 0, "meng": 0, "fisher": 0}
    for first, second, human in draws.transpose(0, 2, 1):
        found = compare_correlations(first, second, human, method, signed=True)
        for name in called:
            called[name] += getattr(found, name).p_value < 0.05
    # Four standard errors of a share of 5 % in 600 are 3.6 %.
    assert 8 < called["steiger"] < 52
    assert 8 < called["meng"] < 52
    assert called["fisher"] < 5


def test_a_comparison_says_what_its_parts_say(make_columns: Callable) -> None:
    score, human = make_columns(200)
    other = score + np.random.default_rng(1).standard_normal(200)
    found = compare_correlations(score, other, human, resamples=200, generator=np.random.default_rng(0))
    first, second, between = (correlate(*pair).coefficient for pair in ((score, human), (other, human), (score, other)))
    assert (found.first, found.second, found.between) == pytest.approx((first, second, between))
    assert found.fisher == fisher_z_test(first, second, 200)
    assert found.steiger == steiger_test(first, second, between, 200)
    assert found.meng == meng_rosenthal_rubin_test(first, second, between, 200)
    assert found.interval.low < first - second < found.interval.high


def test_strengths_are_compared_unless_signs_are_asked_for(make_columns: Callable) -> None:
    """A hardness and a confidence point opposite ways; what is compared is how far each follows people."""
    score, human = make_columns(100)
    other = score + np.random.default_rng(1).standard_normal(100)
    plain, turned = compare_correlations(score, other, human), compare_correlations(-score, other, human)
    assert turned == plain
    assert compare_correlations(-score, other, human, signed=True).fisher.statistic < -5


def test_swapping_the_scores_turns_the_statistic() -> None:
    for test in (steiger_test, meng_rosenthal_rubin_test):
        there, back = test(0.4, 0.2, 0.3, 90), test(0.2, 0.4, 0.3, 90)
        assert there.statistic == pytest.approx(-back.statistic)
        assert there.p_value == pytest.approx(back.p_value)
        greater, less = (test(0.4, 0.2, 0.3, 90, alternative=side).p_value for side in ("greater", "less"))
        assert greater + less == pytest.approx(1)
        assert greater == pytest.approx(there.p_value / 2)
        # The more alike the scores, the surer a difference between them.
        assert test(0.4, 0.2, 0.8, 90).statistic > there.statistic


def test_a_score_against_itself(make_columns: Callable) -> None:
    score, human = make_columns(50)
    found = compare_correlations(score, score, human)
    assert (found.steiger.statistic, found.meng.statistic, found.fisher.p_value) == (0, 0, 1)
    # The same ranking by another formula, a loss for a confidence.
    found = compare_correlations(score, np.exp(score), human)
    assert (found.between, found.steiger.statistic, found.meng.p_value) == (1, 0, 1)


def test_kendall_has_an_interval_instead(make_columns: Callable) -> None:
    score, human = make_columns(60)
    other = np.random.default_rng(1).standard_normal(60)
    found = compare_correlations(score, other, human, "kendall", resamples=200, generator=np.random.default_rng(0))
    assert found.steiger is None
    assert found.meng is None
    assert found.interval.low > 0


def test_without_resamples_there_is_no_interval(make_columns: Callable) -> None:
    score, human = make_columns(60)
    generator = np.random.default_rng(0)
    assert compare_correlations(score, human + score, human, generator=generator).interval is None
    assert correlate(score, human, generator=generator).interval is None


def test_holm_by_hand() -> None:
    """0.01 x 3, then 0.02 x 2, and 0.03 is raised to the one before it."""
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_refusals() -> None:
    with pytest.raises(
        ValueError, match=r"first must be a correlation in \(-1, 1\), where Fisher's z is finite; got 1.0"
    ):
        fisher_z_test(1.0, 0.5, 50)
    # Strengths without their signs, beside a correlation with its own: no three columns have these.
    for test in (steiger_test, meng_rosenthal_rubin_test):
        with pytest.raises(
            ValueError, match=r"between must lie in \[-0.765, 0.999\], as first and second .*; got -0.9"
        ):
            test(0.360, 0.325, -0.9, 10_000)
        # Numbers of two digits may be past the end by their rounding.
        assert test(0.9, 0.5, 0.06, 30).p_value < 0.05
    with pytest.raises(ValueError, match=r"between must be a correlation in \[-1, 1\]; got nan"):
        steiger_test(0.5, 0.4, math.nan, 50)
    with pytest.raises(ValueError, match="n must be at least 4 pairs; got 3"):
        meng_rosenthal_rubin_test(0.5, 0.4, 0.1, 3)
    for n_first, n_second in ((3, 50), (50, 3)):
        with pytest.raises(ValueError, match="n must be at least 4 pairs; got 3"):
            fisher_z_test(0.5, 0.4, n_first, n_second)
    with pytest.raises(ValueError, match="second must vary"):
        compare_correlations([1, 2, 3, 4], [1, 1, 1, 1], [1, 3, 2, 4])


def test_p_values_that_are_none_are_refused() -> None:
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"p_values must lie in \[0, 1\]"):
            holm([0.5, wrong])


def test_a_perfect_kendall_is_exactly_one_and_has_no_z() -> None:
    values = np.arange(6.0)
    assert correlate(values, values, "kendall").coefficient == 1
    assert correlate(values, -values, "kendall").coefficient == -1
    with pytest.raises(ValueError, match="where Fisher's z is finite"):
        compare_correlations(values, values[[1, 0, 2, 3, 5, 4]], values, "kendall")
