"""D2L (Ma et al., 2018): when the features' local dimensionality starts to grow, labels give way to predictions."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.geometry import widen
from hardsight.losses.inputs import Rows, check_range
from hardsight.losses.registry import LogitLoss, on_rows, register


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
    """Cross-entropy to alpha target + (1 - alpha) predicted class. At least 0; alpha = 1 is CCE."""
    log_p = rows.log_softmax()
    return -alpha * rows.expected(log_p) - (1 - alpha) * log_p.amax(-1)


class D2L(LogitLoss):
    """`d2l_loss` with its alpha: forward(logits, labels), and `end_epoch(mean LID, share of training done)`.

    Until the LID rises more than two standard deviations above the mean of the last `window` epochs, alpha is 1; from
    that turning point on, alpha = exp(-progress LID / smallest LID). The LID is the mean of
    `local_intrinsic_dimensionality` of penultimate features over some batches (the authors: 10 of 128, 20
    neighbours). Everything is in the state.
    """

    function = staticmethod(d2l_loss)
    alpha: Tensor
    recent: Tensor
    smallest: Tensor
    epochs_seen: Tensor
    turned: Tensor

    def __init__(
        self, *, first_epochs: int = 5, window: int = 5, reduction: str = "mean", ignore_index: int = -100
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index, alpha=torch.tensor(1.0))
        check_range(first_epochs, "first_epochs", 0.0)
        check_range(window, "window", 2.0)
        self.first_epochs, self.window = first_epochs, window
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
            # Features all alike measure nothing: the epoch before stands for this one, as in the authors' code.
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


register(
    "d2l",
    lambda n: D2L(),
    "−α log p_y − (1−α) log max p, α = exp(−t/T · LID/min LID)",
    "Ma et al., ICML 2018",
)
