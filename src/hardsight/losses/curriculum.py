"""Curricula as losses: samples are weighted by their own cross-entropy, self-paced or by MentorNet's predefined rule.

The weights carry no gradient, and the mean is over all samples, as the weights are part of the loss.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight import distributed
from hardsight.losses.inputs import Rows, as_rows, bounded, check_range, check_reduction
from hardsight.losses.registry import LogitLoss, on_rows, register


def self_paced_weights(
    losses: Float[Tensor, "*shape"], threshold: Tensor | float, *, linear: bool = False
) -> Float[Tensor, "*shape"]:
    """1 for losses below the threshold, else 0 (Kumar et al., 2010); `linear` falls from 1 at 0 to 0 there instead."""
    if linear:
        return (1 - losses / threshold).clamp(0.0, 1.0)
    return (losses < threshold).to(losses.dtype)


@on_rows
def self_paced_loss(rows: Rows, *, threshold: Tensor | float, linear: bool = False) -> Float[Tensor, "rows"]:
    """Cross-entropy of the samples easier than the threshold; the others count as 0. At least 0."""
    losses = _cross_entropy(rows)
    return losses * self_paced_weights(losses.detach(), threshold, linear=linear)


def mentornet_weights(
    losses: Float[Tensor, "*shape"],
    threshold: Tensor | float,
    progress: Tensor | float,
    *,
    burn_in: float = 0.18,
    linear_from: float = 0.9,
    softness: float = 1.0,
) -> Float[Tensor, "*shape"]:
    """MentorNet's predefined curriculum (Jiang et al., 2018), by the share of training done. In [0, 1].

    All samples count during the burn-in; then those whose loss is at most the threshold; from `linear_from` on the
    weight falls linearly from 1 at the threshold to 0 at threshold + softness. The stages are the authors' code's.
    """
    progress = torch.as_tensor(progress, dtype=losses.dtype, device=losses.device)
    excess = losses - threshold
    paced = torch.where(progress >= linear_from, (1 - excess / softness).clamp(0.0, 1.0), (excess <= 0).to(losses))
    return torch.where(progress <= burn_in, 1.0, paced)


class SelfPaced(LogitLoss):
    """`self_paced_loss` with its threshold in the state; `advance()` lets harder samples in."""

    function = staticmethod(self_paced_loss)
    threshold: Tensor

    def __init__(
        self,
        threshold: float = 1.0,
        growth: float = 1.3,
        *,
        linear: bool = False,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        start = torch.tensor(check_range(threshold, "threshold", 0.0, open_low=True))
        super().__init__(reduction=reduction, ignore_index=ignore_index, threshold=start, linear=linear)
        self.growth = check_range(growth, "growth", 1.0)

    def advance(self) -> None:
        """Multiply the threshold by `growth`, once an epoch or as often as the pace asks."""
        self.threshold.mul_(self.growth)


class MentorNetPD(nn.Module):
    """Cross-entropy weighted by `mentornet_weights`; the threshold is a moving average of a loss percentile.

    Call `set_progress(share of training done)` once an epoch. The percentile is that of the whole batch over all
    processes; average and progress are in the state. In evaluation mode the average stands still.
    """

    threshold: Tensor
    progress: Tensor
    started: Tensor

    def __init__(
        self,
        percentile: float = 0.75,
        decay: float = 0.9,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
        across_processes: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.percentile = check_range(percentile, "percentile", 0.0, 1.0)
        self.decay = check_range(decay, "decay", 0.0, 1.0)
        self.reduction = check_reduction(reduction)
        self.ignore_index = ignore_index
        self.across_processes, self.process_group = across_processes, process_group
        self.register_buffer("threshold", torch.tensor(0.0))
        self.register_buffer("progress", torch.tensor(0.0))
        self.register_buffer("started", torch.tensor(False))

    def set_progress(self, progress: float) -> None:
        self.progress.fill_(check_range(progress, "progress", 0.0, 1.0))

    def forward(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=self.ignore_index)
        losses = _cross_entropy(rows)
        if self.training and torch.is_grad_enabled():
            self._follow(losses.detach(), rows.weight)
        weights = mentornet_weights(losses.detach(), self.threshold.to(losses.dtype), self.progress)
        return rows.reduce(losses * weights, self.reduction)

    def _follow(self, losses: Tensor, weight: Tensor | None) -> None:
        """Move the threshold towards this batch's percentile; the first batch sets it."""
        if weight is not None:
            losses = torch.where(weight == 0, torch.nan, losses)
        if self.across_processes:
            losses = distributed.gather_samples(losses, self.process_group)
        if not losses.numel():
            return
        current = torch.nanquantile(losses, self.percentile).to(self.threshold.dtype)
        moved = torch.where(self.started, self.decay * self.threshold + (1 - self.decay) * current, current)
        usable = ~current.isnan()
        self.threshold.copy_(torch.where(usable, moved, self.threshold))
        self.started.logical_or_(usable)


def _cross_entropy(rows: Rows) -> Float[Tensor, "rows"]:
    # Finite, because a weight of 0 is to make nothing of it.
    return bounded(-rows.expected(rows.log_softmax()), torch.finfo(rows.logits.dtype).max)


register(
    "self_paced",
    lambda n: SelfPaced(threshold=4.0),
    "−v log p_y, v = 1(−log p_y < threshold)",
    "Kumar et al., NeurIPS 2010",
    best_at_label=False,
)
register(
    "mentornet_pd",
    lambda n: MentorNetPD(),
    "−v log p_y, v by MentorNet's predefined curriculum",
    "Jiang et al., ICML 2018",
    best_at_label=False,
)
