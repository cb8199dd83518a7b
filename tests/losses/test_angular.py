"""The AVH loss and its head: a loop over angles, the misprint, zero features, the scale."""

import math

import pytest
import torch
from torch.nn import functional

import hardsight.losses
from hardsight.losses import AngularLinear, AVHLoss, angular_logits, avh_loss


def loop(features: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, scale: float) -> torch.Tensor:
    losses = []
    for x, label in zip(features, labels.tolist(), strict=True):
        logits = []
        for w in weight:
            cosine = float(x @ w) / math.sqrt(float(x @ x)) / math.sqrt(float(w @ w))
            logits.append(scale * (math.pi - math.acos(cosine)))
        losses.append(math.log(math.fsum(math.exp(z) for z in logits)) - logits[label])
    return torch.tensor(losses, dtype=torch.float64)


def test_equals_a_slow_loop(generator: torch.Generator) -> None:
    features = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    weight = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(7) % 5
    result = avh_loss(features, weight, labels, scale=3.0, reduction="none")
    torch.testing.assert_close(result, loop(features, weight, labels, 3.0))
    soft = functional.one_hot(labels, 5).double()
    torch.testing.assert_close(avh_loss(features, weight, soft, scale=3.0, reduction="none"), result)


def test_hand_computed() -> None:
    """A feature on its class, the other class opposite: logits pi s and 0."""
    loss = avh_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [-1.0, 0.0]]), torch.tensor([0]), scale=1.0)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-math.pi)), rel=1e-5)


@pytest.mark.parametrize("scale", [0.25, 1.0, 40.0])
def test_any_positive_scale_multiplies_the_logits(scale: float, generator: torch.Generator) -> None:
    head, features = AngularLinear(6, 4, scale=scale, generator=generator), torch.randn(5, 6, generator=generator)
    torch.testing.assert_close(head(features), scale * angular_logits(features, head.weight))


def test_cross_entropy_on_the_head_is_the_avh_loss(generator: torch.Generator) -> None:
    head = AngularLinear(6, 4, scale=7.0, generator=generator)
    features, labels = torch.randn(5, 6, generator=generator), torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(
        functional.cross_entropy(head(features), labels), avh_loss(features, head.weight, labels, scale=7.0)
    )
    loss = AVHLoss(6, 4, scale=7.0)
    loss.head.load_state_dict(head.state_dict())
    torch.testing.assert_close(loss(features, labels), functional.cross_entropy(head(features), labels))


def test_only_directions_count(generator: torch.Generator) -> None:
    features = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))
    logits = angular_logits(features, weight)
    torch.testing.assert_close(angular_logits(3 * features @ rotation, 0.1 * weight @ rotation), logits)
    assert ((logits >= 0) & (logits <= math.pi)).all()


def test_a_zero_feature_knows_nothing() -> None:
    head = AngularLinear(3, 4)
    features = torch.zeros(1, 3, requires_grad=True)
    loss = functional.cross_entropy(head(features), torch.tensor([2]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(4))
    assert (features.grad == 0).all()


def test_the_scale_is_fixed_or_learnt_under_one_name() -> None:
    fixed, learnt = AngularLinear(3, 4, scale=5.0), AngularLinear(3, 4, scale=2.0, learnable_scale=True)
    assert [name for name, _ in fixed.named_parameters()] == ["weight"]
    learnt.load_state_dict(fixed.state_dict())
    assert learnt.scale.item() == pytest.approx(5.0)
    functional.cross_entropy(learnt(torch.ones(1, 3)), torch.tensor([0])).backward()
    assert learnt.log_scale.grad.isfinite()
    optimiser = torch.optim.SGD(learnt.parameters(), lr=1e3)
    optimiser.step()
    assert learnt.scale >= 0
    assert hardsight.losses.AngularLinear is AngularLinear


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        AngularLinear(3, 4, scale=0.0)
    with pytest.raises(ValueError, match=r"weight must be \[classes, dim\] with the features' dim 3; got \[4, 2\]"):
        angular_logits(torch.zeros(1, 3), torch.zeros(4, 2))
