"""Gradient rescaling, fused: from logits, and from features and a linear head.

From logits: two small numbers a row, then the gradient; two reads and one write. The gradient of row i is
coefficient_i (p - y) / (2 (1 - p_y)). Its magnitude may depend on the whole batch (the sum of the weights), so it
cannot be written while the rows are first read: the forward pass reads the logits once and keeps [rows] numbers, the
backward pass reads them again and writes the gradient, over the logits where asked. That is three kernels: rows, their
sums, the gradient.

From features, the logits of a block of samples at a time exist. The gradients of features, weight and bias are made
during the forward pass, without the divisor, which depends on the whole batch (and on other processes); the backward
pass multiplies by it. Three matrix products in all.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, trace_of, wants_gradient
from hardsight.kernels.dispatch import Op, given_normaliser, same_precision


def _shapes(logits: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    rows, reduction = logits.shape[0], given[-2]
    value = logits.new_empty((rows,) if reduction == "none" else (), dtype=torch.float32)
    return value, logits.new_empty(2 * rows + 1, dtype=torch.float32)


_rescaled_rows = Op(
    "rescaled_rows",
    "rescaled_cross_entropy.weigh",
    "(Tensor logits, Tensor labels, Tensor? sample_weight, Tensor? normaliser, int ignore_index, float beta, float lam,"
    " float epsilon, bool exponential, str reduction, float? log_normaliser) -> (Tensor, Tensor)",
    _shapes,
)
_rescaled_gradient = Op(
    "rescaled_gradient",
    "rescaled_cross_entropy.write_gradient",
    "(Tensor logits, Tensor labels, Tensor kept, Tensor upstream) -> Tensor",
    lambda logits, *given: torch.empty_like(logits),
)


def rescaled_cross_entropy(
    logits: Float[Tensor, "rows classes"], labels: Integer[Tensor, "rows"], sample_weight: Float[Tensor, "rows"] | None,
    *, settings: tuple[int, float, float, float, bool, str], normaliser: Tensor | float | None,
    log_divisor: Callable[[Tensor], Tensor] | None, in_place: bool,
) -> Float[Tensor, "..."]:  # fmt: skip
    """`losses.gradient_rescaling`; settings: ignore_index, beta, lam, epsilon, whether exp, reduction.

    `log_divisor` turns the log of this process's sum of weights into the log of what the gradient is divided by.
    """
    with torch.no_grad():
        divisor, log_normaliser = given_normaliser(normaliser, logits.device)
        # `kept` is every row's log others and log coefficient, and last the log of the divisor.
        value, kept = _rescaled_rows(logits.detach(), labels, sample_weight, divisor, *settings, log_normaliser)
        if log_divisor is not None:
            kept[-1:] = log_divisor(kept[-1])
    return applied(_Rescaled, value, logits, labels, kept, in_place) if wants_gradient(logits) else value


class _Rescaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, logits: Tensor, labels: Tensor, kept: Tensor, in_place: bool) -> Tensor:
        ctx.in_place = in_place
        ctx.save_for_backward(logits, labels, kept)
        # Not the same tensor, nor a copy, which would be one more kernel.
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, kept = saved
        if not ctx.in_place or torch.compiler.is_compiling():
            return None, _rescaled_gradient(logits, labels, kept, grad), None, None, None
        _rescaled_gradient.function(logits, labels, kept, grad, logits)
        # An earlier op that kept these logits for its own backward pass must fail loudly, not use the gradient.
        torch.autograd.graph.increment_version(logits)
        return None, logits.detach(), None, None, None


def dtypes_of(gradients: list[Tensor], dtype: torch.dtype, bias_dtype: torch.dtype | None) -> list[torch.dtype]:
    """In which each gradient is wanted; the bias, where it is among them, is the last and may have its own."""
    return [dtype] * len(gradients) if bias_dtype is None else [dtype] * (len(gradients) - 1) + [bias_dtype]


def _linear_shapes(features: Tensor, weight: Tensor, bias: Tensor | None, *given: Any) -> tuple[Tensor, ...]:
    value, slopes_wanted = features.new_empty((), dtype=torch.float32), given[-1]
    return (
        value,
        value.new_empty(1),
        value.new_empty(features.shape if slopes_wanted else (0,)),
        value.new_empty(weight.shape if slopes_wanted else (0,)),
        value.new_empty(weight.shape[:1] if slopes_wanted and bias is not None else (0,)),
    )


_rescaled_linear = Op(
    "rescaled_linear",
    "rescaled_linear_cross_entropy.walk",
    "(Tensor features, Tensor weight, Tensor? bias, Tensor labels, Tensor? sample_weight, Tensor? normaliser,"
    " int ignore_index, float beta, float lam, float epsilon, bool exponential, str reduction, float? log_normaliser,"
    " float shift, bool slopes_wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _linear_shapes,
)
_scaled_gradients = Op(
    "scaled_gradients",
    "rescaled_linear_cross_entropy.scaled",
    "(Tensor[] gradients, ScalarType dtype, ScalarType? bias_dtype, Tensor upstream, Tensor? log_divisor, float shift)"
    " -> Tensor[]",
    lambda gradients, dtype, bias_dtype, *given: [
        torch.empty_like(one, dtype=kind)
        for one, kind in zip(gradients, dtypes_of(gradients, dtype, bias_dtype), strict=True)
    ],
)


def rescaled_linear_cross_entropy(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"], bias: Float[Tensor, "classes"] | None,
    labels: Integer[Tensor, "samples"], sample_weight: Float[Tensor, "samples"] | None, *,
    settings: tuple[int, float, float, float, bool, str], normaliser: Tensor | float | None,
    log_divisor: Callable[[Tensor], Tensor] | None,
) -> Float[Tensor, ""]:  # fmt: skip
    """`losses.linear_gradient_rescaling`; the settings are those of `rescaled_cross_entropy`."""
    features, weight = same_precision((features, weight))
    _, beta, lam, _, exponential, _ = settings
    # Weights relative to the largest there can be; where that is out of reach, to the middle of their range in logs.
    peak = beta * (lam / (1 + lam)) ** lam / (1 + lam)
    shift = (peak if peak <= 10 else peak / 2) if exponential else math.log(max(peak, 1e-30))
    divisor, log_normaliser = given_normaliser(normaliser, features.device)
    given = (features, weight, bias, labels, sample_weight, divisor, *settings, log_normaliser, shift)
    if not torch.is_grad_enabled() or not any(one is not None and one.requires_grad for one in given[:3]):
        with torch.no_grad():
            value, *_ = _rescaled_linear(*given, False)
            return value
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
        value, divisor, *gradients = _rescaled_linear(features, weight, bias, *given, True)
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
        dtypes = ctx.dtype, ctx.bias_dtype if wanted[2] else None
        made = iter(_scaled_gradients(chosen, *dtypes, grad, divisor if ctx.divided else None, ctx.shift))
        return None, None, *(next(made) if is_wanted else None for is_wanted in wanted), *ctx.unused
