"""Losses that change with training: self-paced, MentorNet's predefined curriculum, and D2L.

Self-paced and MentorNet weigh samples by their own cross-entropy. The weights carry no gradient, and the mean is over
all samples, as the weights are part of the loss. D2L (Ma et al., 2018) lets labels give way to predictions when the
features' local dimensionality starts to grow.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight import distributed
from hardsight.geometry import widen
from hardsight.losses.entropy import cross_entropy
from hardsight.losses.inputs import Rows, as_rows, bounded, check_range
from hardsight.losses.registry import LossModule, on_rows, registered


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
    losses: Float[Tensor, "*shape"], threshold: Tensor | float, progress: Tensor | float, *, burn_in: float = 0.18,
    linear_from: float = 0.9, softness: float = 1.0,
) -> Float[Tensor, "*shape"]:  # fmt: skip
    """MentorNet's predefined curriculum (Jiang et al., 2018), by the share of training done. In [0, 1].

    All samples count during the burn-in; then those whose loss is at most the threshold; from `linear_from` on the
    weight falls linearly from 1 at the threshold to 0 at threshold + softness. The stages are the authors' code's.
    """
    progress = torch.as_tensor(progress, dtype=losses.dtype, device=losses.device)
    excess = losses - threshold
    paced = torch.where(progress >= linear_from, (1 - excess / softness).clamp(0.0, 1.0), (excess <= 0).to(losses))
    return torch.where(progress <= burn_in, 1.0, paced)


@registered(
    "self_paced", "−v log p_y, v = 1(−log p_y < threshold)", "Kumar et al., NeurIPS 2010",
    options=lambda sizes: {"threshold": 4.0}, best_at_label=False,
)  # fmt: skip
class SelfPaced(LossModule, of=self_paced_loss):
    """`self_paced_loss` with its threshold in the state; `advance()` lets harder samples in."""

    def __init__(self, threshold: float = 1.0, growth: float = 1.3, **settings: Any) -> None:
        super().__init__(**settings)
        self.register_buffer("threshold", torch.tensor(check_range(threshold, "threshold", 0.0, open_low=True)))
        self.growth = check_range(growth, "growth", 1.0)

    def advance(self) -> None:
        """Multiply the threshold by `growth`, once an epoch or as often as the pace asks."""
        self.threshold.mul_(self.growth)


@registered(
    "mentornet_pd", "−v log p_y, v by MentorNet's predefined curriculum", "Jiang et al., ICML 2018", best_at_label=False
)
class MentorNetPD(LossModule, of=cross_entropy, fixed={"label_smoothing": 0.0}):
    """Cross-entropy weighted by `mentornet_weights`; the threshold is a moving average of a loss percentile.

    Call `set_progress(share of training done)` once an epoch. The percentile is that of the whole batch over all
    processes; average and progress are in the state. In evaluation mode the average stays.
    """

    def __init__(
        self, percentile: float = 0.75, decay: float = 0.9, *, across_processes: bool = True, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.percentile = check_range(percentile, "percentile", 0.0, 1.0)
        self.decay = check_range(decay, "decay", 0.0, 1.0)
        self.across_processes = across_processes
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
            losses = distributed.gather_samples(losses)
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


def local_intrinsic_dimensionality(
    features: Float[Tensor, "samples dim"], *, neighbours: int = 20
) -> Float[Tensor, "samples"]:
    """-1 / mean log(r_i / r_k) over each sample's k nearest others: the maximum-likelihood LID. At least 0.

    Copies of one point have dimension 0. Equally distant neighbours have no finite dimension: they get 1/eps. The
    scale of the features does not matter, nor that some are very far from the others.
    """
    if not features.shape[1]:
        raise ValueError(f"features must have a dim of at least 1; got shape {list(features.shape)}")
    if not 1 <= neighbours < len(features):
        raise ValueError(f"neighbours must lie in [1, {len(features) - 1}], the other samples; got {neighbours}")
    unknown = int((~features.isfinite().all(-1)).sum())
    if unknown:
        raise ValueError(f"features must be finite numbers; those of {unknown} of {len(features)} samples are not")
    info = torch.finfo(widen(features).dtype)
    # Squares of distances leave the range of float32, and at the ends of their own range that of doubles.
    wide = widen(features.detach()) if features.device.type == "mps" else features.detach().double()
    wide = wide / wide.abs().amax().clamp_min(torch.finfo(wide.dtype).tiny)
    distances = torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(math.inf)
    nearest = distances.topk(neighbours, largest=False).values
    farthest = nearest[:, -1:]
    ratios = (nearest / torch.where(farthest == 0, 1.0, farthest)).clamp_min(info.tiny)
    spread = -ratios.log().mean(-1)
    return torch.where(farthest.squeeze(-1) == 0, 0.0, 1 / spread.clamp_min(info.eps)).to(widen(features).dtype)


@on_rows
def d2l_loss(rows: Rows, *, alpha: Tensor | float) -> Float[Tensor, "rows"]:
    """Cross-entropy to alpha target + (1 - alpha) predicted class. At least 0; alpha = 1 is CE."""
    log_p = rows.log_softmax()
    return -alpha * rows.expected(log_p) - (1 - alpha) * log_p.amax(-1)


@registered("d2l", "−α log p_y − (1−α) log max p, α = exp(−t/T · LID/min LID)", "Ma et al., ICML 2018")
class D2L(LossModule, of=d2l_loss):
    """`d2l_loss` with its alpha: forward(logits, labels), and `end_epoch(mean LID, share of training done)`.

    Until the LID rises more than two standard deviations above the mean of the last `window` epochs, alpha is 1; from
    that turning point on, alpha = exp(-progress LID / smallest LID). The LID is the mean of
    `local_intrinsic_dimensionality` of penultimate features over some batches (the authors: 10 of 128, 20
    neighbours). Everything is in the state.
    """

    def __init__(self, *, first_epochs: int = 5, window: int = 5, **settings: Any) -> None:
        super().__init__(**settings)
        check_range(first_epochs, "first_epochs", 0.0)
        check_range(window, "window", 2.0)
        self.first_epochs, self.window = first_epochs, window
        self.register_buffer("alpha", torch.tensor(1.0))
        self.register_buffer("recent", torch.zeros(window))
        self.register_buffer("smallest", torch.tensor(math.inf))
        self.register_buffer("epochs_seen", torch.tensor(0))
        self.register_buffer("turned", torch.tensor(False))

    def end_epoch(self, lid: Tensor | float, progress: float) -> bool:
        """Take in an epoch's mean LID (0 counts as the epoch before); returns whether this is the turning point.

        The authors go back to the weights of the epoch before when it is.
        """
        lid = check_range(float(lid), "lid", 0.0)
        check_range(progress, "progress", 0.0, 1.0)
        if lid == 0:
            # Features all alike measure nothing: the epoch before counts twice, as in the authors' code.
            lid = float(self.recent[-1])
            if lid == 0:
                return False
        # As it will be kept, and means in doubles: an LID that stays the same must not count as a rise.
        lid = float(self.recent.new_tensor(lid))
        recent = self.recent.cpu().double()
        self.smallest.fill_(min(lid, self.smallest.item()))
        enough = int(self.epochs_seen) >= self.first_epochs + self.window
        limit = recent.mean() + 2 * recent.std(correction=0)
        turns_now = enough and not self.turned and lid > limit.item()
        self.turned.logical_or_(torch.tensor(turns_now))
        if self.turned:
            self.alpha.fill_(math.exp(-progress * lid / self.smallest.item()))
        self.recent.copy_(torch.cat([self.recent[1:], self.recent.new_tensor([lid])]))
        self.epochs_seen.add_(1)
        return bool(turns_now)
