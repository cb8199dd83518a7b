"""Attacks: against a linear network the best step is known; what is promised of epsilon, bounds and the model."""

import pytest
import torch
from torch import nn

from hardsight.degradation import adversarial


def test_one_step_against_a_linear_network_is_the_best_one() -> None:
    torch.manual_seed(0)
    model, images = nn.Linear(4, 2), torch.randn(8, 4)
    labels = torch.randint(0, 2, (8,))
    moved = adversarial(model, images, labels, epsilon=0.1)
    # Two classes: the loss grows with the other logit's lead, so every value moves by its weight's sign.
    lead = model.weight[1 - labels] - model.weight[labels]
    torch.testing.assert_close(moved, images + 0.1 * lead.detach().sign())
    assert model.weight.grad is None


def test_several_steps_stay_within_epsilon_and_bounds_and_raise_the_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3))
    images, labels = torch.rand(20, 3, 2, 2), torch.randint(0, 3, (20,))
    moved = adversarial(model, images, labels, epsilon=0.2, steps=5, low=0.0, high=1.0)
    assert float((moved - images).abs().max()) <= 0.2 + 1e-6
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    loss = nn.functional.cross_entropy
    with torch.no_grad():
        assert float(loss(model(moved), labels)) > float(loss(model(images), labels))
    torch.testing.assert_close(adversarial(model, images, labels, epsilon=0.0), images)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"epsilon.*-1"):
        adversarial(nn.Linear(2, 2), torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), epsilon=-1)
    with pytest.raises(ValueError, match=r"steps.*0"):
        adversarial(nn.Linear(2, 2), torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), epsilon=1, steps=0)
