"""Cross-entropy and its relatives: label smoothing, spherical and Taylor softmax, and learning from another network."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.geometry import widen
from hardsight.losses.inputs import Rows, check_range, reduce, weight_of
from hardsight.losses.registry import Positive, Share, loss, module_of, registered
from hardsight.validation import check_labels


@loss("cross_entropy", "CrossEntropy", "−log p_y", "PyTorch's `F.cross_entropy`", fixed={"label_smoothing": 0.0})
def cross_entropy(rows: Rows, *, label_smoothing: Share = 0.0) -> Float[Tensor, "rows"]:
    """-log softmax at the label: `torch.nn.functional.cross_entropy` with a weight a sample.

    With label smoothing (Szegedy et al., 2016) the target becomes (1 - eps) target + eps / classes.
    """
    log_p = rows.log_softmax()
    losses = -rows.expected(log_p)
    if label_smoothing > 0:
        losses = (1 - label_smoothing) * losses - label_smoothing * log_p.mean(-1)
    return losses


@loss("spherical_softmax", "SphericalSoftmaxLoss", "−log (z_y²+ε) / Σ(z²+ε)", "Vincent et al., NeurIPS 2015")
def spherical_softmax_loss(rows: Rows, *, epsilon: Positive = 1e-6) -> Float[Tensor, "rows"]:
    """-log of (z_y^2 + eps) / sum (z_k^2 + eps) (Vincent et al., 2015); blind to the logits' signs.

    `epsilon` keeps a zero logit finite; its size is this library's choice.
    """
    scale = _square_scale(rows.logits)
    positive = (rows.logits / scale).square() + epsilon / scale.square()
    return _ratio_loss(rows, positive)


@loss("taylor_softmax", "TaylorSoftmaxLoss", "−log t(z_y) / Σt(z), t = 1+z+z²/2", "de Brébisson & Vincent, ICLR 2016")
def taylor_softmax_loss(rows: Rows) -> Float[Tensor, "rows"]:
    """-log of t(z_y) / sum t(z_k) with t(z) = 1 + z + z^2/2 (de Brebisson & Vincent, 2016); t is at least 1/2."""
    scale = _square_scale(rows.logits)
    scaled = rows.logits / scale
    # ((1 + z)^2 + 1) / 2: the same parabola without the cancellation near z = -1.
    positive = ((1 / scale + scaled).square() + 1 / scale.square()) / 2
    return _ratio_loss(rows, positive)


CrossEntropy = cross_entropy.module
LabelSmoothing = registered(
    "label_smoothing", "−Σ ((1−ε) y + ε/C) log p", "Szegedy et al., CVPR 2016", best_at_label=False
)(module_of(cross_entropy, "LabelSmoothing", label_smoothing=0.1))
SphericalSoftmaxLoss = spherical_softmax_loss.module
TaylorSoftmaxLoss = taylor_softmax_loss.module


def _square_scale(logits: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows 1"]:
    """What to divide the logits by so that their squares stay finite; it cancels in the ratio."""
    return logits.detach().abs().amax(-1, keepdim=True).clamp_min(1.0)


def _ratio_loss(rows: Rows, positive: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows"]:
    """-log of each class's share of the sum, at the target."""
    smallest = torch.finfo(positive.dtype).tiny
    log_share = positive.clamp_min(smallest).log() - positive.sum(-1, keepdim=True).log()
    return -rows.expected(log_share)


def distillation_loss(
    logits: Float[Tensor, "batch classes"], teacher_logits: Tensor, labels: Integer[Tensor, "batch"] | None = None, *,
    temperature: int | float = 4.0, teacher_share: int | float = 0.9, sample_weight: Tensor | None = None,
) -> Float[Tensor, ""]:  # fmt: skip
    """Mean of share T² KL(teacher || student) at temperature T, plus (1 - share) cross-entropy of the labels.

    As Hinton et al. (2015). Without labels the teacher's part alone. `sample_weight`, the teacher's AVH of each sample
    say, makes it a weighted mean. At least 0; no gradient reaches the teacher.
    """
    check_range(temperature, "temperature", 0.0, open_low=True)
    check_range(teacher_share, "teacher_share", 0.0, 1.0)
    if logits.shape != teacher_logits.shape or logits.ndim != 2:
        raise ValueError(
            f"teacher_logits must have the shape of logits, {list(logits.shape)}; got {list(teacher_logits.shape)}"
        )
    student = (widen(logits) / temperature).log_softmax(1)
    teacher = (widen(teacher_logits.detach()) / temperature).log_softmax(1)
    losses = temperature**2 * torch.nn.functional.kl_div(student, teacher, reduction="none", log_target=True).sum(1)
    if labels is not None:
        check_labels(labels, *logits.shape)
        own = torch.nn.functional.cross_entropy(widen(logits), labels, reduction="none")
        losses = teacher_share * losses + (1 - teacher_share) * own
    if (weight := weight_of(sample_weight, losses.shape)) is not None:
        weight = weight.to(losses.dtype)
    return reduce(losses, "mean", weight=weight)
