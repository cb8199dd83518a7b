"""Two humps of a score: counts where they are apart, nothing where there is one."""

import numpy as np
import pytest

from hardsight.cleaning import fit_two_humps
from hardsight.cleaning.confident import SEPARATED


def humps(apart: float, wrong: int = 80, right: int = 920) -> np.ndarray:
    generator = np.random.default_rng(4)
    return np.concatenate([generator.normal(0, 1, right), generator.normal(apart, 1, wrong)])


def test_counts_the_harder_hump() -> None:
    fitted = fit_two_humps(humps(8.0))
    assert fitted.count == 80
    assert fitted.separation > 5
    np.testing.assert_array_less(fitted.upper[:920], 0.5)
    assert (fitted.upper[920:] > 0.5).all()


@pytest.mark.parametrize("seed", range(4))
def test_one_hump_skewed_or_not_is_not_cut_in_two(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for values in (generator.normal(0, 1, 2000), generator.gamma(2.0, 1.0, 2000)):
        fitted = fit_two_humps(values)
        # The fit itself always finds a second component: it is the separation that tells.
        assert (fitted.upper > 0.5).sum() > 0
        assert fitted.separation < SEPARATED
        assert fitted.count == 0


def test_separation_by_loops() -> None:
    values = humps(6.0)
    fitted = fit_two_humps(values)
    means, variances = [], []
    for shares in (1 - fitted.upper, fitted.upper):
        mass = sum(shares)
        mean = sum(share * value for share, value in zip(shares, values, strict=True)) / mass
        means.append(mean)
        variances.append(sum(share * (value - mean) ** 2 for share, value in zip(shares, values, strict=True)) / mass)
    expected = np.sqrt(2) * (means[1] - means[0]) / np.sqrt(variances[0] + variances[1])
    assert fitted.separation == pytest.approx(expected)


def test_scale_and_shift_do_not_count() -> None:
    values = humps(6.0)
    assert fit_two_humps(1e-6 * values + 40).count == fit_two_humps(values).count


@pytest.mark.parametrize("values", [[1.0], [2.0] * 50, [0.0, 1.0, 1.0], [np.nan, np.inf, 1.0]])
def test_too_little_to_see_humps(values: list[float]) -> None:
    fitted = fit_two_humps(np.array(values))
    assert fitted.count == 0
    np.testing.assert_array_equal(np.isnan(fitted.upper), ~np.isfinite(values))


def test_missing_scores_stay_missing() -> None:
    values = humps(8.0)
    values[[3, 950]] = np.nan
    fitted = fit_two_humps(values)
    assert fitted.count == 79
    assert np.isnan(fitted.upper[[3, 950]]).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_flat_or_a_rising_hump_is_not_cut_in_two(seed: int) -> None:
    """Ashman's D of a flat hump cut in half is 3.5: it does not see that nothing lies between."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(4000, 10)) + 3 * np.eye(10)[np.zeros(4000, int)]
    beliefs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    errors = np.linalg.norm(beliefs - np.eye(10)[0], axis=1)
    for values in (np.linspace(0, 1, 3000), generator.beta(2, 1, 3000), errors):
        assert fit_two_humps(values).count == 0


def test_few_samples_far_apart_are_seen() -> None:
    values = np.r_[np.linspace(0, 0.1, 16), np.linspace(1, 1.1, 4)]
    assert fit_two_humps(values).count == 4


def test_what_chance_makes_of_a_flat_hump_is_rarely_taken_for_a_valley() -> None:
    """Of one flat hump the emptiest of many places is always rather empty; half of such sets were cut in two."""
    for samples in (20, 40, 100, 1000):
        drawn = [np.random.default_rng(seed).random(samples) for seed in range(40)]
        assert sum(fit_two_humps(values).count > 0 for values in drawn) <= 4, samples


def test_humps_that_touch_are_seen_where_the_samples_are_many() -> None:
    for apart, wrong, right in ((4.0, 200, 200), (4.0, 400, 1600), (6.0, 40, 360), (8.0, 20, 380)):
        found = fit_two_humps(humps(apart, wrong, right)).count
        assert found == pytest.approx(wrong, rel=0.15), (apart, wrong, right)
