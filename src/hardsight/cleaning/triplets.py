"""Triplets for metric learning, mined by angle: the hardest positive and a semi-hard negative for each anchor."""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.cleaning.samplers import count_of
from hardsight.geometry import angles_to_classes, widen
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
    otherwise: Literal["nearest", "drop"] = "nearest",
    hardness: Float[Tensor, "batch"] | None = None,
    share: float = 1.0,
) -> Triplets:
    """For each anchor the same-class sample at the largest angle, and the nearest of the semi-hard negatives.

    Semi-hard are the samples of other classes that are farther than the positive by less than `margin_radians`
    (FaceNet, Section 3.2, in angles). Where there is none, `otherwise` takes the nearest negative of all or drops the
    anchor. An anchor without a positive or without a negative makes no triplet. With `hardness` (AVH, say) only the
    hardest `share` of the batch become anchors. Ties go to the first position. Unchanged by rotating the features and
    by rescaling any of them.
    """
    _check(features, labels, margin_radians, otherwise, share)
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
    has_semi_hard = semi_hard.any(1)
    usable = others.any(1) & (~same).any(1)
    if otherwise == "drop":
        usable &= has_semi_hard
    if hardness is not None:
        usable &= _hardest(hardness, share)
    anchors = usable.nonzero().squeeze(1)
    negatives = torch.where(has_semi_hard, nearest_semi_hard, nearest)
    return Triplets(anchors, positives[anchors], negatives[anchors])


def _hardest(hardness: Tensor, share: float) -> Tensor:
    # Sorting puts NaN first: what is not known would be the hardest.
    check_finite("hardness", hardness)
    chosen = torch.zeros_like(hardness, dtype=torch.bool)
    count = count_of(share, len(hardness), math.ceil)
    chosen[hardness.argsort(descending=True, stable=True)[:count]] = True
    return chosen


def _check(features: Tensor, labels: Tensor, margin_radians: float, otherwise: str, share: float) -> None:
    check_finite("features", features)
    check_labels(labels, len(features), int(labels.max()) + 1 if len(labels) else 1)
    if not margin_radians > 0:
        raise ValueError(f"margin_radians must be positive; got {margin_radians!r}")
    if otherwise not in ("nearest", "drop"):
        raise ValueError(f'otherwise must be "nearest" or "drop"; got {otherwise!r}')
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], the share of the batch that become anchors; got {share!r}")
