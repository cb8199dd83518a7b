"""Two humps of a score: counts where they are apart, nothing where there is one."""

import numpy as np
import pytest

from hardsight.cleaning import fit_two_humps
from hardsight.cleaning.estimate import SEPARATED


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


def test_posterior_equals_the_formula() -> None:
    values = humps(5.0)
    fitted = fit_two_humps(values)
    hard = fitted.upper
    # A fixed point of expectation-maximisation: the moments of the split give the split back.
    means = [np.average(values, weights=1 - hard), np.average(values, weights=hard)]
    variances = [np.average((values - m) ** 2, weights=w) for m, w in zip(means, (1 - hard, hard), strict=True)]
    weights = [(1 - hard).mean(), hard.mean()]
    again = np.empty(len(values))
    for at, value in enumerate(values):
        densities = [
            w / np.sqrt(v) * np.exp(-((value - m) ** 2) / (2 * v))
            for w, m, v in zip(weights, means, variances, strict=True)
        ]
        again[at] = densities[1] / sum(densities)
    np.testing.assert_allclose(again, hard, atol=1e-3)


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
