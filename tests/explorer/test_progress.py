"""When one may stop: the number of wrong labels to be expected, and how often its interval holds it."""

import numpy as np
import pytest

from hardsight.explorer.decisions import RIGHT, UNDECIDED, UNSURE, WRONG, progress


def reviewed(truth: np.ndarray, rows: np.ndarray) -> np.ndarray:
    outcome = np.full(len(truth), UNDECIDED)
    outcome[rows] = np.where(truth[rows], WRONG, RIGHT)
    return outcome


def test_nothing_is_expected_before_the_first_decision_and_nothing_after_the_last() -> None:
    assert progress(np.full(50, UNDECIDED)).expected is None
    assert progress(np.zeros(0, np.uint8)).expected is None
    done = progress(np.array([WRONG, RIGHT, WRONG]))
    assert (done.wrong, done.right, done.expected, done.low, done.high) == (2, 1, 0.0, 0.0, 0.0)


def test_who_is_unsure_has_not_decided() -> None:
    found = progress(np.array([WRONG] * 10 + [UNSURE] * 10))
    assert (found.wrong, found.unsure) == (10, 10)
    assert found.expected == pytest.approx(10, abs=1.5)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_of_a_random_part_the_interval_holds_the_rest_about_as_often_as_it_says(rate: float) -> None:
    random, held, tries = np.random.default_rng(0), 0, 200
    for _ in range(tries):
        truth = random.random(400) < rate
        rows = random.choice(400, 120, replace=False)
        found = progress(reviewed(truth, rows))
        rest = int(np.delete(truth, rows).sum())
        assert found.low is not None
        assert found.high is not None
        held += found.low <= rest <= found.high
    assert held / tries > 0.9


def test_from_the_top_it_rather_expects_too_many_than_too_few() -> None:
    random, below, tries = np.random.default_rng(1), 0, 200
    for _ in range(tries):
        truth = random.random(400) < np.linspace(0.95, 0.05, 400)
        found = progress(reviewed(truth, np.arange(100)))
        assert found.high is not None
        below += found.high < truth[100:].sum()
    assert below / tries < 0.02


def test_it_falls_as_the_wrong_labels_thin_out() -> None:
    truth = np.arange(400) < 200
    found = [progress(reviewed(truth, np.arange(upto))).expected for upto in (100, 200, 300)]
    assert found[0] is not None
    assert found[2] is not None
    assert found[0] > 250
    assert found[2] < 5
