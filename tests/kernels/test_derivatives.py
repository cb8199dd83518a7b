"""A gradient that an op writes itself raises where it is differentiated; others have the right second derivative."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hardsight.losses import amc_loss, avh_loss, gradient_rescaling, linear_gradient_rescaling

SAMPLES, CLASSES, DIM = 6, 4, 5
LABELS = torch.arange(SAMPLES) % CLASSES


def product(op: Callable[..., Tensor], features: Tensor, **options: object) -> Tensor:
    """An op on features and weight, here both made of the same numbers."""
    weight = (features[:CLASSES] - 0.3).sin()
    if op is linear_gradient_rescaling:
        return op(features, weight, None, LABELS.to(features.device), **options)
    return op(features, weight, LABELS.to(features.device), **options)


def alone(op: Callable[..., Tensor], features: Tensor, **options: object) -> Tensor:
    return op(features, LABELS.to(features.device), **options)


OPS: dict[str, Callable[..., Tensor]] = {
    "angular": functools.partial(product, avh_loss),
    "angular, one by one": lambda at, **options: product(avh_loss, at, reduction="none", **options).square().sum(),
    "angular, recomputed": functools.partial(product, avh_loss, recompute=True),
    "contrast": functools.partial(alone, amc_loss, pairs="all"),
    "rescaled": functools.partial(alone, gradient_rescaling),
    "rescaled, own transform": functools.partial(alone, gradient_rescaling, transform=lambda x: 1 + x),
    "rescaled, in place": functools.partial(alone, gradient_rescaling, in_place=True),
    "linear": functools.partial(product, linear_gradient_rescaling),
}
OWN_GRADIENT = [name for name in OPS if name.startswith(("rescaled", "linear"))]


def slope(op: Callable[..., Tensor], at: Tensor) -> Tensor:
    """A product with the gradient by what the op's input is made of, itself differentiable."""
    direction = torch.linspace(-1, 1, at.numel(), dtype=at.dtype, device=at.device).reshape(at.shape)
    return torch.autograd.grad(op(1.5 * at.tanh()), at, create_graph=True)[0].mul(direction).sum()


@pytest.fixture
def numbers() -> Tensor:
    return torch.randn(SAMPLES, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("name", OPS)
def test_a_second_derivative_is_that_of_the_gradient_or_raises(name: str, numbers: Tensor) -> None:
    op, at = OPS[name], numbers.requires_grad_()
    steps = 1e-5 * torch.eye(at.numel(), dtype=torch.float64).reshape(-1, *at.shape)
    shown = torch.stack([(slope(op, at + step) - slope(op, at - step)).detach() for step in steps]) / 2e-5
    if name in OWN_GRADIENT:
        with pytest.raises(RuntimeError, match="second derivative"):
            torch.autograd.grad(slope(op, at), at)
    else:
        (found,) = torch.autograd.grad(slope(op, at), at)
        torch.testing.assert_close(found, shown.reshape(at.shape), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in OWN_GRADIENT if "own transform" not in name])
def test_a_gradient_of_its_own_raises_fused_too(name: str, numbers: Tensor, device: str) -> None:
    at = numbers.float().to(device).requires_grad_()
    first = slope(functools.partial(OPS[name], fused=True), at)
    assert first.isfinite()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(first, at)


@pytest.mark.parametrize("name", [name for name in OPS if name not in OWN_GRADIENT])
def test_a_fused_value_has_the_plain_second_derivative(name: str, numbers: Tensor, device: str) -> None:
    at = numbers.float().to(device).requires_grad_()
    found, want = (
        torch.autograd.grad(slope(functools.partial(OPS[name], fused=fused), at), at)[0] for fused in (True, False)
    )
    assert found.abs().max() > 1e-3
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-5)
