"""Center loss (Wen et al., 2016): features are drawn to their class's centre, and the centres follow the features."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight import distributed
from hardsight.geometry import widen
from hardsight.losses.inputs import (
    check_floating,
    check_labels,
    check_range,
    flat_weight,
    reduce,
    within_squares,
)
from hardsight.losses.registry import LossModule, registered


def center_loss(
    features: Tensor,
    labels: Tensor,
    centers: Float[Tensor, "classes dim"],
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """Half the squared distance from each feature to its class's centre. At least 0."""
    features, flat, weight = _check(features, labels, centers, sample_weight, ignore_index)
    losses = (features - centers[flat].to(features.dtype)).square().sum(-1) / 2
    return reduce(losses, reduction, weight=weight)


@torch.no_grad()
def updated_centers(
    centers: Float[Tensor, "classes dim"],
    features: Tensor,
    labels: Tensor,
    *,
    rate: float = 0.5,
    ignore_index: int = -100,
    across_processes: bool = True,
) -> Float[Tensor, "classes dim"]:
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
            # A new tensor, not written in place: a compiled backward may read the old centres again.
            chosen: dict[str, Any] = {
                "rate": self.rate,
                "ignore_index": self.ignore_index,
                "across_processes": self.across_processes,
            }
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
