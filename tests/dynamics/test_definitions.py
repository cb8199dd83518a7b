"""Every score of training dynamics against a slow loop over the sample's whole history."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from hardsight.dynamics import Recorder, dynamics_scores, small_loss_mixture

Curves = dict[str, list[float]]
# Of the run: what a sample never learned counts.
EPOCHS = 12


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def variance(values: list[float]) -> float:
    return mean([(value - mean(values)) ** 2 for value in values])


def slope(curves: Curves) -> float:
    return float(np.polyfit(curves["epoch"], curves["avh"], 1)[0])


def transitions(curves: Curves, before: float, after: float) -> float:
    right = [0.0, *curves["correct"]]
    if not any(right):
        return EPOCHS
    return sum(a == before and b == after for a, b in itertools.pairwise(right))


def first_right(curves: Curves) -> float:
    return next((e for e, right in zip(curves["epoch"], curves["correct"], strict=True) if right), EPOCHS)


def right_from(curves: Curves) -> float:
    return max((e + 1 for e, right in zip(curves["epoch"], curves["correct"], strict=True) if not right), default=0)


def early(curves: Curves) -> float:
    return mean([v for e, v in zip(curves["epoch"], curves["el2n"], strict=True) if e < 10])


REFERENCES: dict[str, Callable[[Curves], float]] = {
    "avh_mean": lambda c: mean(c["avh"]),
    "avh_last": lambda c: c["avh"][-1],
    "avh_slope": slope,
    "angular_margin_mean": lambda c: mean(c["angular_margin"]),
    "angular_margin_last": lambda c: c["angular_margin"][-1],
    "aum": lambda c: mean(c["margin"]),
    "margin_last": lambda c: c["margin"][-1],
    "loss_mean": lambda c: mean(c["loss"]),
    "loss_last": lambda c: c["loss"][-1],
    "confidence_mean": lambda c: mean(c["confidence"]),
    "variability": lambda c: math.sqrt(variance(c["confidence"])),
    "correctness": lambda c: mean(c["correct"]),
    "aleatoric": lambda c: mean([p * (1 - p) for p in c["confidence"]]),
    "epistemic": lambda c: variance(c["confidence"]),
    "agreement": lambda c: mean(c["agreement"]),
    "el2n_mean": lambda c: mean(c["el2n"]),
    "el2n_early": early,
    "forgetting_events": lambda c: transitions(c, 1.0, 0.0),
    "learning_events": lambda c: transitions(c, 0.0, 1.0),
    "first_learned": first_right,
    "learned_for_good": right_from,
}
# Scores with tests of their own.
ELSEWHERE = {"second_split_forgetting", "small_loss_gaussian", "small_loss_beta"}


def test_every_score_has_a_reference():
    assert {score.name for score in dynamics_scores()} == REFERENCES.keys() | ELSEWHERE


@pytest.mark.parametrize("name", REFERENCES)
def test_score_equals_the_slow_loop(run, name):
    scores = run.record(Recorder(23)).scores()[name]
    expected = [math.nan if i == 9 else REFERENCES[name](run.curves(i)) for i in range(23)]
    # The angles come from float32 logits: near 0 and pi they are right to sqrt(eps).
    tolerance = 3e-4 if name.startswith(("avh", "angular")) else 1e-6
    torch.testing.assert_close(
        scores.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=tolerance, equal_nan=True
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_score_keeps_its_range(run, name):
    score = next(score for score in dynamics_scores() if score.name == name)
    low, high = score.bounds(5)
    values = run.record(Recorder(23)).scores()[name]
    values = values[~values.isnan()]
    assert bool(((values >= low) & (values <= high)).all())


def test_a_sample_never_learned_is_the_hardest_however_often_it_was_shown():
    """Sample 0 comes in every third epoch, never right; 1 is first right in the last; 2 is forgotten seven times."""
    recorder = Recorder(4, scores=("forgetting_events", "learning_events", "first_learned"))
    right, wrong = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    for epoch in range(14):
        shown = torch.tensor([1, 2] if epoch % 3 else [0, 1, 2])
        rows = [wrong, right if epoch == 13 else wrong, wrong if epoch % 2 else right]
        recorder.update(shown, torch.stack(rows)[shown], torch.zeros(len(shown), dtype=torch.int64))
        recorder.end_epoch()
    scores = recorder.scores()
    assert scores["forgetting_events"][:3].tolist() == [14, 0, 7]
    assert scores["learning_events"][:3].tolist() == [14, 1, 7]
    assert scores["first_learned"][:3].tolist() == [14, 13, 0]
    assert all(values[3].isnan() for values in scores.values())
    # One number says neither: the columns beside it do.
    table = recorder.table()
    assert table["never_learned"].to_pylist() == [True, False, False, None]
    assert table["forgotten"].to_pylist() == [0, 0, 7, None]


def test_the_epochs_of_a_run_count_also_where_no_sample_came_in_all_of_them():
    """Sample 0 is right in epochs 0 and 1, sample 1 wrong in epochs 2 and 3: the run has four."""
    recorder = Recorder(2, scores=("first_learned",))
    for epoch in range(4):
        row = [1.0, 0.0] if epoch < 2 else [0.0, 1.0]
        recorder.update(torch.tensor([epoch // 2]), torch.tensor([row]), torch.tensor([0]))
        recorder.end_epoch()
    assert recorder.scores()["first_learned"].tolist() == [0, 4]


def test_aleatoric_uncertainty_of_certain_predictions_is_not_below_zero():
    """Of p = 0 and p = 1 alone it is 0; rounding of mean p (1 - mean p) - variance must not carry it below."""
    recorder = Recorder(40, scores=("aleatoric",))
    right = torch.rand(9, 40, generator=torch.Generator().manual_seed(0)) < 0.4
    for epoch in right:
        logits = torch.where(epoch, 500.0, -500.0).unsqueeze(1) * torch.tensor([1.0, -1.0])
        recorder.update(torch.arange(40), logits, torch.zeros(40, dtype=torch.int64))
        recorder.end_epoch()
    found = recorder.scores()["aleatoric"]
    assert bool((found >= 0).all())
    torch.testing.assert_close(found, torch.zeros(40), rtol=0, atol=1e-6)


def test_mixtures_are_fitted_to_the_mean_losses(run):
    scores = run.record(Recorder(23)).scores()
    torch.testing.assert_close(
        scores["small_loss_beta"], small_loss_mixture(scores["loss_mean"], "beta"), equal_nan=True
    )
    torch.testing.assert_close(
        scores["small_loss_gaussian"], small_loss_mixture(scores["loss_mean"], "gaussian"), equal_nan=True
    )


def test_second_split_forgetting_equals_the_slow_loop(run):
    recorder = run.record(Recorder(23))
    first = recorder.scores()
    assert first.pop("second_split_forgetting").isnan().all()
    recorder.begin_second_split()
    # The second phase runs the other way round: what was learned last is forgotten first.
    for epoch in reversed(range(12)):
        run.feed(recorder, epoch, run.shown(epoch))
        recorder.end_epoch()
    scores = recorder.scores()
    expected = []
    for sample in range(23):
        curves = {} if sample == 9 else run.curves(sample)
        right = [
            11 - epoch for epoch, won in zip(curves.get("epoch", []), curves.get("correct", []), strict=True) if won
        ]
        expected.append(math.nan if sample == 9 else max(right, default=-1) + 1.0)
    torch.testing.assert_close(scores.pop("second_split_forgetting"), torch.tensor(expected), equal_nan=True)
    # The first phase's scores stay as they were.
    for name, values in first.items():
        torch.testing.assert_close(values, scores[name], rtol=0, atol=0, equal_nan=True)
    with pytest.raises(ValueError, match=r"second split.*already"):
        recorder.begin_second_split()


def test_the_run_shows_every_case(run):
    # The tests above would prove little on a run in which nothing is forgotten or everything is learned.
    forgotten = [transitions(run.curves(i), 1.0, 0.0) for i in range(23) if i != 9 and any(run.curves(i)["correct"])]
    never = [i for i in range(23) if i != 9 and not any(run.curves(i)["correct"])]
    assert max(forgotten) >= 2
    assert min(forgotten) == 0
    assert never
