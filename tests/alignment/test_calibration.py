"""Calibration error against a loop, and the law that errors of both kinds do not cancel."""

from collections.abc import Callable

import numpy as np
import pytest

from hardsight.alignment import expected_calibration_error


def by_loop(probability: np.ndarray, right: np.ndarray, bins: int) -> float:
    total = 0.0
    for at in range(bins):
        low, high = at / bins, (at + 1) / bins
        mine = [k for k, p in enumerate(probability) if low <= p < high or (at == bins - 1 and p == 1)]
        if mine:
            gap = sum(float(right[k]) for k in mine) / len(mine) - sum(float(probability[k]) for k in mine) / len(mine)
            total += len(mine) / len(probability) * abs(gap)
    return total


def overall_gap(probability: np.ndarray, right: np.ndarray) -> float:
    return float(abs(probability.mean() - right.mean()))


def sees_both_errors(measure: Callable[..., float]) -> bool:
    """The law: too sure on some samples and too shy on others do not cancel."""
    probability = np.array([0.95] * 50 + [0.45] * 50)
    right = np.array([True, False] * 25 + [True] * 45 + [False] * 5)
    return measure(probability, right) > 0.3


def test_calibration_error_equals_the_loop_and_sees_both_errors() -> None:
    generator = np.random.default_rng(0)
    probability = generator.random(500)
    probability[:5] = 1.0
    right = generator.random(500) < probability
    assert expected_calibration_error(probability, right) == pytest.approx(by_loop(probability, right, 15), abs=1e-12)
    order = generator.permutation(500)
    shuffled = expected_calibration_error(probability[order], right[order])
    assert shuffled == pytest.approx(expected_calibration_error(probability, right))
    assert expected_calibration_error(np.ones(10), np.arange(10) < 5) == pytest.approx(0.5)
    assert sees_both_errors(expected_calibration_error)
    assert not sees_both_errors(overall_gap)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="of one length, at least 1; got 2 and 3"):
        expected_calibration_error(np.ones(2), np.ones(3))


def test_what_is_no_probability_is_refused() -> None:
    assert expected_calibration_error([1.0, 0.0], [1, 0]) == 0
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"probability must lie in \[0, 1\]; 1 values do not"):
            expected_calibration_error([0.5, wrong], [1, 0])
