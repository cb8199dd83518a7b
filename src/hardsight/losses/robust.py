"""Losses that forgive wrong labels by their shape: MAE, GCE, symmetric cross-entropy, focal loss, bootstrapping."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.losses.inputs import LogitLoss, Rows, as_rows, bounded, check_range


def mae_loss(
    logits: Tensor,
    target: Tensor,
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """L1 distance between softmax and target (Ghosh et al., 2017): 2 (1 - p_y) for a class index. In [0, 2]."""
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    log_p = rows.log_softmax()
    if rows.probabilities is None:
        losses = -2 * torch.expm1(rows.at_label(log_p))
    else:
        losses = (log_p.exp() - rows.probabilities).abs().sum(-1)
    return rows.reduce(losses, reduction)


def gce_loss(
    logits: Tensor,
    target: Tensor,
    *,
    q: float = 0.7,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """Generalised cross-entropy (1 - p_y^q) / q (Zhang & Sabuncu, 2018). In [0, 1/q]; q = 1 is MAE / 2, q -> 0 CCE."""
    check_q(q)
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    return rows.reduce(rows.expected(rows.log_softmax(), lambda log_p: box_cox(log_p, q)), reduction)


def symmetric_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 0.1,
    beta: float = 1.0,
    log_zero: float = -4.0,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """alpha CE(y, p) + beta CE(p, y), with log 0 replaced by `log_zero` (SL; Wang et al., 2019).

    For a class index the second term is -log_zero (1 - p_y): MAE times -log_zero / 2. Defaults: the paper's for
    CIFAR-10; it uses alpha = 6, beta = 0.1 for CIFAR-100.
    """
    _check_symmetric(alpha, beta, log_zero)
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    log_p = rows.log_softmax()
    if rows.probabilities is None:
        reverse = log_zero * torch.expm1(rows.at_label(log_p))
    else:
        reverse = -(log_p.exp() * rows.probabilities.log().clamp_min(log_zero)).sum(-1)
    return rows.reduce(-alpha * rows.expected(log_p) + beta * reverse, reduction)


def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """-(1 - p_y)^gamma log p_y (Lin et al., 2017): cross-entropy that dwells on hard samples; gamma = 0 is CCE."""
    check_range(gamma, "gamma", 0.0)
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    if gamma == 0:
        return rows.reduce(-rows.expected(rows.log_softmax()), reduction)
    # From log(1 - p): a power of 1 - p itself has an infinite slope at p = 1 when gamma < 1.
    if rows.labels is None:
        log_p = rows.log_softmax()
        return rows.reduce(-rows.expected((gamma * log_one_minus(log_p)).exp() * _at_least_finite(log_p)), reduction)
    # Both logarithms from the log-odds: log(1 - p) by way of the softmax has as gradient a difference of nearly equal
    # shares, which a log p of many thousands lifts out of the rounding.
    log_odds = _log_odds(rows)
    log_rest, log_p = nn.functional.logsigmoid(-log_odds), nn.functional.logsigmoid(log_odds)
    # So that gamma times it, in the gradient, is a number.
    log_p = bounded(log_p, torch.finfo(log_p.dtype).max * 1e-6)
    return rows.reduce(-(gamma * log_rest).exp() * log_p, reduction)


def bootstrapping_loss(
    logits: Tensor,
    target: Tensor,
    *,
    beta: float = 0.95,
    hard: bool = False,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """Cross-entropy to beta target + (1 - beta) prediction (Reed et al., 2015): softmax, or its argmax when `hard`.

    The paper's beta is 0.95 for soft and 0.8 for hard. The gradient flows through the soft prediction, which makes
    that term the entropy.
    """
    check_range(beta, "beta", 0.0, 1.0)
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    log_p = rows.log_softmax()
    own = -log_p.amax(-1) if hard else entropy(log_p)
    return rows.reduce(-beta * rows.expected(log_p) + (1 - beta) * own, reduction)


class MAELoss(LogitLoss):
    """`mae_loss` as a module."""

    function = staticmethod(mae_loss)

    def __init__(self, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)


class GCELoss(LogitLoss):
    """`gce_loss` as a module."""

    function = staticmethod(gce_loss)

    def __init__(self, q: float = 0.7, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index, q=check_q(q))


class SymmetricCrossEntropy(LogitLoss):
    """`symmetric_cross_entropy` as a module."""

    function = staticmethod(symmetric_cross_entropy)

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        log_zero: float = -4.0,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        _check_symmetric(alpha, beta, log_zero)
        super().__init__(reduction=reduction, ignore_index=ignore_index, alpha=alpha, beta=beta, log_zero=log_zero)


class FocalLoss(LogitLoss):
    """`focal_loss` as a module."""

    function = staticmethod(focal_loss)

    def __init__(self, gamma: float = 2.0, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        check_range(gamma, "gamma", 0.0)
        super().__init__(reduction=reduction, ignore_index=ignore_index, gamma=gamma)


class SoftBootstrapping(LogitLoss):
    """`bootstrapping_loss` with the softmax as prediction, as a module."""

    function = staticmethod(bootstrapping_loss)

    def __init__(self, beta: float = 0.95, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        check_range(beta, "beta", 0.0, 1.0)
        super().__init__(reduction=reduction, ignore_index=ignore_index, beta=beta, hard=False)


class HardBootstrapping(LogitLoss):
    """`bootstrapping_loss` with the argmax as prediction, as a module."""

    function = staticmethod(bootstrapping_loss)

    def __init__(self, beta: float = 0.8, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        check_range(beta, "beta", 0.0, 1.0)
        super().__init__(reduction=reduction, ignore_index=ignore_index, beta=beta, hard=True)


def box_cox(log_p: Tensor, q: float) -> Tensor:
    """(1 - p^q) / q from log p, exact near p = 1."""
    return -torch.expm1(q * log_p) / q


def log_one_minus(log_p: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows classes"]:
    """log(1 - p) of each class, from the other classes' probabilities where p is near 1."""
    # Up to p = 1/2 the direct form is exact; above it, where one class at most can be, 1 - p is the others' sum.
    top = log_p.argmax(-1, keepdim=True)
    others = log_p.scatter(-1, top, -math.inf).logsumexp(-1, keepdim=True)
    direct = torch.log1p(-log_p.scatter(-1, top, -math.inf).exp())
    return direct.scatter(-1, top, others)


def _log_odds(rows: Rows) -> Float[Tensor, "rows"]:
    """log p / (1 - p) of the label: its logit less the log-sum-exp of the others."""
    assert rows.labels is not None
    shifted = rows.logits - rows.logits.detach().amax(-1, keepdim=True)
    # Not minus infinity, or a row whose other classes are all masked out has none that is finite.
    others = shifted.scatter(-1, rows.labels.unsqueeze(-1), torch.finfo(shifted.dtype).min)
    return _at_least_finite(rows.at_label(shifted) - others.logsumexp(-1))


def _at_least_finite(log_p: Tensor) -> Tensor:
    """Of a class that was masked out the smallest number: times 0, minus infinity would spoil the gradient."""
    return log_p.clamp_min(torch.finfo(log_p.dtype).min)


def entropy(log_p: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows"]:
    """Entropy of each row in nats, from log probabilities; a class that was masked out counts 0."""
    return -(log_p.exp() * _at_least_finite(log_p)).sum(-1)


def check_q(q: float) -> float:
    return check_range(q, "q", 0.0, 1.0, open_low=True)


def _check_symmetric(alpha: float, beta: float, log_zero: float) -> None:
    check_range(alpha, "alpha", 0.0)
    check_range(beta, "beta", 0.0)
    if not -math.inf < log_zero < 0:
        raise ValueError(f"log_zero must be negative and finite, it stands for log 0; got {log_zero!r}")
