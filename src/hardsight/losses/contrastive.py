"""Losses on pairs of features: AMC-Loss on the sphere (angles) and the Euclidean contrastive loss it is compared with.

What makes two samples neighbours is given by `pair_labels`: logits, whose argmax is the prediction (AMC, Eq. 3, how
the paper trains), or class indices, the true labels. Pairs are the batch's first half against its second, sample by
sample ("halves": doubly stochastic sampling when batches are shuffled), or every two samples ("all").

Of the Euclidean loss there are two readings. The paper's Eq. 1 is the length of the difference of two features as they
are, not normalised. The authors' public script holds no Euclidean loss; the code it follows (SNTG, Luo et al. 2018,
the paper's reference for the pairs) also leaves features as they are, but takes the mean of the squared
differences over the dimensions, not their sum: `per_dimension=True`.

Under several processes the pairs run over the whole batch, the processes' samples in the order of their ranks, so the
value and the averaged gradient are those of one process; with `across_processes=False` each process pairs its own.
Pairs across the parts of an accumulated batch do not exist: accumulate whole batches, or gather features first.

Last, the two schedules AMC-Loss is trained with: the paper's and the authors' script's.
"""

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hardsight import distributed
from hardsight.derivatives import wants_gradient
from hardsight.geometry import angle_between, angles_to_classes, widen
from hardsight.kernels.dispatch import Fused, chooses_fused
from hardsight.kernels.pairwise_angular_contrast import pairwise_angular_contrast
from hardsight.losses.inputs import check_floating, check_range, flat_weight, reduce, weight_of, within_squares
from hardsight.losses.registry import LossModule, Positive, Reduction, checked, one_of, registered
from hardsight.losses.terms import Over

Pairing = Annotated[str, one_of("halves", "all")]
Odd = Annotated[str, one_of("raise", "drop_last")]
MarginRadians = Annotated[float, functools.partial(check_range, low=0.0, high=math.pi, open_low=True)]


@checked
def amc_loss(
    features: Tensor, pair_labels: Tensor, margin_radians: MarginRadians = 0.5, *, pairs: Pairing = "halves",
    odd: Odd = "raise", sample_weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean",
    across_processes: bool = True, fused: Fused = "auto",
) -> Float[Tensor, "..."]:  # fmt: skip
    """angle^2 for neighbours, max(0, margin - angle)^2 for others (AMC, Eq. 2); mean over the pairs. In [0, pi^2].

    The paper divides by the batch size, the authors' code by the number of pairs, as here. A batch that has no halves
    is an error, unless `odd="drop_last"` leaves out its last sample. A pair's weight is the product of its samples'; a
    pair with an ignored label does not count.
    """
    labels = _labels(features, pair_labels)
    obstacle = None if pairs == "all" else "pairs must be 'all', halves are cheap"
    if reduction == "none":
        obstacle = obstacle or "reduction must be 'mean' or 'sum'"
    if chooses_fused(fused, features, unless=obstacle):
        known = weight_of(sample_weight, (len(features),))
        if across_processes and wants_gradient(features) and distributed.several():
            known = torch.ones_like(labels, dtype=torch.float32) if known is None else known
            features, labels, known = _gathered(features, labels, known)

        def plain(features: Tensor) -> Tensor:
            return amc_loss(
                features, labels, margin_radians, pairs=pairs, sample_weight=known, ignore_index=ignore_index,
                reduction=reduction, across_processes=False, fused=False,
            )  # fmt: skip

        return pairwise_angular_contrast(features, labels, margin_radians, known, ignore_index, reduction, plain=plain)
    batch = _pairs(features, labels, pairs, odd, sample_weight, ignore_index, across_processes)
    if pairs == "halves":
        angle = angle_between(batch.features[batch.left], batch.features[batch.right])
    else:
        angle = batch.upper(angles_to_classes(batch.features, batch.features, exact=False))
    return batch.contrast(angle, margin_radians, reduction)


@checked
def contrastive_loss(
    features: Tensor, pair_labels: Tensor, *, margin: Positive = 1.0, per_dimension: bool = False,
    pairs: Pairing = "halves", odd: Odd = "raise", sample_weight: Tensor | None = None, ignore_index: int = -100,
    reduction: Reduction = "mean", across_processes: bool = True,
) -> Float[Tensor, "..."]:  # fmt: skip
    """distance^2 for neighbours, max(0, margin - distance)^2 for others (AMC, Eq. 1); options as for `amc_loss`.

    With `per_dimension` the distance is divided by sqrt(dim): its square is the mean over the dimensions, and margin
    and weight mean the same for features of any width.
    """
    labels = _labels(features, pair_labels)
    batch = _pairs(features, labels, pairs, odd, sample_weight, ignore_index, across_processes)
    near = within_squares(batch.features)
    if pairs == "halves":
        distance = torch.linalg.vector_norm(near[batch.left] - near[batch.right], dim=-1)
    else:
        # Differences, not products: a distance from products is wrong near zero, where neighbours are drawn to.
        distance = batch.upper(torch.cdist(near, near, compute_mode="donot_use_mm_for_euclid_dist"))
    if per_dimension:
        distance = distance / math.sqrt(batch.features.shape[1])
    return batch.contrast(distance, margin, reduction)


class _PairLoss(LossModule):
    @property
    def mean_over(self) -> Over:
        """What it is a mean over; a sum over all processes' pairs is the same in each of them."""
        if self.across_processes:
            return "processes" if self.reduction == "mean" else "step"
        return "samples" if self.reduction == "mean" else "nothing"

    def forward(self, features: Tensor, pair_labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return self.call(features, pair_labels, sample_weight=sample_weight)


_AMC, _EVERY_TWO = "Choi et al., CVPR-W 2020, Eq. ", "the same over every two samples"
_LAWS: dict[str, Any] = {"soft_targets": False, "pairs": True, "best_at_label": False}
_ALL: dict[str, Any] = {"options": lambda sizes: {"pairs": "all"}} | _LAWS


@registered("amc_all_pairs", _EVERY_TWO, f"{_AMC}2", high=math.pi**2, **_ALL)
@registered("amc", "θ² for neighbours, max(0, m−θ)² for others", f"{_AMC}2", high=math.pi**2, **_LAWS)
class AMCLoss(_PairLoss, of=amc_loss):
    """`amc_loss` as a module: forward(features, logits) with predictions, forward(features, labels) with the truth."""


@registered("contrastive_all_pairs", _EVERY_TWO, f"{_AMC}1", **_ALL)
@registered("contrastive", "d² for neighbours, max(0, m−d)² for others", f"{_AMC}1", **_LAWS)
class ContrastiveLoss(_PairLoss, of=contrastive_loss):
    """`contrastive_loss` as a module: forward(features, logits) or forward(features, labels)."""


class _Pairs(NamedTuple):
    features: Float[Tensor, "batch dim"]
    left: Int[Tensor, "pairs"]
    right: Int[Tensor, "pairs"]
    neighbours: Bool[Tensor, "pairs"]
    weight: Float[Tensor, "pairs"]

    def upper(self, matrix: Float[Tensor, "batch batch"]) -> Float[Tensor, "pairs"]:
        """The matrix's entries of the pairs; a flat index has a cheaper backward than a pair of them."""
        return matrix.flatten().index_select(0, self.left * len(matrix) + self.right)

    def contrast(self, distance: Float[Tensor, "pairs"], margin: float, reduction: str) -> Float[Tensor, "..."]:
        losses = torch.where(self.neighbours, distance, (margin - distance).clamp_min(0.0)).square()
        return reduce(losses, reduction, weight=self.weight)


def _pairs(
    features: Tensor, labels: Tensor, pairs: str, odd: str, sample_weight: Tensor | None, ignore_index: int,
    across_processes: bool,
) -> _Pairs:  # fmt: skip
    """The batch, over all processes where asked, and which of its samples make pairs."""
    features = widen(features)
    weight = torch.ones(len(features), dtype=features.dtype, device=features.device)
    if sample_weight is not None:
        weight = flat_weight(sample_weight, tuple(labels.shape), features)
    weight = torch.where(labels == ignore_index, 0.0, weight)
    if across_processes and wants_gradient(features):
        features, labels, weight = _gathered(features, labels, weight)
    count = len(features)
    if pairs == "all":
        left, right = torch.triu_indices(count, count, offset=1, device=features.device)
    else:
        if count % 2 and odd == "raise":
            raise ValueError(
                f"features must be an even number of samples to pair its halves (odd='drop_last' leaves out the last, "
                f"number {count - 1}); got {count}"
            )
        left = torch.arange(count // 2, device=features.device)
        right = left + count // 2
    return _Pairs(features, left, right, labels[left] == labels[right], weight[left] * weight[right])


def _gathered(*given: Tensor) -> list[Tensor]:
    """All processes' samples."""
    counts = distributed.count_samples(given[0])
    return [distributed.gather_samples(one, counts=counts) for one in given]


def _labels(features: Tensor, pair_labels: Tensor) -> Int[Tensor, "batch"]:
    check_floating(features, "features")
    if features.ndim != 2 or not features.shape[1]:
        raise ValueError(f"features must be [batch, dim] with a dim of at least 1; got shape {list(features.shape)}")
    if pair_labels.is_floating_point() and pair_labels.ndim == 2 and len(pair_labels) == len(features):
        return pair_labels.argmax(-1)
    if pair_labels.is_floating_point() or pair_labels.shape != features.shape[:1]:
        raise ValueError(
            f"pair_labels must be {len(features)} class indices, or logits of that many rows; got {pair_labels.dtype} "
            f"of shape {list(pair_labels.shape)}"
        )
    return pair_labels.long()


def gaussian_ramp_up(epoch: float | int, length: float | int, sharpness: float = 5.0) -> float:
    """exp(-sharpness (1 - epoch/length)^2) during the first `length` epochs, then 1. In (0, 1]."""
    missing = 1 - max(0.0, epoch) / length if epoch < length else 0.0
    return math.exp(-sharpness * missing**2)


def gaussian_ramp_down(epoch: float | int, epochs: float | int, length: float | int, sharpness: float = 12.5) -> float:
    """1, then exp(-sharpness (1 - (epochs - epoch)/length)^2) during the last `length` of `epochs`. In (0, 1]."""
    gone = max(0.0, 1 - (epochs - epoch) / length) if length > 0 else 0.0
    return math.exp(-sharpness * gone**2)


@dataclass(frozen=True)
class AMCSchedule:
    """How AMC training changes over its epochs, counted from 0: loss weight, learning rate, Adam's beta1."""

    epochs: int
    ramp_up: int
    ramp_down: int
    down_sharpness: float
    coefficient: float
    skips_first_epoch: bool
    learning_rate: float = 0.003
    beta1: float = 0.9
    last_beta1: float = 0.5

    def loss_weight(self, epoch: float | int) -> float:
        """What AMC-Loss is multiplied by before it is added to the cross-entropy."""
        if self.skips_first_epoch and epoch == 0:
            return 0.0
        return self.coefficient * gaussian_ramp_up(epoch, self.ramp_up)


# Section 3.2 of the paper. Its mean is printed over the batch, half of `amc_loss`, which takes it over the pairs.
AMC_PAPER = AMCSchedule(
    epochs=300, ramp_up=80, ramp_down=50, down_sharpness=12.5, coefficient=0.1, skips_first_epoch=False
)
# The authors' script: 100 * 0.1 at full ramp, a ramp-down of exp(-(t/2)^2 / length), nothing in the first epoch.
AMC_SCRIPT = AMCSchedule(
    epochs=200, ramp_up=50, ramp_down=30, down_sharpness=7.5, coefficient=10.0, skips_first_epoch=True
)
