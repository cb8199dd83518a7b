"""torchmetrics: AVH and accuracy by hardness as metrics that add up over batches and processes."""

from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.hardness import angular_visual_hardness

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError("the metrics need torchmetrics: pip install torchmetrics") from error


class MeanAngularVisualHardness(Metric):
    """AVH averaged over all samples. In [0, 1]; larger is harder."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Doubles and integers: one process and several agree.
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self,
        features: Float[Tensor, "batch dim"],
        weight: Float[Tensor, "classes dim"],
        labels: Integer[Tensor, "batch"],
    ) -> None:
        """Add a batch."""
        with torch.no_grad():
            self.total += angular_visual_hardness(features, weight, labels).double().sum()
        self.count += len(labels)

    def compute(self) -> Tensor:
        """The mean; NaN before the first batch."""
        return (self.total / self.count).float()


class AccuracyByHardness(Metric):
    """Accuracy in each of `bins` equal bins of hardness between `low` and `high`; NaN for an empty bin.

    Bins are half-open, the last closed; hardness beyond an end counts in the bin at that end. Any score will do; AVH
    lies near 1 / classes, so a `high` of 2 / classes spreads it over the bins.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    correct: Tensor
    seen: Tensor

    def __init__(self, bins: int = 10, low: float = 0.0, high: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if bins < 1 or not low < high:
            raise ValueError(
                f"bins must be at least 1 and low below high; got bins={bins!r}, low={low!r}, high={high!r}"
            )
        self.bins, self.low, self.high = bins, low, high
        self.add_state("correct", torch.zeros(bins, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("seen", torch.zeros(bins, dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def edges(self) -> Tensor:
        """The bins' edges, one more than bins."""
        return torch.linspace(self.low, self.high, self.bins + 1)

    def update(
        self, logits: Float[Tensor, "batch classes"], labels: Integer[Tensor, "batch"], hardness: Float[Tensor, "batch"]
    ) -> None:
        """Add a batch; samples whose hardness is NaN or whose label is negative are left out."""
        labels = labels.long()
        known = ~hardness.isnan() & (labels >= 0)
        # Rounded as the hardness is, so that one that lies on an edge is found there.
        places = torch.arange(1, self.bins, dtype=torch.float64, device=hardness.device)
        inner = (self.low + (self.high - self.low) * places / self.bins).to(hardness.dtype).double()
        place = torch.bucketize(torch.where(known, hardness, 0.0).double(), inner, right=True)
        right = (logits.argmax(1) == labels) & known
        self.seen.index_add_(0, place, known.long())
        self.correct.index_add_(0, place, right.long())

    def compute(self) -> Tensor:
        """Accuracy of each bin."""
        return self.correct.float() / self.seen
