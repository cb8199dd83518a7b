"""Gradient rescaling from logits, fused: two small numbers a row, then the gradient; two reads and one write.

The gradient of row i is coefficient_i (p - y) / (2 (1 - p_y)). Its magnitude may depend on the whole batch (the sum of
the weights), so it cannot be written while the rows are first read: the forward pass reads the logits once and keeps
[rows] numbers, the backward pass reads them again and writes the gradient, over the logits where asked. That is three
kernels: rows, their sums, the gradient. What no kernel knows, such as a transform of the user's own or a sum over
processes, is arithmetic on [rows] numbers between `row_statistics` and `attach_rescaled_gradient`.
`losses.gradient_rescaling` checks the input, chooses between this and the plain formula, and is that formula.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable
from hardsight.kernels.dispatch import call, given_normaliser


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


def rescaled_cross_entropy(
    logits: Float[Tensor, "rows classes"],
    labels: Integer[Tensor, "rows"],
    sample_weight: Float[Tensor, "rows"] | None,
    normaliser: Tensor | float | None,
    settings: tuple[int, float, float, float, bool, str],
    *,
    in_place: bool = False,
) -> Float[Tensor, "..."]:
    """`losses.gradient_rescaling` settings: ignore_index, beta, lam, epsilon, whether exp, reduction."""
    divisor, log_divisor = given_normaliser(normaliser, logits.device)
    given = (labels, sample_weight, divisor, *settings, log_divisor)
    if torch.is_grad_enabled() and logits.requires_grad:
        return applied(_Rescaled, logits, in_place, *given)
    with torch.no_grad():
        return call(_rescaled_rows_op, _rescaled_rows, logits, *given)[0]


def row_statistics(logits: Float[Tensor, "rows classes"], labels: Integer[Tensor, "rows"]) -> RowStatistics:
    """The label's logit and the others' log-sum-exp of every row, in one read of the logits. No gradient."""
    return RowStatistics(*call(_row_statistics_op, _row_statistics, logits.detach(), labels))


def attach_rescaled_gradient(
    value: Float[Tensor, "..."],
    logits: Float[Tensor, "rows classes"],
    labels: Integer[Tensor, "rows"],
    log_others: Float[Tensor, "rows"],
    coefficient: Float[Tensor, "rows"],
    *,
    in_place: bool = False,
) -> Float[Tensor, "..."]:
    """`value` (a scalar or one number a row), with coefficient_i (p - y) / (2 (1 - p_y)) as its logit gradient."""
    return applied(_AttachRows, value, logits, labels, log_others, coefficient, in_place)


class _Rescaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, in_place: bool, labels: Tensor, *given: Any) -> Tensor:
        value, kept = call(_rescaled_rows_op, _rescaled_rows, logits, labels, *given)
        ctx.in_place, ctx.unused = in_place, (None,) * (len(given) + 2)
        ctx.save_for_backward(logits, labels, kept)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, kept = saved
        return _fused_gradient(logits, labels, kept, None, grad, ctx.in_place), *ctx.unused


class _AttachRows(torch.autograd.Function):
    @staticmethod
    def forward(
        value: Tensor, logits: Tensor, labels: Tensor, log_others: Tensor, coefficient: Tensor, in_place: bool
    ) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, logits, labels, log_others, coefficient, ctx.in_place = inputs
        ctx.save_for_backward(logits, labels, log_others, coefficient)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, log_others, coefficient = saved
        gradient = _fused_gradient(logits, labels, log_others, coefficient, grad, ctx.in_place)
        return None, gradient, None, None, None, None


def _fused_gradient(
    logits: Tensor, labels: Tensor, kept: Tensor, coefficient: Tensor | None, upstream: Tensor, in_place: bool
) -> Tensor:
    if not in_place or torch.compiler.is_compiling():
        return call(_rescaled_gradient_op, _rescaled_gradient, logits, labels, kept, coefficient, upstream)
    _fused().write_gradient(logits, labels, kept, coefficient, upstream, logits)
    # An earlier op that kept these logits for its own backward pass must fail loudly, not use the gradient.
    torch.autograd.graph.increment_version(logits)
    return logits.detach()


def _fused() -> Any:
    from hardsight.kernels.fused import rescaled_cross_entropy as fused

    return fused


def _row_statistics(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _fused().row_statistics(logits, labels)
    return found


_row_statistics_op = torch.library.custom_op("hardsight::row_statistics", _row_statistics, mutates_args=())


@_row_statistics_op.register_fake
def _(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    rows = logits.new_empty(logits.shape[0], dtype=torch.float32)
    return rows, torch.empty_like(rows)


def _rescaled_rows(
    logits: Tensor,
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
) -> tuple[Tensor, Tensor]:
    given = (logits, labels, sample_weight, normaliser, ignore_index, beta, lam, epsilon, exponential)
    found: tuple[Tensor, Tensor] = _fused().weigh(*given, reduction, log_normaliser)
    return found


_rescaled_rows_op = torch.library.custom_op("hardsight::rescaled_rows", _rescaled_rows, mutates_args=())


@_rescaled_rows_op.register_fake
def _(logits: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    rows, reduction = logits.shape[0], given[-2]
    value = logits.new_empty((rows,) if reduction == "none" else (), dtype=torch.float32)
    return value, logits.new_empty(2 * rows + 1, dtype=torch.float32)


def _rescaled_gradient(
    logits: Tensor, labels: Tensor, kept: Tensor, coefficient: Tensor | None, upstream: Tensor
) -> Tensor:
    found: Tensor = _fused().write_gradient(logits, labels, kept, coefficient, upstream, torch.empty_like(logits))
    return found


_rescaled_gradient_op = torch.library.custom_op("hardsight::rescaled_gradient", _rescaled_gradient, mutates_args=())


@_rescaled_gradient_op.register_fake
def _(logits: Tensor, labels: Tensor, kept: Tensor, coefficient: Tensor | None, upstream: Tensor) -> Tensor:
    return torch.empty_like(logits)
