"""Gradient rescaling that chooses its own emphasis by the estimated noise, and raises it once the classes are known.

The weights are GR's with the identity as transform, w = beta p^lam (1 - p), and the sum is divided by the number of
samples: (2, 0) is cross-entropy, (4, 1) MAE (Eq. 7); between them beta = 2 + 2 lam. They vanish at both ends. A fitted
sample lets go, so that the pull of a batch fades as right labels are learnt; under g = exp, divided by the sum of the
weights, all of it would then fall to wrong labels. And a label that the network contradicts pulls only as p^lam, so
that learning it by heart takes the longer the larger lam is and the surer the network.

1. Until the noise is known lam is 1/2, what the paper fixes for that case (Table 4). Wrong labels are hardly learnt by
   heart meanwhile, which keeps the estimate true.
2. Below 10 % noise lam is 0, cross-entropy: on clean labels the two are equal (Table 2).
3. Else lam becomes 1, but not before `warm_up` epochs nor before the network recognises more than half of the images.
   With 1 a right label pulls as p too: an image that is not recognised yet is hardly learnt any more. More than 1 would
   rule classes out whatever the images show: of K equally probable classes a chance lead dies out only while
   a'/a < K, where a = w / (1 - p) (see `emphasis`), and here a'/a is lam K.

Development sets chose this among others (USPS and scikit-learn's digits with symmetric noise), not the data of the
studies that judge it: docs/training.md has the numbers. Two former rules stay trainable, as what they gave stays in
tables: g = exp with the best settings that Wang et al. (2019) print for each noise rate, joined by straight lines
(`as_printed`), and within bounds (`bounded`); both train with cross-entropy until the rate is known.
"""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardsight import distributed
from hardsight.derivatives import wants_gradient
from hardsight.losses.emphasis import emphasis_focus, largest_beta
from hardsight.losses.inputs import as_rows, check_range, check_reduction, reduce
from hardsight.losses.rescaling import attach_gradient, let_go, rescale, rescaled_gradient
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
UNKNOWN_NOISE_LAM = 0.5
# Accuracy on the given labels, over that when the emphasis was chosen, below which a training counts as collapsed.
COLLAPSED = 0.7


class Knobs(NamedTuple):
    """The two parameters of gradient rescaling."""

    beta: float
    lam: float


def between_cross_entropy_and_mae(lam: float) -> Knobs:
    """(2 + 2 lam, lam): with the identity as transform cross-entropy at lam 0 and MAE at 1.

    >>> between_cross_entropy_and_mae(0.5)
    Knobs(beta=3.0, lam=0.5)
    """
    check_range(lam, "lam", 0.0, 1.0)
    return Knobs(2 + 2 * lam, lam)


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


def rescaling_knobs(rate: float, classes: int) -> Knobs | None:
    """(beta, lam) of the bounded rule: `printed_knobs` within four bounds; None where cross-entropy should stay.

    beta is at most `largest_beta(lam, classes)`, above which classes are ruled out instead of learnt, and lam at most
    1/2, as where the noise is unknown: within the first bound a larger lam emphasises less. None below 10 %, where
    cross-entropy does as well; where the focus lam / (1 + lam) lies above 1 - rate, what a calibrated network believes
    of a right label (from a rate of 2/3 on with lam 1/2); and where it does not lie above 1 / classes, what a guess
    believes (with two or three classes).

    >>> beta, lam = rescaling_knobs(0.4, classes=10)
    >>> round(beta, 1), lam
    (7.7, 0.5)
    >>> rescaling_knobs(0.05, classes=10) is rescaling_knobs(0.8, classes=10) is rescaling_knobs(0.3, classes=2) is None
    True
    """
    printed = printed_knobs(rate, classes)
    if printed is None:
        return None
    lam = min(printed.lam, UNKNOWN_NOISE_LAM)
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
    """Gradient rescaling with lam 1/2 until `decide(rate)`; then cross-entropy, or 1/2 until `rise` makes it 1.

    `warm_up` is how many epochs a training waits before lam rises; it estimates the rate and decides by then, and
    after a third of its epochs at the latest. `rise(accuracy)` takes in the accuracy on the given labels from then on.
    `watch(accuracy)` takes in that of every epoch after the decision: should it fall below 0.7 of what it was then, the
    training has collapsed, as the paper saw for some spreads, and the loss goes back to cross-entropy for good.

    Former rules, with g = exp after a warm-up with cross-entropy: `as_printed` decides by `printed_knobs`, `bounded` by
    `rescaling_knobs`. `epsilon` is theirs, what lets go of fitted samples as in the authors' code. `reduction` divides
    by the sum of the weights ("weight") or of the samples ("mean"); left out, "mean", and "weight" for former rules.
    Everything is in the state, and a captured step reads it anew.
    """

    value_over: Over = "labels"
    beta: Tensor
    lam: Tensor
    rate: Tensor
    emphasises: Tensor
    accuracy: Tensor

    def __init__(
        self, classes: int, *, warm_up: int = 10, reduction: str | None = None, epsilon: float = 1e-6,
        as_printed: bool = False, bounded: bool = False, ignore_index: int = -100, across_processes: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        check_range(classes, "classes", 2.0)
        check_range(warm_up, "warm_up", 1.0)
        check_range(epsilon, "epsilon", 0.0)
        if as_printed and bounded:
            raise ValueError("bounded must be False with as_printed, the same settings without bounds; got True")
        self.classes, self.warm_up, self.epsilon, self.ignore_index = classes, warm_up, epsilon, ignore_index
        self.as_printed, self.bounded, self.across_processes = as_printed, bounded, across_processes
        if reduction is None:
            reduction = "weight" if self.former else "mean"
        self.reduction = check_reduction(reduction, ("weight", "mean"))
        self.register_buffer("beta", torch.tensor(math.nan))
        self.register_buffer("lam", torch.tensor(math.nan))
        self.register_buffer("rate", torch.tensor(math.nan))
        self.register_buffer("emphasises", torch.tensor(False))
        self.register_buffer("accuracy", torch.tensor(math.nan))
        self._take(None if self.former else between_cross_entropy_and_mae(UNKNOWN_NOISE_LAM))

    @property
    def former(self) -> bool:
        """Whether this is one of the former rules, with g = exp."""
        return self.as_printed or self.bounded

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

    def _take(self, knobs: Knobs | None) -> None:
        beta, lam = between_cross_entropy_and_mae(0.0) if knobs is None else knobs
        self.beta.fill_(beta)
        self.lam.fill_(lam)
        self.emphasises.fill_(knobs is not None)

    def decide(self, rate: float, accuracy: float = math.nan) -> None:
        """Choose by an estimated noise rate; `accuracy` on the given labels at this time is what `watch` compares."""
        if self.former:
            self._take((printed_knobs if self.as_printed else rescaling_knobs)(rate, self.classes))
        else:
            check_range(rate, "rate", 0.0, 1.0)
            self._take(None if rate < LEAST_RATE else between_cross_entropy_and_mae(UNKNOWN_NOISE_LAM))
        self.rate.fill_(rate)
        self.accuracy.fill_(accuracy)

    def rise(self, accuracy: float) -> bool:
        """Take in an epoch's accuracy on the given labels; True where it makes lam 1: most images are recognised."""
        waits = self.decided and bool(self.emphasises) and float(self.lam) < 1 and not self.former
        # Not the half of 1 - rate and more: where labels tell nothing, no accuracy is a sign of knowledge.
        rises = waits and halfway(float(self.rate), self.classes) < min(accuracy, 1 - float(self.rate))
        if rises:
            self._take(between_cross_entropy_and_mae(1.0))
        return rises

    def watch(self, accuracy: float) -> bool:
        """Take in an epoch's accuracy on the given labels; True where it sends the loss back to cross-entropy."""
        collapsed = bool(self.emphasises) and accuracy < COLLAPSED * float(self.accuracy)
        if collapsed:
            self._take(None)
        return collapsed

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=self.ignore_index, soft_targets=False)
        assert rows.weight is not None
        synchronised = self.across_processes and wants_gradient(logits)
        with torch.no_grad():
            log_p, log_rest, _, direction = rescale(rows, 1.0, 0.0, "identity")
            beta, lam = self.beta.to(log_p.dtype), self.lam.to(log_p.dtype)
            log_power = torch.where(lam == 0, log_rest, lam * log_p + log_rest)
            log_w = log_power + beta.log()
            by_weight = torch.full_like(self.emphasises, self.reduction == "weight")
            if self.former:
                # Before the decision and after a collapse the identity with (2, 0), cross-entropy, which lets go of
                # fitted samples by itself.
                log_w = torch.where(self.emphasises, beta * log_power.exp(), log_w)
                direction = torch.where(self.emphasises, let_go(direction, log_rest, self.epsilon), direction)
                by_weight = by_weight & self.emphasises
            log_weights = log_w + rows.weight.log()
            log_divisor = torch.where(by_weight, log_weights.logsumexp(0), rows.weight.log().logsumexp(0))
            if synchronised:
                log_divisor = distributed.log_sum_over_processes(log_divisor, None) - math.log(
                    distributed.world_size(None)
                )
            gradient = rescaled_gradient(log_weights, direction, log_divisor)
            logged = reduce(-log_p, "mean", weight=rows.weight)
        return attach_gradient(logged, rows.logits, gradient)

    def extra_repr(self) -> str:
        said = f"classes={self.classes}, warm_up={self.warm_up}, reduction={self.reduction!r}, epsilon={self.epsilon}"
        former = [name for name in ("as_printed", "bounded") if getattr(self, name)]
        return ", ".join([said, *(f"{name}=True" for name in former)])
