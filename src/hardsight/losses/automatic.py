"""Gradient rescaling that chooses its own emphasis by the estimated noise, and raises it once the classes are known.

The weights are GR's with the identity as transform, w = beta p^lam (1 - p), and the sum is divided by the number of
samples: (2, 0) is cross-entropy, (4, 1) MAE (Eq. 7); between them beta = 2 + 2 lam. They vanish at both ends. A fitted
sample lets go, so that the pull of a batch fades as right labels are learned; under g = exp, divided by the sum of the
weights, all of it would then fall to wrong labels. And a label that the network contradicts pulls only as p^lam, so
that memorising it takes the longer the larger lam is and the surer the network.

1. Until the noise is known lam is 1/2, what the paper fixes for that case (Table 4). Wrong labels are hardly memorised
   meanwhile, which keeps the estimate true.
2. Below 10 % noise lam is 0, cross-entropy: on clean labels the two are equal (Table 2).
3. Else lam becomes 1, but not before `warm_up` epochs nor before the network recognises more than half of the images.
   With 1 a right label pulls as p too: an image that is not recognised yet is hardly learned. More than 1 would
   rule classes out whatever the images show: of K equally probable classes a chance lead dies out only while
   a'/a < K, where a = w / (1 - p) (see `emphasis`), and here a'/a is lam K.

Development sets chose this among others (USPS and scikit-learn's digits with symmetric noise), not the data of the
studies that judge it; see docs/rescaling.md.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardsight import distributed
from hardsight.derivatives import wants_gradient
from hardsight.losses.emphasis import attach_gradient, rescale, rescaled_gradient
from hardsight.losses.inputs import as_rows, check_range, check_reduction, reduce
from hardsight.losses.terms import Over

# Below this rate cross-entropy stays: on clean labels the two are equal (Table 2), and an estimate is no better.
LEAST_RATE = 0.1
# The lam that the paper fixes where the noise is unknown (Table 4).
UNKNOWN_NOISE_LAM = 0.5
# Accuracy on the given labels, over that when the emphasis was chosen, below which a training counts as collapsed.
COLLAPSED = 0.7


class Emphasis(NamedTuple):
    """The two hyperparameters of gradient rescaling."""

    beta: float
    lam: float


def between_cross_entropy_and_mae(lam: float) -> Emphasis:
    """(2 + 2 lam, lam): with the identity as transform cross-entropy at lam 0 and MAE at 1.

    >>> between_cross_entropy_and_mae(0.5)
    Emphasis(beta=3.0, lam=0.5)
    """
    check_range(lam, "lam", 0.0, 1.0)
    return Emphasis(2 + 2 * lam, lam)


def halfway(rate: float, classes: int) -> float:
    """Accuracy on labels with this symmetric noise of a network that is right about half of the images.

    Halfway between always right, 1 - rate, and never, rate / (classes - 1). At least 1 - rate where labels tell
    nothing, at (classes - 1) / classes and above.

    >>> round(halfway(0.4, classes=10), 3)
    0.322
    """
    check_range(rate, "rate", 0.0, 1.0)
    check_range(classes, "classes", 2.0)
    return (1 - rate + rate / (classes - 1)) / 2


class AutomaticRescaling(nn.Module):
    """Gradient rescaling with lam 1/2 until `decide(rate)`; then cross-entropy, or 1/2 until `rise` makes it 1.

    `warm_up` is how many epochs a training waits before lam rises; it estimates the rate and decides by then, and
    after a third of its epochs at the latest. `rise(accuracy)` takes in the accuracy on the given labels from then on.
    `watch(accuracy)` takes in that of every epoch after the decision: should it fall below 0.7 of what it was then, the
    training has collapsed, as the paper saw for some spreads, and the loss goes back to cross-entropy for good.

    `reduction` divides by the number of samples ("mean") or by the sum of the weights ("weight"). Everything is in the
    state, and a captured step reads it again.
    """

    value_over: Over = "labels"
    lam: Tensor
    rate: Tensor
    accuracy: Tensor

    def __init__(
        self, classes: int, *, warm_up: int = 10, reduction: str = "mean", ignore_index: int = -100,
        across_processes: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        check_range(classes, "classes", 2.0)
        check_range(warm_up, "warm_up", 1.0)
        self.classes, self.warm_up, self.ignore_index = classes, warm_up, ignore_index
        self.reduction, self.across_processes = check_reduction(reduction, ("weight", "mean")), across_processes
        for name, value in (("lam", UNKNOWN_NOISE_LAM), ("rate", math.nan), ("accuracy", math.nan)):
            self.register_buffer(name, torch.tensor(value))

    @property
    def mean_over(self) -> Over:
        """What the gradient is a mean over."""
        return "processes" if self.across_processes else "labels"

    @property
    def decided(self) -> bool:
        """Whether a noise rate was given."""
        return not bool(self.rate.isnan())

    @property
    def emphasis(self) -> Emphasis | None:
        """What is in force: beta and lam, or None for cross-entropy."""
        return between_cross_entropy_and_mae(float(self.lam)) if self.lam > 0 else None

    def decide(self, rate: float, accuracy: float = math.nan) -> None:
        """Choose by an estimated noise rate; `accuracy` on the given labels at this time is what `watch` compares."""
        check_range(rate, "rate", 0.0, 1.0)
        self.lam.fill_(0.0 if rate < LEAST_RATE else UNKNOWN_NOISE_LAM)
        self.rate.fill_(rate)
        self.accuracy.fill_(accuracy)

    def rise(self, accuracy: float) -> bool:
        """Take in an epoch's accuracy on the given labels; True where it makes lam 1: most images are recognised."""
        waits = self.decided and 0 < float(self.lam) < 1
        # Not the half of 1 - rate and more: where labels tell nothing, no accuracy is a sign of knowledge.
        rises = waits and halfway(float(self.rate), self.classes) < min(accuracy, 1 - float(self.rate))
        if rises:
            self.lam.fill_(1.0)
        return rises

    def watch(self, accuracy: float) -> bool:
        """Take in an epoch's accuracy on the given labels; True where it sends the loss back to cross-entropy."""
        collapsed = bool(self.lam > 0) and accuracy < COLLAPSED * float(self.accuracy)
        if collapsed:
            self.lam.fill_(0.0)
        return collapsed

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=self.ignore_index, soft_targets=False)
        assert rows.weight is not None
        synchronised = self.across_processes and wants_gradient(logits)
        with torch.no_grad():
            log_p, log_rest, _, direction = rescale(rows, 1.0, 0.0, "identity")
            lam, log_samples = self.lam.to(log_p.dtype), rows.weight.log()
            # The weights of `emphasis`, of a lam that a captured step must read from the state.
            log_power = torch.where(lam == 0, log_rest, lam * log_p + log_rest)
            log_weights = log_power + (2 + 2 * lam).log() + log_samples
            log_divisor = (log_weights if self.reduction == "weight" else log_samples).logsumexp(0)
            if synchronised:
                log_divisor = distributed.log_mean_over_processes(log_divisor)
            gradient = rescaled_gradient(log_weights, direction, log_divisor)
            logged = reduce(-log_p, "mean", weight=rows.weight)
        return attach_gradient(logged, rows.logits, gradient)

    def extra_repr(self) -> str:
        return f"classes={self.classes}, warm_up={self.warm_up}, reduction={self.reduction!r}"
