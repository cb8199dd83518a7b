"""Distillation and the triplet loss: known answers, gradients, weights."""

import math

import pytest
import torch

from hardsight.losses import TripletLoss, distillation_loss, triplet_loss


def test_a_student_like_its_teacher_has_no_loss_and_no_gradient_reaches_the_teacher() -> None:
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    teacher = logits.detach().clone().requires_grad_()
    loss = distillation_loss(logits, teacher)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
    assert teacher.grad is None
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), atol=1e-12, rtol=0)


def test_the_parts_and_the_weights_are_what_they_say() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, teacher = (torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    labels = torch.randint(0, 4, (6,), generator=generator)
    p, q = (teacher / 2).softmax(1), (logits / 2).softmax(1)
    own = 4 * (p * (p / q).log()).sum(1)
    ce = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    weight = torch.rand(6, generator=generator, dtype=torch.float64)
    found = distillation_loss(logits, teacher, labels, temperature=2.0, teacher_share=0.7, sample_weight=weight)
    torch.testing.assert_close(found, (weight * (0.7 * own + 0.3 * ce)).sum() / weight.sum())
    with pytest.raises(ValueError, match="teacher_logits"):
        distillation_loss(logits, teacher[:3])
    with pytest.raises(ValueError, match="sample_weight"):
        distillation_loss(logits, teacher, sample_weight=-weight)


def test_triplets_of_right_angles_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1])
    # Anchor 0: positive at 90 degrees, negative at 180; anchor 1: both at 90; anchor 2 has no positive.
    expected = (0.0 + 0.2) / 2
    assert float(triplet_loss(features, labels, margin_radians=0.2)) == pytest.approx(expected)
    assert float(triplet_loss(5 * features, labels, margin_radians=0.2)) == pytest.approx(expected)
    assert float(TripletLoss(math.pi)(features, labels)) == pytest.approx((math.pi / 2 + math.pi) / 2)


def test_the_gradient_of_the_triplet_loss_is_that_of_its_value() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(9, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert torch.autograd.gradcheck(lambda x: triplet_loss(x, labels, margin_radians=0.3), features)
    alone = triplet_loss(features[:3], labels[:3])
    alone.backward()
    assert float(alone.detach()) == 0
