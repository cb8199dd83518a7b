"""Gradient rescaling from logits, fused: two small numbers a row, then the gradient; two reads and one write.

The gradient of row i is coefficient_i (p - y) / (2 (1 - p_y)). Its magnitude may depend on the whole batch (the sum of
the weights), so it cannot be written while the rows are first read: the forward pass reads the logits once and keeps
[rows] numbers, the backward pass reads them again and writes the gradient, over the logits where asked. That is three
kernels: rows, their sums, the gradient. What no kernel knows, such as a transform of the user's own or a sum over
processes, is arithmetic on the `RowStatistics` between `weigh_rows` and `attach_rescaled_gradient`.
`losses.gradient_rescaling` checks the input, chooses between this and the plain formula, and is that formula.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, wants_gradient
from hardsight.kernels.dispatch import given_normaliser
from hardsight.kernels.ops import rescaled_gradient, rescaled_rows


class RowStatistics(NamedTuple):
    """What gradient rescaling needs of a row of logits; "others" are all classes but the labelled one. float32."""

    label_logit: Float[Tensor, "rows"]
    log_others: Float[Tensor, "rows"]  # log-sum-exp of the other classes' logits

    @property
    def log_p(self) -> Float[Tensor, "rows"]:
        """log p_y, as -log(1 + exp(others - label)): exact where p_y rounds to 1."""
        return -torch.nn.functional.softplus(self.log_others - self.label_logit, threshold=80.0)

    @property
    def log_rest(self) -> Float[Tensor, "rows"]:
        """log (1 - p_y), exact where p_y rounds to 1."""
        return -torch.nn.functional.softplus(self.label_logit - self.log_others, threshold=80.0)


@torch.no_grad()
def weigh_rows(
    logits: Float[Tensor, "rows classes"],
    labels: Integer[Tensor, "rows"],
    sample_weight: Float[Tensor, "rows"] | None,
    normaliser: Tensor | float | None,
    settings: tuple[int, float, float, float, bool, str],
) -> tuple[Float[Tensor, "..."], Float[Tensor, "kept"]]:
    """The loss, and what its gradient needs: every row's log others, its log coefficient, and the log of the divisor.

    Settings of `losses.gradient_rescaling`: ignore_index, beta, lam, epsilon, whether exp, reduction.
    """
    divisor, log_divisor = given_normaliser(normaliser, logits.device)
    value, kept = rescaled_rows(logits.detach(), labels, sample_weight, divisor, *settings, log_divisor)
    return value, kept


def attach_rescaled_gradient(
    value: Float[Tensor, "..."],
    logits: Float[Tensor, "rows classes"],
    labels: Integer[Tensor, "rows"],
    kept: Float[Tensor, "kept"],
    *,
    in_place: bool = False,
) -> Float[Tensor, "..."]:
    """`value` (a scalar or one number a row), with the gradient by the logits that `weigh_rows` prepared."""
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
            return None, rescaled_gradient(logits, labels, kept, grad), None, None, None
        rescaled_gradient.function(logits, labels, kept, grad, logits)
        # An earlier op that kept these logits for its own backward pass must fail loudly, not use the gradient.
        torch.autograd.graph.increment_version(logits)
        return None, logits.detach(), None, None, None
