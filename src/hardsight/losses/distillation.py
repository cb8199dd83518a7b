"""Learning from another network's outputs, more from some samples than from others."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.geometry import widen
from hardsight.losses.inputs import check_range
from hardsight.validation import check_labels


def distillation_loss(
    logits: Float[Tensor, "batch classes"],
    teacher_logits: Tensor,
    labels: Integer[Tensor, "batch"] | None = None,
    *,
    temperature: int | float = 4.0,
    teacher_share: int | float = 0.9,
    sample_weight: Tensor | None = None,
) -> Float[Tensor, ""]:
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
    if sample_weight is None:
        return losses.mean()
    if sample_weight.shape != losses.shape or not bool((sample_weight >= 0).all()):
        raise ValueError(f"sample_weight must be one number, 0 or more, for each of {len(losses)} samples")
    return (sample_weight * losses).sum() / sample_weight.sum().clamp_min(torch.finfo(losses.dtype).tiny)
