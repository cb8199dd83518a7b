"""Center loss and the centres' update, against loops."""

import pytest
import torch
from torch import Tensor

from hardsight.losses import CenterLoss, center_loss, updated_centers


@pytest.fixture
def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    features = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    return features, torch.tensor([0, 2, 0, 0, 2, 3]), torch.randn(4, 2, generator=generator, dtype=torch.float64)


def loop_update(centers: Tensor, features: Tensor, labels: Tensor, rate: float) -> Tensor:
    result = centers.clone()
    for cls in range(len(centers)):
        mine = [x for x, label in zip(features, labels.tolist(), strict=True) if label == cls]
        step = sum((centers[cls] - x for x in mine), torch.zeros(2, dtype=torch.float64)) / (1 + len(mine))
        result[cls] = centers[cls] - rate * step
    return result


def test_equal_slow_loops(batch: tuple[Tensor, ...]) -> None:
    features, labels, centers = batch
    expected = [0.5 * float(((x - centers[y]) ** 2).sum()) for x, y in zip(features, labels, strict=True)]
    result = center_loss(features, labels, centers, reduction="none")
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))
    moved = updated_centers(centers, features, labels, rate=0.3)
    torch.testing.assert_close(moved, loop_update(centers, features, labels, 0.3))


def test_hand_computed() -> None:
    """One feature (2, 0), the centre at 0: loss 2, the centre moves rate * 2 / (1 + 1)."""
    loss = CenterLoss(2, 3, rate=0.5)
    value = loss(torch.tensor([[2.0, 0.0]], requires_grad=True), torch.tensor([1]))
    assert value == 2
    torch.testing.assert_close(loss.centers, torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.0]]))


def test_the_centres_follow_only_in_training(batch: tuple[Tensor, ...]) -> None:
    features, labels, _ = batch
    loss = CenterLoss(2, 4).double()
    loss.eval()(features, labels)
    assert (loss.centers == 0).all()
    with torch.no_grad():
        loss.train()(features, labels)
    assert (loss.centers == 0).all()
    for _ in range(200):
        loss(features, labels)
    torch.testing.assert_close(loss.centers[0], features[labels == 0].mean(0))
    assert (loss.centers[1] == 0).all()  # a class nobody has seen stays


def test_the_loss_is_that_of_the_centres_before_the_update(batch: tuple[Tensor, ...]) -> None:
    features, labels, centers = batch
    loss = CenterLoss(2, 4).double()
    loss.centers.copy_(centers)
    leaf = features.clone().requires_grad_()
    loss(leaf, labels).backward()
    torch.testing.assert_close(leaf.grad, (features - centers[labels]) / 6)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_a_sample_of_weight_zero_moves_no_centre(kind: torch.dtype) -> None:
    loss = CenterLoss(2, 3)
    loss(torch.ones(3, 2), torch.tensor([0, 1, 2], dtype=kind), torch.tensor([0.0, 1.0, 0.5]))
    torch.testing.assert_close(loss.centers, torch.tensor([[0.0, 0.0], [0.25, 0.25], [0.25, 0.25]]))


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\]; got 2.0"):
        CenterLoss(2, 4, rate=2.0)
    with pytest.raises(ValueError, match=r"features must be \[batch, 2\], the centres' dim; got \[3, 5\]"):
        CenterLoss(2, 4)(torch.zeros(3, 5), torch.tensor([0, 1, 2]))
