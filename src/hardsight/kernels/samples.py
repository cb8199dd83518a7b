"""What the losses share: who counts and how much, and the reduction by it (`fused.samples` in kernels)."""

import torch
from torch import Tensor

from hardsight.geometry import widen


def kept_labels(labels: Tensor, sample_weight: Tensor | None, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Labels with 0 where ignored, and the sample weights with 0 there."""
    kept = labels != ignore_index
    weight = kept.float() if sample_weight is None else torch.where(kept, widen(sample_weight), 0.0)
    return torch.where(kept, labels, 0).long(), weight


def reduced(losses: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """The weighted mean (0 over nothing), sum or losses; "weight" concerns the gradient alone and logs the mean."""
    losses = torch.where(weight == 0, 0.0, losses * weight)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    total = weight.sum()
    return losses.sum() / torch.where(total == 0, 1.0, total)
