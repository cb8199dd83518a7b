"""Coefficients of draws equal those of the samples drawn; intervals equal scipy's and hold the truth as they say."""

import statistics
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from hardsight.alignment import bootstrap_correlations, correlate
from hardsight.alignment.bootstrap import _coefficients, interval_of
from hardsight.alignment.correlation import COEFFICIENTS

METHODS = ("spearman", "pearson", "kendall")


@pytest.mark.parametrize("method", ["spearman", "pearson"])
@pytest.mark.parametrize("ties", [True, False])
def test_all_draws_at_once_say_the_same_as_each_draw_itself(
    method: str, ties: bool, make_columns: Callable, slow: dict
) -> None:
    score, human = make_columns(25, ties=ties)
    scores = np.stack([score, score**2])
    generator = np.random.default_rng(1)
    drawn = generator.integers(0, 25, (6, 25))
    found = _coefficients(scores, human, method, drawn)
    for at, row in enumerate(drawn):
        for which, values in enumerate(scores):
            assert found[which, at] == pytest.approx(slow[method](values[row], human[row]), abs=1e-12)


def test_a_resample_without_the_outlier_has_a_coefficient(make_columns: Callable, slow: dict) -> None:
    """A single value far out, as the odds of a sure network are: a third of the resamples do not hold it."""
    score, human = make_columns(25, ties=False)
    score[3] = 1e9
    drawn = np.random.default_rng(1).integers(0, 25, (20, 25))
    assert 3 < sum(3 not in row for row in drawn) < 17
    (found,) = _coefficients(score[None], human, "pearson", drawn)
    expected = [slow["pearson"](score[row], human[row]) for row in drawn]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_ranks_of_the_whole_are_not_ranks_of_a_resample(make_columns: Callable) -> None:
    """The shortcut of resampling fixed ranks differs, so the test above can fail."""
    score, human = make_columns(25)
    drawn = np.random.default_rng(1).integers(0, 25, 25)
    fixed = np.corrcoef(scipy.stats.rankdata(score)[drawn], scipy.stats.rankdata(human)[drawn])[0, 1]
    assert abs(fixed - COEFFICIENTS["spearman"](score[drawn], human[drawn])) > 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_the_same_bits_and_leaves_the_input(method: str, make_columns: Callable) -> None:
    score, human = make_columns(40)
    before = score.copy()
    options = {"resamples": 50, "method": method}
    first, again, other = (
        correlate(score, human, generator=np.random.default_rng(seed), **options) for seed in (5, 5, 6)
    )
    assert first == again
    assert first.interval != other.interval
    np.testing.assert_array_equal(score, before)


def test_intervals_are_scipys(make_columns: Callable) -> None:
    score, human = make_columns(80, ties=False)
    ours = correlate(score, human, resamples=9000, generator=np.random.default_rng(0)).interval

    def statistic(x: np.ndarray, y: np.ndarray) -> float:
        return COEFFICIENTS["spearman"](x, y)

    theirs = scipy.stats.bootstrap(
        (score, human), statistic, paired=True, vectorized=False, n_resamples=1500, method="bca",
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert ours.low == pytest.approx(theirs.low, abs=0.015)
    assert ours.high == pytest.approx(theirs.high, abs=0.015)
    assert (ours.level, ours.resamples) == (0.95, 9000)


@pytest.mark.parametrize("method", ["spearman", "pearson"])
def test_intervals_hold_the_truth_as_often_as_they_say(method: str) -> None:
    """Normal pairs with rho 0.6; 90 % intervals of 60 pairs, 200 times: 90 % +- 4 standard errors of 2.1 %."""
    truth = {"pearson": 0.6, "spearman": 6 / np.pi * np.arcsin(0.3)}[method]
    generator = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        x = generator.standard_normal(60)
        y = 0.6 * x + 0.8 * generator.standard_normal(60)
        found = correlate(x, y, method, resamples=250, level=0.9, generator=generator).interval
        held += found.low <= truth <= found.high
    assert 0.815 <= held / 200 <= 0.985


def test_scores_share_their_resamples(make_columns: Callable) -> None:
    """The difference of a score with itself is nothing in every resample; apart, it would not be."""
    score, human = make_columns(60)
    drawn = bootstrap_correlations(
        np.stack([score, score, -score]), human, resamples=100, generator=np.random.default_rng(0)
    )
    assert drawn.difference(0, 1).low == drawn.difference(0, 1).high == 0
    assert drawn.difference(0, 2).low > 0
    np.testing.assert_allclose(drawn.replicates[0], -drawn.replicates[2], atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_constant_resamples_are_left_out_and_counted(method: str) -> None:
    score, human = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.0, 0.0, 1.0])
    found = correlate(score, human, method, resamples=400, generator=np.random.default_rng(0)).interval
    # A quarter of draws in each of four never meets the last sample: (3/4)^4 of the resamples are constant, and more.
    assert 100 < found.resamples < 400 * (1 - 0.75**4) + 40
    assert -1 <= found.low <= found.high <= 1


def test_a_resample_that_rounding_leaves_a_spread_is_constant_all_the_same() -> None:
    """Squares and means of eight equal numbers differ in their last bits; that is no variance."""
    score, human = np.arange(8.0), np.array([0.1] * 7 + [0.7])
    found = correlate(score, human, "pearson", resamples=500, generator=np.random.default_rng(0)).interval
    drawn = np.random.default_rng(0).integers(0, 8, (500, 8))
    varies = [np.ptp(human[row]) > 0 and np.ptp(score[row]) > 0 for row in drawn]
    assert found.resamples == sum(varies) < 500


@pytest.mark.parametrize("order", ["as drawn", "by human", "by score"])
def test_the_order_of_the_rows_does_not_move_the_interval(order: str) -> None:
    """People agree on most images: whoever sorts a table puts all that matters into one block of the jackknife."""
    generator = np.random.default_rng(0)
    human = 1 - generator.exponential(0.1, 2000) ** 2
    score = human + generator.normal(0, 0.1, 2000)
    rows = {"as drawn": slice(None), "by human": np.argsort(human), "by score": np.argsort(score)}[order]
    score, human = score[rows], human[rows]
    drawn = bootstrap_correlations(score[None], human, "pearson", resamples=400, generator=generator)
    without = (np.delete(np.arange(2000), at) for at in range(2000))
    one_by_one = _coefficients(score[None], human, "pearson", without)[0]
    exact = interval_of(drawn.estimates[0], drawn.replicates[0], one_by_one, 0.95)
    found = drawn.interval()
    width = exact.high - exact.low
    assert abs(found.low - exact.low) < 0.06 * width
    assert abs(found.high - exact.high) < 0.06 * width


def test_bca_by_hand() -> None:
    """Efron, 1987: the tails moved by bias (ties with the estimate count half) and by the skewness of the jackknife."""
    replicates = np.random.default_rng(3).gamma(2.0, 0.1, 2000).round(2)
    left_out = np.array([0.1, 0.12, 0.11, 0.13, 0.1, 0.6])
    estimate, normal = 0.2, statistics.NormalDist()
    ties = int((replicates == estimate).sum())
    assert ties > 20
    bias = normal.inv_cdf((int((replicates < estimate).sum()) + ties / 2) / 2000)
    mean = sum(left_out) / 6
    cubes, squares = (sum((mean - value) ** power for value in left_out) for power in (3, 2))
    acceleration = cubes / (6 * squares**1.5)
    moved = [bias + normal.inv_cdf(tail) for tail in (0.05, 0.95)]
    tails = [normal.cdf(bias + one / (1 - acceleration * one)) for one in moved]
    # A spline through the ties would hide what the tails are: the replicates spread by less than their rounding.
    spread = replicates + np.linspace(0, 1e-9, 2000)
    spread[replicates == estimate] = estimate
    found = interval_of(estimate, spread, left_out, 0.9)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(spread, tails)), rel=1e-9)
    for wrong in (0.0, -acceleration):
        moved_wrongly = [normal.cdf(bias + one / (1 - wrong * one)) for one in moved]
        assert tuple(np.quantile(spread, moved_wrongly)) != pytest.approx((found.low, found.high), rel=1e-3)


def test_a_tail_that_the_acceleration_turns_around_is_the_whole_of_it() -> None:
    """Past its pole, z0 + z / (1 - a z) comes back from the other side, and the upper end would lie below the lower."""
    replicates = np.linspace(0.0, 1.0, 1001)
    one_decides = np.array([*[0.5] * 199, 0.0])
    found = interval_of(0.99, replicates, one_decides, 0.99999)
    assert 0.7 < found.low < found.high == 1.0
    turned = interval_of(0.01, replicates, 1 - one_decides, 0.99999)
    assert (turned.low, turned.high) == pytest.approx((0.0, 1 - found.low))


def test_degenerate_replicates() -> None:
    everything_one = interval_of(1.0, np.ones(10), np.ones(4), 0.95)
    assert (everything_one.low, everything_one.high) == (1, 1)
    nothing = interval_of(0.5, np.full(10, np.nan), np.ones(4), 0.95)
    assert np.isnan(nothing.low)
    assert nothing.resamples == 0
    with pytest.raises(ValueError, match="level must lie in"):
        correlate([1, 2, 3, 4], [1, 2, 3, 5], resamples=5, level=1.0, generator=np.random.default_rng(0))


def test_chunks_do_not_change_the_answer(make_columns: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    score, human = make_columns(300)
    whole = correlate(score, human, resamples=64, generator=np.random.default_rng(0))
    monkeypatch.setattr("hardsight.alignment.bootstrap._CHUNK", 1)
    assert correlate(score, human, resamples=64, generator=np.random.default_rng(0)) == whole


@pytest.mark.parametrize(
    ("scores", "options", "sentence"),
    [
        ([[1.0, 2.0, 3.0, 4.0], [1.0, np.nan, 3.0, 4.0]], {}, "score 1 must be finite; 1 of 4"),
        ([[1.0, 1.0, 1.0, 1.0]], {}, "score 0 must vary"),
        ([[1.0, 2.0, 3.0, 4.0]], {"resamples": -1}, "resamples must be a whole number"),
    ],
)
def test_what_cannot_be_resampled_is_refused(scores: list, options: dict, sentence: str) -> None:
    given = {"generator": np.random.default_rng(0), "resamples": 5} | options
    with pytest.raises(ValueError, match=sentence):
        bootstrap_correlations(np.array(scores), np.array([1.0, 2.0, 3.0, 5.0]), **given)
