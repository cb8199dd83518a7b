"""Gradient rescaling from logits: two small numbers a row, then the gradient; at most two reads and one write.

The gradient of row i is coefficient_i (p - y) / (2 (1 - p_y)). Its magnitude may depend on the whole batch (the sum of
the weights), so it cannot be written while the rows are first read: the forward pass reads the logits once and keeps
[rows] numbers, the backward pass reads them again and writes the gradient, over the logits where asked. The fused
version is three kernels: rows, their sums, the gradient. A transform of the user's own is arithmetic on [rows] numbers
in plain PyTorch, between `row_statistics` and `attach_rescaled_gradient`.

CCE, MAE and GCE are special cases: transform "identity" with (beta, lam) = (2, 0), (4, 1) and (2, q), reduction "mean".
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import once_differentiable, trace_of
from hardsight.geometry import widen
from hardsight.kernels.dispatch import call, runs_fused
from hardsight.kernels.inputs import check_labels, check_matrix, check_number, check_sample_weight
from hardsight.kernels.rescaling import (
    REDUCTIONS,
    RowStatistics,
    Transform,
    check_rescaling,
    coefficients,
    given_normaliser,
    held,
    log_of_divisor,
    log_weights,
)
from hardsight.kernels.samples import kept_labels, reduced


def rescaled_cross_entropy(
    logits: Float[Tensor, "rows classes"],
    labels: Integer[Tensor, "rows"],
    *,
    beta: float = 6.0,
    lam: float = 0.5,
    transform: Transform = "exp",
    epsilon: float = 1e-6,
    sample_weight: Float[Tensor, "rows"] | None = None,
    ignore_index: int = -100,
    reduction: str = "weight",
    normaliser: Tensor | float | None = None,
    in_place: bool = False,
) -> Float[Tensor, "..."]:
    """A loss with the logit gradient w (p - y) / (2 (1 - p_y)), w = g(beta p^lam (1 - p)), and cross-entropy as value.

    Reductions "weight" (by the sum of the weights, or `normaliser`), "mean" (by the sum of the sample weights), "sum"
    and "none". `epsilon` is added to 2 (1 - p_y), which lets go of fitted samples (see `losses.GradientRescaling`).
    `in_place` writes the gradient over the logits during the backward pass: nothing may read them after.
    """
    check_matrix(logits, "logits", "[rows, classes]")
    labels = check_labels(labels, len(logits), logits.shape[1], ignore_index=ignore_index)
    check_sample_weight(sample_weight, len(logits))
    check_rescaling(beta, lam, epsilon, transform, reduction, (*REDUCTIONS, "none"))
    check_number("normaliser", 1.0 if normaliser is None else normaliser)
    if isinstance(transform, str) and _serves(logits):
        settings = (ignore_index, beta, lam, epsilon, transform == "exp", reduction)
        return _rescaled(logits, labels, sample_weight, normaliser, settings, in_place)
    labels, weight = kept_labels(labels, sample_weight, ignore_index)
    with torch.no_grad():
        rows = _statistics(logits.detach(), labels)
        log_w = log_weights(rows, beta, lam, transform) + weight.log()
        divisor = log_of_divisor(log_w, weight, reduction, normaliser)
        coefficient = coefficients(log_w, divisor) * held(rows, epsilon)
        value = reduced(-rows.log_p, weight, reduction)
    return attach_rescaled_gradient(value, logits, labels, rows.log_others, coefficient, in_place=in_place)


def reference(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
    """`rescaled_cross_entropy` in plain PyTorch: the definition, on any device."""
    options = {"beta": 6.0, "lam": 0.5, "transform": "exp", "epsilon": 1e-6, "reduction": "weight", **options}
    labels, weight = kept_labels(labels, options.get("sample_weight"), options.get("ignore_index", -100))
    z, column = widen(logits), labels.unsqueeze(1)
    with torch.no_grad():
        others = z.scatter(1, column, -math.inf)
        rows = RowStatistics(z.gather(1, column).squeeze(1), others.logsumexp(1))
        log_w = log_weights(rows, options["beta"], options["lam"], options["transform"]) + weight.log()
        direction = (0.5 * others.softmax(1)).scatter(1, column, -0.5)
        # Where every other class is masked out there is nothing to learn.
        direction = torch.where((rows.log_others == -math.inf).unsqueeze(1), 0.0, direction)
        direction = direction * held(rows, options["epsilon"]).unsqueeze(1)
        divisor = log_of_divisor(log_w, weight, options["reduction"], options.get("normaliser"))
        gradient = coefficients(log_w, divisor).unsqueeze(1) * direction
        value = reduced(-rows.log_p, weight, options["reduction"])
    return _AttachPlain.apply(value, z, gradient, trace_of(z))


def row_statistics(logits: Float[Tensor, "rows classes"], labels: Integer[Tensor, "rows"]) -> RowStatistics:
    """The label's logit and the others' log-sum-exp of every row, in one read of the logits. No gradient."""
    check_matrix(logits, "logits", "[rows, classes]")
    labels = check_labels(labels, len(logits), logits.shape[1])
    return _statistics(logits.detach(), labels.long())


def _statistics(logits: Tensor, labels: Tensor) -> RowStatistics:
    if _serves(logits):
        return RowStatistics(*call(_row_statistics_op, _row_statistics, logits, labels))
    return RowStatistics(*_plain_statistics(widen(logits), labels))


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
    return _AttachRows.apply(value, logits, labels, log_others, coefficient, in_place)


def _rescaled(
    logits: Tensor,
    labels: Tensor,
    sample_weight: Tensor | None,
    normaliser: Tensor | float | None,
    settings: tuple[int, float, float, float, bool, str],
    in_place: bool,
) -> Tensor:
    divisor, log_divisor = given_normaliser(normaliser, logits.device)
    given = (labels, sample_weight, divisor, *settings, log_divisor)
    if torch.is_grad_enabled() and logits.requires_grad:
        return _Rescaled.apply(logits, in_place, *given)
    with torch.no_grad():
        return call(_rescaled_rows_op, _rescaled_rows, logits, *given)[0]


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
        if _serves(logits):
            gradient = _fused_gradient(logits, labels, log_others, coefficient, grad, ctx.in_place)
        else:
            gradient = _plain_gradient(logits, labels, log_others, coefficient * grad)
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


class _AttachPlain(torch.autograd.Function):
    @staticmethod
    def forward(value: Tensor, logits: Tensor, gradient: Tensor, trace: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[None, Tensor, None, None]:
        return None, (grad.reshape(-1, 1) if grad.ndim else grad) * saved[0], None, None


def _plain_statistics(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    column = labels.unsqueeze(1)
    return logits.gather(1, column).squeeze(1), logits.scatter(1, column, -math.inf).logsumexp(1)


def _plain_gradient(logits: Tensor, labels: Tensor, log_others: Tensor, coefficient: Tensor) -> Tensor:
    half = (coefficient / 2).unsqueeze(1)
    # Where every other class is masked out there is nothing to learn.
    alone = (log_others == -math.inf).unsqueeze(1)
    gradient = (widen(logits) - torch.where(alone, 0.0, log_others.unsqueeze(1))).exp() * half
    gradient = gradient.scatter(1, labels.unsqueeze(1), -half)
    return torch.where(alone, 0.0, gradient).to(logits.dtype)


def _serves(logits: Tensor) -> bool:
    return runs_fused(logits) and logits.stride(1) == 1 and logits.numel() > 0


def _fused() -> Any:
    from hardsight.kernels.fused import rescaled_cross_entropy as fused

    return fused


def _row_statistics(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return _fused().row_statistics(logits, labels)


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
    return _fused().weigh(
        logits,
        labels,
        sample_weight,
        normaliser,
        ignore_index,
        beta,
        lam,
        epsilon,
        exponential,
        reduction,
        log_normaliser,
    )


_rescaled_rows_op = torch.library.custom_op("hardsight::rescaled_rows", _rescaled_rows, mutates_args=())


@_rescaled_rows_op.register_fake
def _(
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
    rows = logits.shape[0]
    value = logits.new_empty((rows,) if reduction == "none" else (), dtype=torch.float32)
    return value, logits.new_empty(2 * rows + 1, dtype=torch.float32)


def _rescaled_gradient(
    logits: Tensor, labels: Tensor, kept: Tensor, coefficient: Tensor | None, upstream: Tensor
) -> Tensor:
    return _fused().write_gradient(logits, labels, kept, coefficient, upstream, torch.empty_like(logits))


_rescaled_gradient_op = torch.library.custom_op("hardsight::rescaled_gradient", _rescaled_gradient, mutates_args=())


@_rescaled_gradient_op.register_fake
def _(logits: Tensor, labels: Tensor, kept: Tensor, coefficient: Tensor | None, upstream: Tensor) -> Tensor:
    return torch.empty_like(logits)
