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
"""

import functools
import math
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hardsight import distributed
from hardsight.derivatives import wants_gradient
from hardsight.geometry import angle_between, angles_to_classes, widen
from hardsight.kernels.dispatch import Fused, chooses_fused
from hardsight.kernels.pairwise_angular_contrast import pairwise_angular_contrast
from hardsight.losses.inputs import (
    check_floating,
    check_range,
    check_reduction,
    flat_weight,
    reduce,
    weight_of,
    within_squares,
)
from hardsight.losses.registry import LossModule, Positive, checked, registered
from hardsight.losses.terms import Over

PAIRS = ("halves", "all")
ODD = ("refuse", "drop_last")
MarginRadians = Annotated[float, functools.partial(check_range, low=0.0, high=math.pi, open_low=True)]


class _Pairs(NamedTuple):
    features: Float[Tensor, "batch dim"]
    left: Int[Tensor, "pairs"]
    right: Int[Tensor, "pairs"]
    neighbours: Bool[Tensor, "pairs"]
    weight: Float[Tensor, "pairs"]


@checked
def amc_loss(
    features: Tensor,
    pair_labels: Tensor,
    margin_radians: MarginRadians = 0.5,
    *,
    pairs: str = "halves",
    odd: str = "refuse",
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    across_processes: bool = True,
    process_group: Any = None,
    fused: Fused = "auto",
) -> Float[Tensor, "..."]:
    """angle^2 for neighbours, max(0, margin - angle)^2 for others (AMC, Eq. 2); mean over the pairs. In [0, pi^2].

    The paper divides by the batch size, the authors' code by the number of pairs, as here. `odd` says what happens to
    a batch that has no halves: "refuse", or "drop_last", which leaves out its last sample. A pair's weight is the
    product of its samples'; a pair with an ignored label does not count.
    """
    check_reduction(reduction)
    _check_pairs(pairs, odd)
    labels, shape = _labels(features, pair_labels), (len(features),)
    if chooses_fused(fused, features, unless=_obstacle(pairs, reduction)):
        known = weight_of(sample_weight, shape)
        if across_processes and wants_gradient(features) and distributed.several(process_group):
            known = torch.ones_like(labels, dtype=torch.float32) if known is None else known
            features, labels, known = _gathered(features, labels, known, process_group)

        def plain(features: Tensor) -> Tensor:
            return amc_loss(
                features, labels, margin_radians, pairs=pairs, sample_weight=known, ignore_index=ignore_index,
                reduction=reduction, across_processes=False, fused=False,
            )  # fmt: skip

        given = (features, labels, margin_radians, known, ignore_index, reduction)
        return pairwise_angular_contrast(*given, plain=plain)
    batch = _pairs(features, pair_labels, pairs, odd, sample_weight, ignore_index, across_processes, process_group)
    if pairs == "halves":
        angle = angle_between(batch.features[batch.left], batch.features[batch.right])
    else:
        angle = _upper(angles_to_classes(batch.features, batch.features, exact=False), batch)
    return reduce(_contrast(angle, batch.neighbours, margin_radians), reduction, weight=batch.weight)


def _obstacle(pairs: str, reduction: str) -> str | None:
    """What keeps the kernel from this call, besides devices and types."""
    if pairs != "all":
        return "pairs must be 'all', halves are cheap"
    return "reduction must be 'mean' or 'sum'" if reduction == "none" else None


def _gathered(features: Tensor, labels: Tensor, weight: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All processes' samples."""
    counts = distributed.count_samples(features, group)
    first, second, third = (distributed.gather_samples(one, group, counts=counts) for one in (features, labels, weight))
    return first, second, third


@checked
def contrastive_loss(
    features: Tensor,
    pair_labels: Tensor,
    *,
    margin: Positive = 1.0,
    per_dimension: bool = False,
    pairs: str = "halves",
    odd: str = "refuse",
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    across_processes: bool = True,
    process_group: Any = None,
) -> Float[Tensor, "..."]:
    """distance^2 for neighbours, max(0, margin - distance)^2 for others (AMC, Eq. 1); options as for `amc_loss`.

    With `per_dimension` the distance is divided by sqrt(dim): its square is the mean over the dimensions, and margin
    and weight mean the same for features of any width.
    """
    batch = _pairs(features, pair_labels, pairs, odd, sample_weight, ignore_index, across_processes, process_group)
    near = within_squares(batch.features)
    if pairs == "halves":
        distance = torch.linalg.vector_norm(near[batch.left] - near[batch.right], dim=-1)
    else:
        # Differences, not products: a distance from products is wrong near zero, where neighbours are drawn to.
        mode = "donot_use_mm_for_euclid_dist"
        distance = _upper(torch.cdist(near, near, compute_mode=mode), batch)
    if per_dimension:
        distance = distance / math.sqrt(batch.features.shape[1])
    return reduce(_contrast(distance, batch.neighbours, margin), reduction, weight=batch.weight)


class _PairLoss(LossModule):
    pairs: str
    odd: str
    across_processes: bool
    process_group: Any

    def check(self) -> None:
        _check_pairs(self.pairs, self.odd)

    @property
    def mean_over(self) -> Over:
        """What it is a mean over; a sum over all processes' pairs is the same in each of them."""
        if self.across_processes:
            return "processes" if self.reduction == "mean" else "step"
        return "samples" if self.reduction == "mean" else "nothing"

    def forward(self, features: Tensor, pair_labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return self.call(features, pair_labels, sample_weight=sample_weight)


_ALL: dict[str, Any] = {"options": lambda sizes: {"pairs": "all"}}
_LAWS: dict[str, Any] = {"soft_targets": False, "pairs": True, "best_at_label": False}


@registered(
    "amc_all_pairs",
    "the same over every two samples",
    "Choi et al., CVPR-W 2020, Eq. 2",
    high=math.pi**2,
    **_ALL,
    **_LAWS,
)
@registered(
    "amc", "θ² for neighbours, max(0, m−θ)² for others", "Choi et al., CVPR-W 2020, Eq. 2", high=math.pi**2, **_LAWS
)
class AMCLoss(_PairLoss, of=amc_loss):
    """`amc_loss` as a module: forward(features, logits) with predictions, forward(features, labels) with the truth."""


@registered(
    "contrastive_all_pairs", "the same over every two samples", "Choi et al., CVPR-W 2020, Eq. 1", **_ALL, **_LAWS
)
@registered("contrastive", "d² for neighbours, max(0, m−d)² for others", "Choi et al., CVPR-W 2020, Eq. 1", **_LAWS)
class ContrastiveLoss(_PairLoss, of=contrastive_loss):
    """`contrastive_loss` as a module: forward(features, logits) or forward(features, labels)."""


def _upper(matrix: Float[Tensor, "batch batch"], batch: _Pairs) -> Float[Tensor, "pairs"]:
    """The matrix's entries of the pairs; a flat index has a cheaper backward than a pair of them."""
    return matrix.flatten().index_select(0, batch.left * len(matrix) + batch.right)


def _contrast(distance: Tensor, neighbours: Tensor, margin: float) -> Tensor:
    return torch.where(neighbours, distance, (margin - distance).clamp_min(0.0)).square()


def _pairs(
    features: Tensor,
    pair_labels: Tensor,
    pairs: str,
    odd: str,
    sample_weight: Tensor | None,
    ignore_index: int,
    across_processes: bool,
    process_group: Any,
) -> _Pairs:
    """The batch, over all processes where asked, and which of its samples make pairs."""
    _check_pairs(pairs, odd)
    labels = _labels(features, pair_labels)
    features = widen(features)
    weight = torch.ones(len(features), dtype=features.dtype, device=features.device)
    if sample_weight is not None:
        weight = flat_weight(sample_weight, tuple(labels.shape), features)
    weight = torch.where(labels == ignore_index, 0.0, weight)
    if across_processes and wants_gradient(features):
        features, labels, weight = _gathered(features, labels, weight, process_group)
    count = len(features)
    if pairs == "all":
        left, right = torch.triu_indices(count, count, offset=1, device=features.device)
    else:
        if count % 2 and odd == "refuse":
            raise ValueError(
                f"features must be an even number of samples to pair its halves (odd='drop_last' leaves out the last, "
                f"number {count - 1}); got {count}"
            )
        left = torch.arange(count // 2, device=features.device)
        right = left + count // 2
    return _Pairs(features, left, right, labels[left] == labels[right], weight[left] * weight[right])


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


def _check_pairs(pairs: str, odd: str) -> None:
    if pairs not in PAIRS:
        raise ValueError(f"pairs must be one of {', '.join(PAIRS)}; got {pairs!r}")
    if odd not in ODD:
        raise ValueError(f"odd must be one of {', '.join(ODD)}; got {odd!r}")
