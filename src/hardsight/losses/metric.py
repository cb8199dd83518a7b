"""Losses that move features by class: center loss (Wen et al., 2016), and triplets mined by angle.

In the one features are drawn to their class's centre, and the centres follow the features; in the other each anchor
meets a hard positive and a semi-hard negative.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight import distributed
from hardsight.geometry import angle_between, angles_to_classes, widen
from hardsight.losses.inputs import check_floating, check_labels, check_range, flat_weight, reduce, within_squares
from hardsight.losses.registry import LossModule, Positive, registered
from hardsight.validation import check_finite
from hardsight.validation import check_labels as check_class_indices


def center_loss(
    features: Tensor, labels: Tensor, centers: Float[Tensor, "classes dim"], *, sample_weight: Tensor | None = None,
    ignore_index: int = -100, reduction: str = "mean",
) -> Float[Tensor, "..."]:  # fmt: skip
    """Half the squared distance from each feature to its class's centre. At least 0."""
    features, flat, weight = _check(features, labels, centers, sample_weight, ignore_index)
    losses = (features - centers[flat].to(features.dtype)).square().sum(-1) / 2
    return reduce(losses, reduction, weight=weight)


@torch.no_grad()
def updated_centers(
    centers: Float[Tensor, "classes dim"], features: Tensor, labels: Tensor, *, rate: float = 0.5,
    ignore_index: int = -100, across_processes: bool = True,
) -> Float[Tensor, "classes dim"]:  # fmt: skip
    """Centres after one batch: c - rate sum(c - x) / (1 + n) over the class's n features (Eq. 4), all processes'."""
    features, flat, kept = _check(features, labels, centers, None, ignore_index)
    counts = torch.zeros(len(centers), dtype=features.dtype, device=features.device).index_add(0, flat, kept)
    sums = torch.zeros_like(centers, dtype=features.dtype).index_add(0, flat, features * kept.unsqueeze(-1))
    if across_processes:
        counts, sums = distributed.sum_over_processes(counts), distributed.sum_over_processes(sums)
    counts = counts.unsqueeze(-1)
    return centers - (rate * (counts * centers - sums) / (1 + counts)).to(centers.dtype)


@registered(
    "center", "½ ‖x − c_y‖²", "Wen et al., ECCV 2016", best_at_label=False, class_rows=("centers",), soft_targets=False
)
class CenterLoss(LossModule, of=center_loss):
    """`center_loss` with its centres, which a forward pass in training mode also updates: forward(features, labels).

    The centres are a buffer: saved with the state, left alone by the optimiser. They start at zero. A sample of weight
    0 moves none.
    """

    centers: Tensor

    def __init__(
        self, dim: int, classes: int, rate: float = 0.5, *, across_processes: bool = True, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.rate = check_range(rate, "rate", 0.0, 1.0)
        self.across_processes = across_processes
        self.register_buffer("centers", torch.zeros(classes, dim))

    def forward(self, features: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        loss = self.call(features, labels, sample_weight=sample_weight)
        if self.training and torch.is_grad_enabled():
            if sample_weight is not None:
                # What does not count does not draw its centre either.
                labels = torch.where(sample_weight == 0, self.ignore_index, labels.long())
            chosen: dict[str, Any] = {
                name: getattr(self, name) for name in ("rate", "ignore_index", "across_processes")
            }
            # A new tensor, not written in place: a compiled backward may read the old centres again.
            self.centers = updated_centers(self.centers, features.detach(), labels, **chosen)
        return loss

    def extra_repr(self) -> str:
        return f"{self.centers.shape[1]}, {self.centers.shape[0]}, rate={self.rate}"


def _check(
    features: Tensor, labels: Tensor, centers: Tensor, sample_weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    check_floating(features, "features")
    if features.ndim != 2 or features.shape[1] != centers.shape[1]:
        raise ValueError(f"features must be [batch, {centers.shape[1]}], the centres' dim; got {list(features.shape)}")
    if not features.shape[1]:
        raise ValueError(f"features must have a dim of at least 1; got shape {list(features.shape)}")
    flat, kept = check_labels(labels, (len(features),), len(centers), ignore_index)
    features = within_squares(widen(features))
    weight = kept.to(features.dtype)
    if sample_weight is not None:
        weight = torch.where(kept, flat_weight(sample_weight, (len(features),), features), 0.0)
    return features, flat, weight


class Triplets(NamedTuple):
    """Positions in the batch, one row a triplet, ordered by anchor."""

    anchors: Tensor
    positives: Tensor
    negatives: Tensor


@torch.no_grad()
def mine_triplets(
    features: Float[Tensor, "batch dim"], labels: Int[Tensor, "batch"], *, margin_radians: float = math.inf,
    hardness: Float[Tensor, "batch"] | None = None, share: float = 1.0,
) -> Triplets:  # fmt: skip
    """For each anchor the same-class sample at the largest angle, and the nearest of the semi-hard negatives.

    Semi-hard are the samples of other classes that are farther than the positive by less than `margin_radians`
    (FaceNet, Section 3.2, in angles); where there is none, the nearest negative of all is taken. An anchor without a
    positive or without a negative makes no triplet. With `hardness` (AVH, say) only the hardest `share` of the batch
    become anchors. Ties go to the first position. Unchanged by rotating the features and by rescaling any of them.
    """
    check_finite("features", features)
    check_class_indices(labels, len(features), int(labels.max()) + 1 if len(labels) else 1)
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
        # Sorting puts NaN first: what is not known would be the hardest.
        check_finite("hardness", hardness)
        # Past the rounding of the product: 0.07 of 100 is 7.
        count = math.ceil(round(share * len(hardness), 9))
        usable[hardness.argsort(descending=True, stable=True)[count:]] = False
    anchors = usable.nonzero().squeeze(1)
    negatives = torch.where(semi_hard.any(1), nearest_semi_hard, nearest)
    return Triplets(anchors, positives[anchors], negatives[anchors])


def triplet_loss(
    features: Float[Tensor, "batch dim"], labels: Int[Tensor, "batch"], *, margin_radians: Positive = 0.2,
    hardness: Float[Tensor, "batch"] | None = None, share: float = 1.0,
) -> Float[Tensor, ""]:  # fmt: skip
    """Mean over mined triplets of max(0, angle to the positive - angle to the negative + margin), in radians.

    The triplets are those of `mine_triplets`; a batch without any has the loss 0. At least 0; unchanged by rotating
    the features and by rescaling any of them.
    """
    mined = mine_triplets(features.detach(), labels, margin_radians=margin_radians, hardness=hardness, share=share)
    wide = widen(features)
    anchors = wide[mined.anchors]
    gaps = angle_between(anchors, wide[mined.positives]) - angle_between(anchors, wide[mined.negatives])
    return (gaps + margin_radians).clamp_min(0.0).sum() / max(1, len(gaps))


class TripletLoss(LossModule, of=triplet_loss, fixed={"hardness": None, "share": 1.0}):
    """`triplet_loss` as a module: forward(features, labels)."""

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        return self.call(features, labels)
