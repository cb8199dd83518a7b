"""Gradient rescaling that chooses its own emphasis: cross-entropy first, then beta and lam by the estimated noise.

The rule starts from the best settings that Wang et al. (2019) print for each noise rate, joined by straight lines, and
keeps them where gradient rescaling is known to learn every class. Four bounds, each derived and none fitted:

1. beta stays within `largest_beta(lam, classes)`, above which classes are ruled out instead of learnt.
2. lam stays within 1/2, what the paper fixes where the noise is unknown (its Table 4). Within the first bound a larger
   lam emphasises less, not more: a label that is half believed outweighs one that is ruled out exp(2.7) times with lam
   1/2 and ten classes, exp(1.1) times with lam 1.
3. The focus lam / (1 + lam) stays within 1 - rate, what a calibrated network can believe of a right label under that
   noise: beyond it the emphasis would lie on labels that are memorised. Where it would, cross-entropy stays.
4. The focus lies above 1 / classes, what a guess believes of a label: below it the emphasis would lie on the labels
   that contradict the network, as cross-entropy's does, and sharper. With lam 1/2, a focus of 1/3, that takes four
   classes; with two or three cross-entropy stays.

Development sets chose the first three among others (USPS and scikit-learn's digits with symmetric noise; the third was
looked for when 80 % noise failed there), not the data of the study that judges the rule: docs/training.md has numbers.
"""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardsight.losses import processes
from hardsight.losses.emphasis import emphasis_focus
from hardsight.losses.inputs import as_rows, check_range, check_reduction, reduce
from hardsight.losses.rescaling import attach_gradient, let_go, rescale, rescaled_gradient
from hardsight.losses.rescaling_limit import largest_beta
from hardsight.losses.terms import Over

# (noise rate, beta, lam) with the best final test accuracy: Table 2 for clean labels, Table 3 for ten classes
# (CIFAR-10, ResNet-56), Tables 5 and 12 for a hundred (CIFAR-100, ResNet-44; of two equals at 60 % Table 5's).
BEST_SETTINGS = {
    10: ((0.0, 2.0, 0.0), (0.2, 12.0, 0.5), (0.4, 16.0, 1.0), (0.6, 12.0, 2.0), (0.8, 12.0, 2.0)),
    100: ((0.0, 2.0, 0.0), (0.2, 6.0, 0.3), (0.4, 6.0, 0.4), (0.6, 8.0, 0.5)),
}
# Below this rate cross-entropy stays: on clean labels the two are equal (Table 2), and an estimate is no better.
LEAST_RATE = 0.1
# The lam that the paper fixes where the noise is unknown (Table 4).
LARGEST_LAM = 0.5
# Accuracy on the given labels, over that when the emphasis was chosen, below which a training counts as collapsed.
COLLAPSED = 0.7


class Knobs(NamedTuple):
    """The two parameters of gradient rescaling."""

    beta: float
    lam: float


def rescaling_knobs(rate: float, classes: int) -> Knobs | None:
    """(beta, lam) for this noise rate: `printed_knobs` within four bounds; None where cross-entropy should stay.

    lam is at most 1/2 and beta at most `largest_beta(lam, classes)`. None below 10 %, where cross-entropy does as well,
    and where the focus lam / (1 + lam) does not lie between 1 / classes and 1 - rate: with two or three classes, and
    from a rate of 2/3 on with lam 1/2.

    >>> beta, lam = rescaling_knobs(0.4, classes=10)
    >>> round(beta, 1), lam
    (7.7, 0.5)
    >>> rescaling_knobs(0.05, classes=10) is rescaling_knobs(0.8, classes=10) is rescaling_knobs(0.3, classes=2) is None
    True
    """
    printed = printed_knobs(rate, classes)
    if printed is None:
        return None
    lam = min(printed.lam, LARGEST_LAM)
    knobs = Knobs(min(printed.beta, largest_beta(lam, classes)), lam)
    return knobs if 1 / classes < emphasis_focus(*knobs) <= 1 - rate else None


def printed_knobs(rate: float, classes: int) -> Knobs | None:
    """The paper's best (beta, lam) for this noise rate; None below 10 %, where cross-entropy does as well.

    Linear between the printed rates and, between 10 and 100 classes, in the logarithm of their number; constant beyond.

    >>> printed_knobs(0.4, classes=10)
    Knobs(beta=16.0, lam=1.0)
    """
    check_range(rate, "rate", 0.0, 1.0)
    check_range(classes, "classes", 2.0)
    if rate < LEAST_RATE:
        return None
    few, many = (_between(BEST_SETTINGS[known], rate) for known in (10, 100))
    share = min(1.0, max(0.0, math.log10(classes) - 1))
    return Knobs(*(low + share * (high - low) for low, high in zip(few, many, strict=True)))


def _between(settings: tuple[tuple[float, float, float], ...], rate: float) -> Knobs:
    for (left, *low), (right, *high) in itertools.pairwise(settings):
        if rate <= right:
            share = (rate - left) / (right - left)
            return Knobs(*(one + share * (other - one) for one, other in zip(low, high, strict=True)))
    return Knobs(*settings[-1][1:])


class AutomaticRescaling(nn.Module):
    """Cross-entropy until `decide(rate)`; from then on gradient rescaling with `rescaling_knobs` of that noise rate.

    `warm_up` is how many epochs a training should wait before it estimates the rate and decides (at most a third of
    them). `watch(accuracy)` takes in every later epoch's accuracy on the given labels: should it fall below 0.7 of what
    it was when the emphasis was chosen, the training has collapsed, as the paper saw for some spreads, and the loss
    goes back to cross-entropy for good. `reduction` and `epsilon` are those of the rescaling: "weight" or "mean", and
    what lets go of fitted samples, as in the authors' code. `as_printed` takes `printed_knobs` instead: the paper's
    settings without bounds. Everything is in the state, and a captured step reads it anew.
    """

    value_over: Over = "labels"
    beta: Tensor
    lam: Tensor
    rate: Tensor
    emphasises: Tensor
    accuracy: Tensor

    def __init__(
        self, classes: int, *, warm_up: int = 10, reduction: str = "weight", epsilon: float = 1e-6,
        as_printed: bool = False, ignore_index: int = -100, across_processes: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        check_range(classes, "classes", 2.0)
        check_range(warm_up, "warm_up", 1.0)
        check_range(epsilon, "epsilon", 0.0)
        self.classes, self.warm_up, self.epsilon, self.ignore_index = classes, warm_up, epsilon, ignore_index
        self.reduction = check_reduction(reduction, ("weight", "mean"))
        self.as_printed, self.across_processes = as_printed, across_processes
        self.register_buffer("beta", torch.tensor(2.0))
        self.register_buffer("lam", torch.tensor(0.0))
        self.register_buffer("rate", torch.tensor(math.nan))
        self.register_buffer("emphasises", torch.tensor(False))
        self.register_buffer("accuracy", torch.tensor(math.nan))

    @property
    def mean_over(self) -> Over:
        """What the gradient is a mean over."""
        return "processes" if self.across_processes else "labels"

    @property
    def decided(self) -> bool:
        """Whether a noise rate was given."""
        return not bool(self.rate.isnan())

    @property
    def knobs(self) -> Knobs | None:
        """What is in force: beta and lam, or None for cross-entropy."""
        return Knobs(float(self.beta), float(self.lam)) if bool(self.emphasises) else None

    def decide(self, rate: float, accuracy: float = math.nan) -> None:
        """Choose by an estimated noise rate; `accuracy` on the given labels at this time is what `watch` compares."""
        knobs = (printed_knobs if self.as_printed else rescaling_knobs)(rate, self.classes)
        self.rate.fill_(rate)
        self.accuracy.fill_(accuracy)
        self.emphasises.fill_(knobs is not None)
        if knobs is not None:
            self.beta.fill_(knobs.beta)
            self.lam.fill_(knobs.lam)

    def watch(self, accuracy: float) -> bool:
        """Take in an epoch's accuracy on the given labels; True where it sends the loss back to cross-entropy."""
        collapsed = bool(self.emphasises) and accuracy < COLLAPSED * float(self.accuracy)
        if collapsed:
            self.emphasises.fill_(False)
        return collapsed

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=self.ignore_index, soft_targets=False)
        assert rows.weight is not None
        synchronised = self.across_processes and processes.wants_gradient(logits)
        with torch.no_grad():
            # The identity transform with (2, 0) is cross-entropy (Eq. 7).
            log_p, log_rest, plain, direction = rescale(rows, 2.0, 0.0, "identity")
            p_to_lam = torch.where(self.lam == 0, 1.0, (self.lam * log_p).exp())
            emphasis = self.beta * p_to_lam * log_rest.exp() + rows.weight.log()
            log_weights = torch.where(self.emphasises, emphasis.to(plain.dtype), plain)
            log_count = rows.weight.log().logsumexp(0)
            by_weight = self.emphasises if self.reduction == "weight" else torch.zeros_like(self.emphasises)
            log_divisor = torch.where(by_weight, log_weights.logsumexp(0), log_count)
            if synchronised:
                log_divisor = processes.log_sum_over_processes(log_divisor, None) - math.log(processes.world_size(None))
            # Of the rescaling alone: cross-entropy lets go of fitted samples by itself.
            direction = torch.where(self.emphasises, let_go(direction, log_rest, self.epsilon), direction)
            gradient = rescaled_gradient(log_weights, direction, log_divisor)
            logged = reduce(-log_p, "mean", weight=rows.weight)
        return attach_gradient(logged, rows.logits, gradient)

    def extra_repr(self) -> str:
        said = f"classes={self.classes}, warm_up={self.warm_up}, reduction={self.reduction!r}, epsilon={self.epsilon}"
        return f"{said}, as_printed=True" if self.as_printed else said
