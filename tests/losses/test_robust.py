"""The robust losses against loops over probabilities, their limits, and the papers' identities."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hardsight.losses import (
    FocalLoss,
    HardBootstrapping,
    SoftBootstrapping,
    SymmetricCrossEntropy,
    bootstrapping_loss,
    focal_loss,
    gce_loss,
    mae_loss,
    symmetric_cross_entropy,
)


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return 2 * torch.randn(8, 4, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels() -> Tensor:
    return torch.arange(8) % 4


@pytest.fixture
def soft(generator: torch.Generator) -> Tensor:
    return torch.randn(8, 4, generator=generator, dtype=torch.float64).softmax(-1)


def soft_sl(p: list[float], y: list[float]) -> float:
    forward = -sum(b * math.log(a) for a, b in zip(p, y, strict=True))
    reverse = -sum(a * max(-4.0, math.log(b) if b > 0 else -4.0) for a, b in zip(p, y, strict=True))
    return 0.1 * forward + 1.0 * reverse


def cross(p: list[float], y: list[float]) -> float:
    return -sum(b * math.log(a) for a, b in zip(p, y, strict=True))


LOOPS: dict[str, tuple[Callable[..., Tensor], Callable[[list[float], list[float]], float]]] = {
    "mae": (mae_loss, lambda p, y: sum(abs(a - b) for a, b in zip(p, y, strict=True))),
    "gce": (gce_loss, lambda p, y: sum(b * (1 - a**0.7) / 0.7 for a, b in zip(p, y, strict=True))),
    "sl": (symmetric_cross_entropy, soft_sl),
    "focal": (focal_loss, lambda p, y: -sum(b * (1 - a) ** 2 * math.log(a) for a, b in zip(p, y, strict=True))),
    "boot_soft": (
        bootstrapping_loss,
        lambda p, y: cross(p, [0.95 * b + 0.05 * a for a, b in zip(p, y, strict=True)]),
    ),
    "boot_hard": (
        lambda z, y, **options: bootstrapping_loss(z, y, beta=0.8, hard=True, **options),
        lambda p, y: cross(p, [0.8 * b + 0.2 * (a == max(p)) for a, b in zip(p, y, strict=True)]),
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_equals_a_slow_loop(name: str, logits: Tensor, labels: Tensor, soft: Tensor) -> None:
    function, loop = LOOPS[name]
    for target in (functional.one_hot(labels, 4).double(), soft):
        rows = zip(logits.softmax(-1).tolist(), target.tolist(), strict=True)
        expected = torch.tensor([loop(p, y) for p, y in rows], dtype=torch.float64)
        torch.testing.assert_close(function(logits, target, reduction="none"), expected)
        if target is not soft:
            torch.testing.assert_close(function(logits, labels, reduction="none"), expected)


def test_limits(logits: Tensor, labels: Tensor) -> None:
    """Each family's ends are losses of their own."""
    cce = functional.cross_entropy(logits, labels)
    torch.testing.assert_close(gce_loss(logits, labels, q=1.0), mae_loss(logits, labels) / 2)
    torch.testing.assert_close(gce_loss(logits, labels, q=1e-9), cce)
    torch.testing.assert_close(focal_loss(logits, labels, gamma=0.0), cce)
    torch.testing.assert_close(bootstrapping_loss(logits, labels, beta=1.0), cce)
    torch.testing.assert_close(symmetric_cross_entropy(logits, labels, alpha=1.0, beta=0.0), cce)
    reverse = symmetric_cross_entropy(logits, labels, alpha=0.0, beta=1.0, log_zero=-6.0)
    torch.testing.assert_close(reverse, 3 * mae_loss(logits, labels))


def test_mae_is_symmetric_over_labels(logits: Tensor) -> None:
    """Ghosh et al.: the losses over all labels sum to a constant, 2 (C - 1): what makes it robust."""
    total = sum(mae_loss(logits, torch.full((8,), label), reduction="none") for label in range(4))
    torch.testing.assert_close(total, torch.full((8,), 6.0, dtype=torch.float64))
    cce = sum(functional.cross_entropy(logits, torch.full((8,), label), reduction="none") for label in range(4))
    assert cce.std() > 0.1


def test_exact_near_certainty() -> None:
    """1 - p of 1e-9 in float32: not rounded to zero."""
    logits = torch.tensor([[0.0, math.log(1e-9)]], requires_grad=True)
    labels = torch.tensor([0])
    for loss, expected in ((gce_loss, 1e-9), (mae_loss, 2e-9)):
        (gradient,) = torch.autograd.grad(loss(logits, labels), logits)
        assert gradient[0, 1].item() == pytest.approx(expected, rel=1e-4)
    value = focal_loss(logits.double(), labels, gamma=0.5)
    assert value.item() == pytest.approx(1e-9**1.5, rel=1e-4)


def test_bootstrapping_soft_follows_its_own_prediction(logits: Tensor, labels: Tensor) -> None:
    """The gradient flows through the soft prediction: it is that of beta CE + (1 - beta) entropy."""
    leaf = logits.clone().requires_grad_()
    bootstrapping_loss(leaf, labels, beta=0.6).backward()
    other = logits.clone().requires_grad_()
    entropy = torch.distributions.Categorical(logits=other).entropy().mean()
    (0.6 * functional.cross_entropy(other, labels) + 0.4 * entropy).backward()
    torch.testing.assert_close(leaf.grad, other.grad)


@pytest.mark.parametrize("gamma", [0.3, 0.5, 1.0, 2.0])
def test_focal_is_finite_at_certainty(gamma: float) -> None:
    """(1 - p)^gamma has an infinite slope at p = 1 for gamma < 1."""
    logits = torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0]], requires_grad=True)
    FocalLoss(gamma)(logits, torch.tensor([0, 0])).backward()
    assert logits.grad.isfinite().all()


def test_focal_is_finite_where_a_class_is_masked_out() -> None:
    logits = torch.tensor([[1.0, 2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    two = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    FocalLoss()(logits, torch.tensor([[0.3, 0.7, 0.0]], dtype=torch.float64)).backward()
    FocalLoss()(two, torch.tensor([[0.3, 0.7]], dtype=torch.float64)).backward()
    torch.testing.assert_close(logits.grad, torch.cat([two.grad, torch.zeros(1, 1)], 1))


@pytest.mark.parametrize("scale", [-30.0, 1.0, 30.0, 1e3, 1e5])
def test_focal_gradient_in_float32_is_that_of_float64(scale: float, generator: torch.Generator) -> None:
    """Through the softmax, a log p of -1e5 times a difference of nearly equal shares: 1e-2 of it is rounding."""
    logits, labels = 3 * torch.randn(64, 6, generator=generator), torch.arange(64) % 6
    logits[torch.arange(64), labels] -= scale  # the others stay near each other
    gradients = []
    for kind in (torch.float32, torch.float64):
        leaf = logits.detach().to(kind, copy=True).requires_grad_()
        focal_loss(leaf, labels, reduction="sum").backward()
        gradients.append(leaf.grad.double())
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=2e-5)


def test_focal_is_finite_where_an_ignored_row_has_its_first_class_masked_out() -> None:
    logits = torch.tensor([[-math.inf, 2.0, 1.0], [-math.inf, 0.5, 1.0]], requires_grad=True)
    FocalLoss()(logits, torch.tensor([-100, 1])).backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[0] == 0).all()
    only = torch.tensor([[1.0, -math.inf]], requires_grad=True)
    FocalLoss()(only, torch.tensor([0])).backward()
    assert (only.grad == 0).all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FocalLoss(-1.0), "gamma must be at least 0 and finite; got -1.0"),
        (lambda: SoftBootstrapping(1.5), r"beta must lie in \[0, 1\]; got 1.5"),
        (lambda: HardBootstrapping(-0.1), r"beta must lie in \[0, 1\]; got -0.1"),
        (lambda: SymmetricCrossEntropy(alpha=-1.0), "alpha must be at least 0 and finite; got -1.0"),
        (lambda: SymmetricCrossEntropy(log_zero=0.0), "log_zero must be negative and finite"),
    ],
)
def test_rejects_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
