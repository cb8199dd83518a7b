"""The losses whose head is divided among processes by class: the AVH loss's cross-entropy, and gradient rescaling."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.class_shards import ShardedHead
from hardsight.derivatives import applied, once_differentiable, trace_of
from hardsight.geometry import full_precision, widen
from hardsight.kernels.dispatch import Fused
from hardsight.losses.emphasis import Transform, attach_gradient, let_go, log_weight, rescaled_gradient
from hardsight.losses.inputs import check_labels, check_not_negative, reduce


class Batch(NamedTuple):
    """The samples of all processes."""

    features: Float[Tensor, "samples dim"]
    labels: Int[Tensor, "samples"]  # 0 where ignored
    weight: Float[Tensor, "samples"]  # 0 where ignored
    own: slice  # which of them are this process's


def gathered_batch(
    head: ShardedHead, features: Tensor, labels: Tensor, sample_weight: Tensor | None, ignore_index: int, fused: Fused
) -> Batch:
    """Everybody's samples; a label that no part of the head has is an error in every process."""
    if fused is True:
        raise ValueError("fused must be 'auto' or False with a ShardedHead, which no kernel computes; got True")
    if labels.is_floating_point():
        raise TypeError(f"labels must be class indices with a head that is divided by class; got {labels.dtype}")
    counts = head.counts(features, labels, sample_weight)
    before = sum(counts[: head.rank])
    everyone = head.gather(labels.long(), counts)
    found, kept = check_labels(everyone, (sum(counts),), head.classes, ignore_index)
    wide = head.gather(widen(features), counts)
    weight = kept.to(wide.dtype)
    if sample_weight is not None:
        weight = torch.where(kept, head.gather(sample_weight.detach().to(wide.dtype), counts), 0.0)
        check_not_negative(weight)
    return Batch(wide, found, weight, slice(before, before + len(features)))


def cross_entropy_of_shards(
    head: ShardedHead, logits: Float[Tensor, "samples own"], batch: Batch, reduction: str
) -> Float[Tensor, "..."]:
    """Cross-entropy of logits whose columns are divided among the processes: over all samples, or for one's own."""
    losses = applied(_CrossEntropy, logits, trace_of(logits), head, *head.own(batch.labels))
    found = reduce(head.agree(losses), reduction, weight=batch.weight)
    return found[batch.own] if reduction == "none" else found


def rescaled_of_shards(
    head: ShardedHead, features: Tensor, labels: Tensor, *, beta: float, lam: float, transform: Transform,
    epsilon: float, reduction: str, sample_weight: Tensor | None, ignore_index: int, normaliser: Tensor | float | None,
    fused: Fused, **others: Any,
) -> Float[Tensor, "..."]:  # fmt: skip
    """`gradient_rescaling` of the logits of a head that is divided by class."""
    batch = gathered_batch(head, features, labels, sample_weight, ignore_index, fused)
    with full_precision(batch.features):
        logits = batch.features @ widen(head.weight).T
    logits = logits if head.bias is None else logits + widen(head.bias)
    with torch.no_grad():
        mine, place = head.own(batch.labels)
        column = place.unsqueeze(1)
        own = head.reduce(torch.where(mine, logits.gather(1, column).squeeze(1), 0.0))
        others_here = torch.where(_at(logits, column, mine), -math.inf, logits)
        log_others = _log_sum(head, others_here)
        log_p = -torch.nn.functional.softplus(log_others - own, threshold=80.0)
        log_rest = -torch.nn.functional.softplus(own - log_others, threshold=80.0)
        log_weights = log_weight(log_p, log_rest, beta, lam, transform) + batch.weight.log()
        # Half the softmax of the other classes among themselves, and -1/2 at the label.
        direction = (others_here - log_others.unsqueeze(1)).exp() / 2
        direction = let_go(torch.where(_at(logits, column, mine), -0.5, direction), log_rest, epsilon)
        direction = torch.where((log_others == -math.inf).unsqueeze(1), 0.0, direction)
        log_divisor = torch.zeros_like(log_p.sum())
        if reduction == "mean":
            log_divisor = batch.weight.sum().log()
        elif reduction == "weight" and normaliser is None:
            log_divisor = log_weights.logsumexp(0)
        elif reduction == "weight":
            log_divisor = torch.as_tensor(normaliser, dtype=log_p.dtype, device=log_p.device).log()
        gradient = rescaled_gradient(log_weights, direction, log_divisor)
        value = reduce(-log_p, "mean" if reduction == "weight" else reduction, weight=batch.weight)
    found = head.agree(attach_gradient(value, logits, gradient))
    return found[batch.own] if reduction == "none" else found


def _at(logits: Tensor, column: Tensor, mine: Tensor) -> Tensor:
    """Where the labelled classes are among the columns."""
    return torch.zeros_like(logits, dtype=torch.bool).scatter(1, column, mine.unsqueeze(1))


def _log_sum(head: ShardedHead, logits: Float[Tensor, "samples own"]) -> Float[Tensor, "samples"]:
    """log-sum-exp over the classes of all processes."""
    top = head.reduce(logits.amax(1), "max")
    base = torch.where(top == -math.inf, 0.0, top)
    return base + head.reduce((logits - base.unsqueeze(1)).exp().sum(1)).log()


class _CrossEntropy(torch.autograd.Function):
    """log-sum-exp over all processes' classes minus the label's logit; by the own logits, p - y."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, trace: Tensor, head: ShardedHead, mine: Tensor, place: Tensor) -> Tensor:
        column = place.unsqueeze(1)
        log_sum = _log_sum(head, logits)
        label = head.reduce(torch.where(mine, logits.gather(1, column).squeeze(1), 0.0))
        slope = (logits - log_sum.unsqueeze(1)).exp()
        slope.scatter_add_(1, column, -mine.to(slope.dtype).unsqueeze(1))
        ctx.save_for_backward(trace, slope)
        return log_sum - label

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad.unsqueeze(1) * saved[1], None, None, None, None
