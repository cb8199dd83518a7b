"""Plateaus and phases: known curves, laws, and rules that the laws reject."""

from collections.abc import Callable

import numpy as np
import pytest
from hardsight_studies.avh.phases import knot, ordered_share, phases, settling_time


def slow_settling(values: list[float], tolerance: float) -> int:
    span = max(values) - min(values)
    for time in range(1, len(values) + 1):
        if all(abs(later - values[-1]) <= tolerance * span for later in values[time - 1 :]):
            return time
    raise AssertionError


def test_settling_equals_a_slow_search() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        curve = generator.normal(size=generator.integers(1, 12)).cumsum()
        tolerance = float(generator.uniform(0, 0.6))
        assert settling_time(curve, tolerance) == slow_settling(curve.tolist(), tolerance)


def first_touch(values: list[float]) -> int:
    """Wrong: the first time near the last value, also of a curve that leaves it again."""
    span = max(values) - min(values)
    return next(at for at, value in enumerate(values, 1) if abs(value - values[-1]) <= 0.1 * span)


@pytest.mark.parametrize(("rule", "keeps_the_law"), [(settling_time, True), (first_touch, False)])
def test_a_curve_that_leaves_its_level_again_has_not_settled(
    rule: Callable[[list[float]], int], keeps_the_law: bool
) -> None:
    assert (rule([1.0, 0.1, 0.6, 0.5, 0.12, 0.1]) == 5) is keeps_the_law


def test_settling_does_not_depend_on_unit_or_level() -> None:
    curve = np.array([5.0, 3.0, 2.0, 1.2, 1.1, 1.0, 1.05])
    assert settling_time(curve) == settling_time(-40 * curve + 3) == 4
    assert settling_time([2.0, 2.0, 2.0]) == settling_time([7.0]) == 1


def test_a_broken_stick_is_found_exactly() -> None:
    times = np.arange(1, 21)
    curve = 3.0 - 0.4 * np.minimum(times, 7) - 0.01 * np.maximum(times - 7, 0)
    assert knot(curve) == 7
    assert knot(np.ones(6)) == 2


def test_phases_of_a_training_by_hand() -> None:
    curves = {
        "avh": [0.1, 0.06, 0.041, 0.04, 0.04, 0.04],
        "norm": [1.0, 1.0, 1.0, 2.0, 4.0, 8.0],
        "correct": [0.3, 0.6, 0.7, 0.8, 0.9, 0.85],
    }
    found = phases(curves)
    assert (found["plateau"], found["best_time"]) == (3, 5)
    assert found["accuracy_at_plateau"] == 0.7
    assert found["norm_growth_after"] == 7.0
    assert found["norm_rises"] == 0.6
    assert found["norm_rate_before"] == 0.0
    assert found["norm_rate_after"] == pytest.approx(np.log(2))
    assert found["avh_rate_before"] == pytest.approx(np.log(0.41) / 2)
    assert np.isnan(phases(curves | {"avh": [0.1] * 6})["avh_rate_before"])


def test_order_is_counted_over_groups_that_have_images() -> None:
    groups = [[3.0, 3.0], [None, None], [2.0, 4.0], [1.0, 1.0]]
    assert ordered_share(groups, falling=True) == 0.5
    assert ordered_share(groups, falling=False) == 0.0
    assert np.isnan(ordered_share([[1.0, 2.0]], falling=True))


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_what_is_no_curve_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"values .* at least 1"):
        settling_time(values)
