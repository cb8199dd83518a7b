"""Gradient rescaling from features and a linear head, fused: the logits of a block of samples at a time exist.

The gradients of features, weight and bias are made during the forward pass, without the divisor, which depends on the
whole batch (and on other processes); the backward pass multiplies by it. Three matrix products in all.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, trace_of
from hardsight.kernels.dispatch import call, given_normaliser, same_precision


def rescaled_linear_cross_entropy(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    bias: Float[Tensor, "classes"] | None,
    labels: Integer[Tensor, "samples"],
    sample_weight: Float[Tensor, "samples"] | None,
    normaliser: Tensor | float | None,
    settings: tuple[int, float, float, float, bool, str],
    *,
    log_divisor: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, ""]:
    """`losses.linear_gradient_rescaling`; settings: ignore_index, beta, lam, epsilon, whether exp, reduction.

    `log_divisor` turns the log of this process's sum of weights into the log of what the gradient is divided by.
    """
    features, weight = same_precision((features, weight))
    _, beta, lam, _, exponential, _ = settings
    # Weights relative to the largest there can be; where that is out of reach, to the middle of their range in logs.
    peak = beta * (lam / (1 + lam)) ** lam / (1 + lam)
    shift = (peak if peak <= 10 else peak / 2) if exponential else math.log(max(peak, 1e-30))
    divisor, log_normaliser = given_normaliser(normaliser, features.device)
    given = (features, weight, bias, labels, sample_weight, divisor, *settings, log_normaliser, shift)
    if not torch.is_grad_enabled() or not any(one is not None and one.requires_grad for one in given[:3]):
        with torch.no_grad():
            return call(_rescaled_linear_op, _rescaled_linear, *given, False)[0]
    trace = trace_of(features, weight, bias)
    if log_divisor is None:
        return applied(_Walk, True, trace, *given)
    value, log_sum = _Walk.apply(False, trace, *given)  # type: ignore[no-untyped-call]
    # The gradient is divided by what the caller makes of the sum; the value, which is for logging, stays what it is.
    logged, log_sum = value.detach(), log_divisor(log_sum.reshape(()))
    ratio = torch.where(log_sum == -math.inf, 0.0, (shift - log_sum).exp())
    found: Tensor = logged + (value - logged) * ratio
    return found


class _Walk(torch.autograd.Function):
    """The loss, its gradients made on the way; undivided they are times exp(-shift), and the divisor's log follows."""

    @staticmethod
    def forward(
        ctx: Any, divided: bool, trace: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None, *given: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        made = call(_rescaled_linear_op, _rescaled_linear, features, weight, bias, *given, True)
        value, divisor, *gradients = made
        ctx.dtype, ctx.bias_dtype = features.dtype, None if bias is None else bias.dtype
        ctx.divided, ctx.shift, ctx.unused = divided, given[-1], (None,) * len(given)
        ctx.save_for_backward(trace, divisor, *gradients)
        if divided:
            return value
        ctx.mark_non_differentiable(divisor)
        return value, divisor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        _, divisor, *gradients = saved
        wanted = ctx.needs_input_grad[2:5]
        chosen = [one for one, is_wanted in zip(gradients, wanted, strict=True) if is_wanted]
        settings = (ctx.dtype, ctx.bias_dtype if wanted[2] else None, ctx.shift)
        made = iter(call(_scaled_op, _scaled, chosen, grad, divisor if ctx.divided else None, *settings))
        return None, None, *(next(made) if is_wanted else None for is_wanted in wanted), *ctx.unused


def _rescaled_linear(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    sample_weight: Tensor | None,
    normaliser: Tensor | None,
    ignore_index: int,
    beta: float,
    lam: float,
    epsilon: float,
    exponential: bool,
    reduction: str,
    log_normaliser: float | None,
    shift: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from hardsight.kernels.fused import rescaled_linear_cross_entropy as fused

    given = (bias, labels, sample_weight, normaliser, ignore_index, beta, lam, epsilon, exponential, reduction)
    return fused.walk(features.contiguous(), weight.contiguous(), *given, log_normaliser, shift, slopes_wanted)


_rescaled_linear_op = torch.library.custom_op("hardsight::rescaled_linear", _rescaled_linear, mutates_args=())


@_rescaled_linear_op.register_fake
def _(
    features: Tensor, weight: Tensor, bias: Tensor | None, *given: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, slopes_wanted = features.new_empty((), dtype=torch.float32), given[-1]
    return (
        value,
        value.new_empty(1),
        value.new_empty(features.shape if slopes_wanted else (0,)),
        value.new_empty(weight.shape if slopes_wanted else (0,)),
        value.new_empty(weight.shape[:1] if slopes_wanted and bias is not None else (0,)),
    )


def _scaled(
    gradients: list[Tensor],
    upstream: Tensor,
    log_divisor: Tensor | None,
    dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
    shift: float,
) -> list[Tensor]:
    from hardsight.kernels.fused import rescaled_linear_cross_entropy as fused

    return fused.scaled(gradients, _dtypes(gradients, dtype, bias_dtype), upstream, log_divisor, shift)


def _dtypes(gradients: list[Tensor], dtype: torch.dtype, bias_dtype: torch.dtype | None) -> list[torch.dtype]:
    """The bias, where it is among them, is the last and may have a type of its own."""
    dtypes = [dtype] * len(gradients)
    return dtypes if bias_dtype is None else [*dtypes[:-1], bias_dtype]


_scaled_op = torch.library.custom_op("hardsight::scaled_gradients", _scaled, mutates_args=())


@_scaled_op.register_fake
def _(
    gradients: list[Tensor],
    upstream: Tensor,
    log_divisor: Tensor | None,
    dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
    shift: float,
) -> list[Tensor]:
    dtypes = _dtypes(gradients, dtype, bias_dtype)
    return [one.new_empty(one.shape, dtype=kind) for one, kind in zip(gradients, dtypes, strict=True)]
