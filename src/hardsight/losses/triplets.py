"""Metric learning by angle: triplets of a hard positive and a semi-hard negative for each anchor, and their loss."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.geometry import angle_between, angles_to_classes, widen
from hardsight.losses.inputs import check_range
from hardsight.validation import check_finite, check_labels


class Triplets(NamedTuple):
    """Positions in the batch, one row a triplet, ordered by anchor."""

    anchors: Tensor
    positives: Tensor
    negatives: Tensor


@torch.no_grad()
def mine_triplets(
    features: Float[Tensor, "batch dim"],
    labels: Int[Tensor, "batch"],
    *,
    margin_radians: float = math.inf,
    hardness: Float[Tensor, "batch"] | None = None,
    share: float = 1.0,
) -> Triplets:
    """For each anchor the same-class sample at the largest angle, and the nearest of the semi-hard negatives.

    Semi-hard are the samples of other classes that are farther than the positive by less than `margin_radians`
    (FaceNet, Section 3.2, in angles); where there is none, the nearest negative of all is taken. An anchor without a
    positive or without a negative makes no triplet. With `hardness` (AVH, say) only the hardest `share` of the batch
    become anchors. Ties go to the first position. Unchanged by rotating the features and by rescaling any of them.
    """
    check_finite("features", features)
    check_labels(labels, len(features), int(labels.max()) + 1 if len(labels) else 1)
    if not margin_radians > 0:
        raise ValueError(f"margin_radians must be positive; got {margin_radians!r}")
    check_range(share, "share", 0.0, 1.0, open_low=True)
    if not len(labels):
        return Triplets(*(labels.new_empty(0, dtype=torch.int64) for _ in range(3)))
    # Half precision has too few numbers for angles that lie close together.
    features = widen(features)
    angles = angles_to_classes(features, features)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    others = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    hardest, positives = torch.where(others, angles, -1.0).max(1)
    beyond = angles - hardest.unsqueeze(1)
    semi_hard = ~same & (beyond > 0) & (beyond < margin_radians)
    nearest_semi_hard = torch.where(semi_hard, angles, math.inf).argmin(1)
    nearest = torch.where(same, math.inf, angles).argmin(1)
    usable = others.any(1) & (~same).any(1)
    if hardness is not None:
        usable &= _hardest(hardness, share)
    anchors = usable.nonzero().squeeze(1)
    negatives = torch.where(semi_hard.any(1), nearest_semi_hard, nearest)
    return Triplets(anchors, positives[anchors], negatives[anchors])


def triplet_loss(
    features: Float[Tensor, "batch dim"],
    labels: Int[Tensor, "batch"],
    *,
    margin_radians: float = 0.2,
    hardness: Float[Tensor, "batch"] | None = None,
    share: float = 1.0,
) -> Float[Tensor, ""]:
    """Mean over mined triplets of max(0, angle to the positive - angle to the negative + margin), in radians.

    The triplets are those of `mine_triplets`; a batch without any has the loss 0. At least 0; unchanged by rotating
    the features and by rescaling any of them.
    """
    mined = mine_triplets(features.detach(), labels, margin_radians=margin_radians, hardness=hardness, share=share)
    wide = widen(features)
    anchors = wide[mined.anchors]
    gaps = angle_between(anchors, wide[mined.positives]) - angle_between(anchors, wide[mined.negatives])
    return (gaps + margin_radians).clamp_min(0.0).sum() / max(1, len(gaps))


class TripletLoss(nn.Module):
    """`triplet_loss` as a module: forward(features, labels)."""

    def __init__(self, margin_radians: float = 0.2) -> None:
        super().__init__()
        self.margin_radians = check_range(margin_radians, "margin_radians", 0.0, open_low=True)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return triplet_loss(features, labels, margin_radians=self.margin_radians)

    def extra_repr(self) -> str:
        return f"margin_radians={self.margin_radians}"


def _hardest(hardness: Tensor, share: float) -> Tensor:
    # Sorting puts NaN first: what is not known would be the hardest.
    check_finite("hardness", hardness)
    chosen = torch.zeros_like(hardness, dtype=torch.bool)
    # Past the rounding of the product: 0.07 of 100 is 7.
    count = math.ceil(round(share * len(hardness), 9))
    chosen[hardness.argsort(descending=True, stable=True)[:count]] = True
    return chosen
