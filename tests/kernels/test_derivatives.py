"""A gradient that an op writes itself raises where it is differentiated; others have the right second derivative."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hardsight.kernels import (
    angular_cross_entropy,
    pairwise_angular_contrast,
    rescaled_cross_entropy,
    rescaled_linear_cross_entropy,
)
from hardsight.kernels.rescaled_cross_entropy import reference

SAMPLES, CLASSES, DIM = 6, 4, 5
LABELS = torch.arange(SAMPLES) % CLASSES


def product(op: Callable[..., Tensor], features: Tensor, **options: object) -> Tensor:
    """An op on features and weight, here both made of the same numbers."""
    weight = (features[:CLASSES] - 0.3).sin()
    if op is rescaled_linear_cross_entropy:
        return op(features, weight, None, LABELS.to(features.device), **options)
    return op(features, weight, LABELS.to(features.device), **options)


def alone(op: Callable[..., Tensor], features: Tensor, **options: object) -> Tensor:
    return op(features, LABELS.to(features.device), **options)


OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "angular": functools.partial(product, angular_cross_entropy),
    "angular, recomputed": functools.partial(product, angular_cross_entropy, recompute=True),
    "contrast": functools.partial(alone, pairwise_angular_contrast),
    "rescaled": functools.partial(alone, rescaled_cross_entropy),
    "rescaled, own transform": functools.partial(alone, rescaled_cross_entropy, transform=lambda x: 1 + x),
    "rescaled, in place": functools.partial(alone, rescaled_cross_entropy, in_place=True),
    "rescaled, plain": functools.partial(alone, reference),
    "linear": functools.partial(product, rescaled_linear_cross_entropy),
    "linear, divided": functools.partial(product, rescaled_linear_cross_entropy, log_divisor=lambda log_sum: log_sum),
}


def slope(op: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
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
    if "rescaled" in name or "linear" in name:
        with pytest.raises(RuntimeError, match="second derivative"):
            torch.autograd.grad(slope(op, at), at)
    else:
        (found,) = torch.autograd.grad(slope(op, at), at)
        torch.testing.assert_close(found, shown.reshape(at.shape), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", OPS)
def test_fused_ops_raise(name: str, numbers: Tensor, device: str) -> None:
    at = numbers.float().to(device).requires_grad_()
    first = slope(OPS[name], at)
    assert first.isfinite()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(first, at)
