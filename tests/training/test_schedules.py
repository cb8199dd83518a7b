"""Each schedule against its printed formula, its ends, and what it must not do in between."""

import itertools
import math

import pytest

from hardsight.training import schedules
from hardsight.training.schedules import PLANS, Position


def at_epoch(epoch, epochs=300, per_epoch=10):
    return Position(epoch * per_epoch, per_epoch, epochs)


def test_ramps_of_the_amc_paper_are_the_printed_ones():
    plan = PLANS["amc-paper"]()
    for epoch in range(300):
        rise = math.exp(-5 * (1 - epoch / 80) ** 2) if epoch < 80 else 1.0
        fall = math.exp(-12.5 * (1 - (300 - epoch) / 50) ** 2) if epoch > 250 else 1.0
        position = at_epoch(epoch)
        assert plan.learning_rate(position) == pytest.approx(rise * fall, rel=1e-12)
        assert plan.feature_loss(position) == pytest.approx(rise, rel=1e-12)
        assert plan.beta1(position) == pytest.approx(0.9 * fall + 0.5 * (1 - fall), rel=1e-12)
    assert plan.beta1(at_epoch(299)) == pytest.approx(0.5, abs=1e-4)


def test_ramps_of_the_authors_script_differ_as_documented():
    plan = PLANS["amc-script"]()
    assert plan.feature_loss(at_epoch(0, 200)) == 0.0
    assert plan.feature_loss(at_epoch(25, 200)) == pytest.approx(math.exp(-5 * 0.25))
    assert plan.feature_loss(at_epoch(50, 200)) == 1.0
    for epoch in range(200):
        rise = math.exp(-5 * (1 - epoch / 50) ** 2) if epoch < 50 else 1.0
        fall = math.exp(-(((epoch - 170) / 2) ** 2) / 30) if epoch >= 170 else 1.0
        assert plan.learning_rate(at_epoch(epoch, 200)) == pytest.approx(rise * fall, rel=1e-12)


def test_steps_by_iteration_and_by_epoch():
    """GR on CIFAR-100: x0.1 at 15k and 22k of 30k iterations."""
    by_step = schedules.steps([15_000, 22_000], unit="step")
    factors = [by_step(Position(step, 196, 154)) for step in (0, 14_999, 15_000, 21_999, 22_000, 29_999)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    by_epoch = schedules.steps([2], factor=0.5)
    assert [by_epoch(Position(step, 3, 4)) for step in (0, 5, 6, 11)] == [1, 1, 0.5, 0.5]


def test_cosine_starts_at_one_falls_and_would_end_at_final():
    curve = [schedules.cosine(0.1)(Position(step, 10, 5)) for step in range(51)]
    assert curve[0] == 1.0
    assert curve[-1] == pytest.approx(0.1)
    assert curve[25] == pytest.approx(0.55)
    assert all(later < earlier for earlier, later in itertools.pairwise(curve))


def test_warm_up_reaches_one_and_stays():
    curve = [schedules.warm_up(4)(Position(step, 10, 5)) for step in range(6)]
    assert curve == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="length must be 1 or more"):
        schedules.warm_up(0)


def test_schedule_is_applied_to_every_step(problem, small):
    """Learning rate and beta1 seen by the optimiser are those of the plan at that step."""
    import torch

    from hardsight import training

    seen = []

    class Watching(torch.optim.Adam):
        def step(self, closure=None):
            seen.append((self.param_groups[0]["lr"], self.param_groups[0]["betas"][0]))
            super().step(closure)

    model = small()
    plan = training.Plan(
        schedules.cosine(), schedules.constant, schedules.between(0.5, 0.9, schedules.gaussian_ramp_down(2))
    )
    training.fit(
        model, problem.loader(), None, Watching(model.parameters(), lr=0.02), epochs=2, plan=plan, progress=False
    )
    expected = [
        (0.02 * plan.learning_rate(Position(step, 6, 2)), plan.beta1(Position(step, 6, 2))) for step in range(12)
    ]
    assert torch.tensor(seen).allclose(torch.tensor(expected))
    assert seen[6][1] < seen[5][1] == 0.9
