"""Gradient rescaling from features and a linear head: all samples' logits never exist, a block's at a time do.

The gradients of features, weight and bias are made during the forward pass, without the divisor, which depends on the
whole batch (and on other processes); the backward pass multiplies by it. Three matrix products in all.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import widen
from hardsight.kernels.dispatch import call, runs_fused, same_precision
from hardsight.kernels.inputs import check_choice, check_head, check_labels, check_sample_weight
from hardsight.kernels.rescaled_cross_entropy import (
    check_rescaling,
    kept_labels,
    log_weights,
    reduced,
    row_statistics,
)
from hardsight.kernels.rescaled_cross_entropy import reference as from_logits


def rescaled_linear_cross_entropy(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    bias: Float[Tensor, "classes"] | None,
    labels: Int[Tensor, "samples"],
    *,
    beta: float = 8.0,
    lam: float = 0.5,
    transform: str = "exp",
    sample_weight: Float[Tensor, "samples"] | None = None,
    ignore_index: int = -100,
    reduction: str = "weight",
    normaliser: Tensor | float | None = None,
    log_divisor: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, ""]:
    """`rescaled_cross_entropy` of features @ weight.T + bias, without the logits; reductions "weight", "mean", "sum".

    `log_divisor` turns the log of this process's sum of weights into the log of what the gradient is divided by, to
    sum over processes; it belongs to reduction "weight".
    """
    check_head(features, weight)
    check_labels(labels, len(features), len(weight), ignore_index=ignore_index)
    check_sample_weight(sample_weight, len(features))
    check_rescaling(beta, lam, transform, reduction)
    check_choice("transform", transform, ("exp", "identity"))
    features, weight = same_precision((features, weight))
    options = {"beta": beta, "lam": lam, "transform": transform, "reduction": reduction, "normaliser": normaliser}
    if not runs_fused(features, weight) or not features.numel():
        if log_divisor is not None and reduction == "weight":
            options["normaliser"] = log_divisor(
                _log_weight_sum(features, weight, bias, labels, sample_weight, ignore_index, options)
            ).exp()
        return reference(
            features, weight, bias, labels, sample_weight=sample_weight, ignore_index=ignore_index, **options
        )
    labels, sample_weight = kept_labels(labels, sample_weight, ignore_index)
    # Weights relative to the largest there can be; where that is out of reach, to the middle of their range in logs.
    peak = beta * (lam / (1 + lam)) ** lam / (1 + lam)
    shift = (peak if peak <= 10 else peak / 2) if transform == "exp" else math.log(max(peak, 1e-30))
    wanted = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (features, weight, bias))
    settings = (beta, lam, transform == "exp", shift, wanted)
    raw, log_p, log_weight = _Walk.apply(features, weight, bias, labels, sample_weight.log(), settings)
    with torch.no_grad():
        if reduction == "weight":
            divisor = log_weight.logsumexp(0)
            if normaliser is not None:
                divisor = torch.as_tensor(normaliser).to(divisor).log()
            elif log_divisor is not None:
                divisor = log_divisor(divisor)
        else:
            divisor = sample_weight.sum().log() if reduction == "mean" else torch.zeros_like(sample_weight.sum())
        ratio = torch.where(divisor == -math.inf, 0.0, (shift - divisor).exp())
        value = reduced(-log_p, sample_weight, reduction)
    # The value is for logging; the gradient is that of `raw`, times the ratio.
    return value + (raw * ratio)


def reference(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, **options: Any
) -> Float[Tensor, "..."]:
    """`rescaled_linear_cross_entropy` in plain PyTorch: the logits, then the loss."""
    return from_logits(_plain_logits(features, weight, bias), labels, **options)


def _plain_logits(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    with torch.autocast(features.device.type, enabled=False):
        logits = widen(features) @ widen(weight).T
    return logits if bias is None else logits + widen(bias)


def _log_weight_sum(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    sample_weight: Tensor | None,
    ignore_index: int,
    options: dict[str, Any],
) -> Tensor:
    labels, sample_weight = kept_labels(labels, sample_weight, ignore_index)
    with torch.no_grad():
        rows = row_statistics(_plain_logits(features, weight, bias), labels)
        logs = log_weights(rows, options["beta"], options["lam"], options["transform"]) + sample_weight.log()
        return logs.logsumexp(0)


class _Walk(torch.autograd.Function):
    """Zero, with the gradients of the unscaled loss; and log p and log weight of every sample."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        log_sample_weight: Tensor,
        settings: tuple[float, float, bool, float, bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = call(_rescaled_linear_op, _rescaled_linear, features, weight, bias, labels, log_sample_weight, *settings)
        log_p, log_weight, *gradients = made
        ctx.mark_non_differentiable(log_p, log_weight)
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        if settings[-1]:
            ctx.save_for_backward(*gradients)
        return torch.zeros_like(log_p[:1]).sum(), log_p, log_weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = []
        for gradient, dtype, wanted in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad[:3], strict=True):
            if not wanted or dtype is None:
                found.append(None)
                continue
            largest = torch.finfo(dtype).max
            found.append((gradient * grad).clamp(-largest, largest).to(dtype))
        return (*found, None, None, None)


def _rescaled_linear(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    log_sample_weight: Tensor,
    beta: float,
    lam: float,
    exponential: bool,
    shift: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from hardsight.kernels.fused import rescaled_linear_cross_entropy as fused

    return fused.walk(
        features.contiguous(),
        weight.contiguous(),
        bias,
        labels,
        log_sample_weight,
        beta,
        lam,
        exponential,
        shift,
        slopes_wanted,
    )


_rescaled_linear_op = torch.library.custom_op("hardsight::rescaled_linear", _rescaled_linear, mutates_args=())


@_rescaled_linear_op.register_fake
def _(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    log_sample_weight: Tensor,
    beta: float,
    lam: float,
    exponential: bool,
    shift: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = features.new_empty(features.shape[0], dtype=torch.float32)
    if not slopes_wanted:
        empty = rows.new_empty(0)
        return rows, torch.empty_like(rows), empty, torch.empty_like(empty), torch.empty_like(empty)
    return (
        rows,
        torch.empty_like(rows),
        features.new_empty(features.shape, dtype=torch.float32),
        weight.new_empty(weight.shape, dtype=torch.float32),
        rows.new_empty(weight.shape[0]),
    )
