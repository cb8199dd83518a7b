"""Resamples of a part of very many samples tell the spread that resamples of all of them have."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from hardsight.alignment import bootstrap, bootstrap_correlations
from hardsight.alignment.correlation import COEFFICIENTS

RANKS = ("spearman", "kendall")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 1,000 samples are very many, and 250 are a part."""
    monkeypatch.setattr(bootstrap, "MOST_WHOLE", 1000)
    monkeypatch.setattr(bootstrap, "PART", 250)


def draw(scores: np.ndarray, human: np.ndarray, method: str, resamples: int = 400, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return bootstrap_correlations(scores, human, method, resamples=resamples, generator=generator).replicates


@pytest.mark.parametrize("method", RANKS)
@pytest.mark.parametrize("ties", [True, False])
def test_the_spread_is_that_of_the_whole(
    method: str, ties: bool, make_columns: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, human = make_columns(1500, ties=ties)
    whole = draw(score[None], human, method)
    monkeypatch.setattr(bootstrap, "MOST_WHOLE", 1000)
    monkeypatch.setattr(bootstrap, "PART", 250)
    part = draw(score[None], human, method)
    assert part.std() == pytest.approx(whole.std(), rel=0.15)
    assert part.mean() == pytest.approx(whole.mean(), abs=whole.std() / 5)
    # What the parts say themselves is sqrt(6) times as wide: the law rejects it.
    estimate = COEFFICIENTS[method](score, human)
    assert (estimate + (part - estimate) * 6**0.5).std() != pytest.approx(whole.std(), rel=0.15)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", RANKS)
def test_intervals_hold_the_truth_as_often_as_they_say(method: str) -> None:
    """Of normal values with correlation 0.6, Spearman's and Kendall's coefficients are known."""
    truth = {"spearman": 6 / np.pi * np.arcsin(0.3), "kendall": 2 / np.pi * np.arcsin(0.6)}[method]
    generator, held = np.random.default_rng(4), 0
    for _ in range(60):
        x, noise = generator.standard_normal((2, 1200))
        y = 0.6 * x + 0.8 * noise
        drawn = bootstrap_correlations(x[None], y, method, resamples=40, generator=generator)
        interval = drawn.interval(level=0.9)
        held += interval.low <= truth <= interval.high
    assert 48 <= held <= 59


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", RANKS)
def test_scores_share_their_draws_and_a_seed_gives_the_same_bits(method: str, make_columns: Callable) -> None:
    score, human = make_columns(1500, ties=True)
    found = draw(np.stack([score, 2 * score + 1]), human, method, 20)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found, draw(np.stack([score, 2 * score + 1]), human, method, 20))
    assert len(np.unique(found[0])) > 10


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", RANKS)
def test_a_resample_costs_what_a_part_costs(
    method: str, make_columns: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, human = make_columns(1500, ties=True)
    sizes, coefficients = [], bootstrap._coefficients

    def watched(scores: np.ndarray, human: np.ndarray, method: str, draws: Iterable[np.ndarray]) -> np.ndarray:
        return coefficients(scores, human, method, (sizes.append(len(rows)) or rows for rows in draws))

    monkeypatch.setattr(bootstrap, "_coefficients", watched)
    draw(score[None], human, method, 20)
    assert sizes == [250] * 20


@pytest.mark.usefixtures("small")
def test_what_a_part_may_miss_is_drawn_whole(make_columns: Callable) -> None:
    score, human = make_columns(1500, ties=True)
    rare = (np.arange(1500) % 100 == 0).astype(float)
    assert bootstrap.drawn_in_parts("spearman", human, score)
    assert not bootstrap.drawn_in_parts("pearson", human, score)
    assert not bootstrap.drawn_in_parts("spearman", human, rare)
    assert not bootstrap.drawn_in_parts("spearman", human[:1000], score[:1000])
    assert np.isfinite(draw(rare[None], human, "spearman", 20)).all()
