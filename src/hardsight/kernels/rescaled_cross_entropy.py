"""Gradient rescaling from logits, fused: two small numbers a row, then the gradient; two reads and one write.

The gradient of row i is coefficient_i (p - y) / (2 (1 - p_y)). Its magnitude may depend on the whole batch (the sum of
the weights), so it cannot be written while the rows are first read: the forward pass reads the logits once and keeps
[rows] numbers, the backward pass reads them again and writes the gradient, over the logits where asked. That is three
kernels: rows, their sums, the gradient.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, wants_gradient
from hardsight.kernels.dispatch import Op, given_normaliser


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
