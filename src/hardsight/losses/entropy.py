"""Cross-entropy, the yardstick of this room, and its relatives: label smoothing, spherical and Taylor softmax."""

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.losses.inputs import LogitLoss, Rows, as_rows, check_range


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """-log softmax at the label: `torch.nn.functional.cross_entropy` with a weight a sample.

    With label smoothing (Szegedy et al., 2016) the target becomes (1 - eps) target + eps / classes.
    """
    check_range(label_smoothing, "label_smoothing", 0.0, 1.0)
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    log_p = rows.log_softmax()
    losses = -rows.expected(log_p)
    if label_smoothing > 0:
        losses = (1 - label_smoothing) * losses - label_smoothing * log_p.mean(-1)
    return rows.reduce(losses, reduction)


def spherical_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    epsilon: float = 1e-6,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """-log of (z_y^2 + eps) / sum (z_k^2 + eps) (Vincent et al., 2015); blind to the logits' signs.

    `epsilon` keeps a zero logit finite; its size is this library's choice.
    """
    check_range(epsilon, "epsilon", 0.0, open_low=True)
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    scale = _square_scale(rows.logits)
    positive = (rows.logits / scale).square() + epsilon / scale.square()
    return rows.reduce(_ratio_loss(rows, positive), reduction)


def taylor_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """-log of t(z_y) / sum t(z_k) with t(z) = 1 + z + z^2/2 (de Brebisson & Vincent, 2016); t is at least 1/2."""
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    scale = _square_scale(rows.logits)
    scaled = rows.logits / scale
    # ((1 + z)^2 + 1) / 2: the same parabola without the cancellation near z = -1.
    positive = ((1 / scale + scaled).square() + 1 / scale.square()) / 2
    return rows.reduce(_ratio_loss(rows, positive), reduction)


class CrossEntropy(LogitLoss):
    """`cross_entropy` as a module."""

    function = staticmethod(cross_entropy)

    def __init__(self, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)


class LabelSmoothing(LogitLoss):
    """Cross-entropy with the target (1 - smoothing) target + smoothing / classes (Szegedy et al., 2016)."""

    function = staticmethod(cross_entropy)

    def __init__(self, label_smoothing: float = 0.1, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        check_range(label_smoothing, "label_smoothing", 0.0, 1.0)
        super().__init__(reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing)


class SphericalSoftmaxLoss(LogitLoss):
    """`spherical_softmax_loss` as a module."""

    function = staticmethod(spherical_softmax_loss)

    def __init__(self, epsilon: float = 1e-6, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        check_range(epsilon, "epsilon", 0.0, open_low=True)
        super().__init__(reduction=reduction, ignore_index=ignore_index, epsilon=epsilon)


class TaylorSoftmaxLoss(LogitLoss):
    """`taylor_softmax_loss` as a module."""

    function = staticmethod(taylor_softmax_loss)

    def __init__(self, *, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)


def _square_scale(logits: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows 1"]:
    """What to divide the logits by so that their squares stay finite; it cancels in the ratio."""
    return logits.detach().abs().amax(-1, keepdim=True).clamp_min(1.0)


def _ratio_loss(rows: Rows, positive: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows"]:
    """-log of each class's share of the sum, at the target."""
    smallest = torch.finfo(positive.dtype).tiny
    log_share = positive.clamp_min(smallest).log() - positive.sum(-1, keepdim=True).log()
    return -rows.expected(log_share)
