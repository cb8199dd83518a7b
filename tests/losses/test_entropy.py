"""Spherical and Taylor softmax against loops; what sets them apart from the softmax."""

import math

import pytest
import torch

from hardsight.losses import (
    LabelSmoothing,
    SphericalSoftmaxLoss,
    TaylorSoftmaxLoss,
    spherical_softmax_loss,
    taylor_softmax_loss,
)


def loop(logits: torch.Tensor, labels: torch.Tensor, function: object) -> torch.Tensor:
    values = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        positive = [function(value) for value in row]
        values.append(-math.log(positive[label] / math.fsum(positive)))
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
def test_equal_slow_loops(size: float, generator: torch.Generator) -> None:
    logits = size * torch.randn(8, 5, generator=generator, dtype=torch.float64)
    labels = torch.arange(8) % 5
    spherical = spherical_softmax_loss(logits, labels, epsilon=1e-3, reduction="none")
    torch.testing.assert_close(spherical, loop(logits, labels, lambda z: z * z + 1e-3))
    taylor = taylor_softmax_loss(logits, labels, reduction="none")
    torch.testing.assert_close(taylor, loop(logits, labels, lambda z: 1 + z + z * z / 2))


def test_hand_computed() -> None:
    """t(0) = 1 and t(2) = 5: -log(5/6)."""
    assert TaylorSoftmaxLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(-math.log(5 / 6))


def test_the_spherical_softmax_is_blind_to_signs(generator: torch.Generator) -> None:
    logits = torch.randn(4, 3, generator=generator)
    labels = torch.tensor([0, 1, 2, 0])
    loss, taylor = SphericalSoftmaxLoss(), TaylorSoftmaxLoss()
    torch.testing.assert_close(loss(-logits, labels), loss(logits, labels))
    assert not torch.allclose(taylor(-logits, labels), taylor(logits, labels))


def test_finite_where_squares_overflow() -> None:
    logits = torch.tensor([[1e30, 0.0, -1e25]], requires_grad=True)
    for label in range(3):
        for loss in (SphericalSoftmaxLoss(), TaylorSoftmaxLoss()):
            value = loss(logits, torch.tensor([label]))
            value.backward()
            assert value.isfinite()
            assert logits.grad.isfinite().all()


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"epsilon must be greater than 0 and finite; got 0.0"):
        SphericalSoftmaxLoss(0.0)
    with pytest.raises(ValueError, match=r"label_smoothing must lie in \[0, 1\]; got 1.5"):
        LabelSmoothing(1.5)
