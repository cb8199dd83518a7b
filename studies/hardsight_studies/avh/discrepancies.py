"""What the adaptation baselines minimise or maximise beside the source's cross-entropy: pure functions of a batch."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.geometry import full_precision, widen

# Kernels a factor of two apart around the mean distance, as public code of DAN (Long et al. 2015) has them.
BANDWIDTH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def maximum_mean_discrepancy(
    source: Float[Tensor, "source dim"], target: Float[Tensor, "target dim"]
) -> Float[Tensor, ""]:
    """Squared MMD, mean k(s, s') + mean k(t, t') - 2 mean k(s, t), of several Gaussian kernels (Gretton et al. 2012).

    k(x, y) is the mean over the bandwidth's factors of exp(-|x - y|^2 / (factor b)); b, the mean squared distance
    between different samples of both domains together, is a constant for the gradient. Each sample counts with itself:
    the value is at least 0, and 0 for identical samples. Larger is farther apart.
    """
    with full_precision(source):
        both = torch.cat([widen(source), widen(target)])
        # |x - y|^2 of all pairs by one product; around the mean less is lost to rounding.
        centred = both - both.detach().mean(0)
        squares = centred.square().sum(1)
        distances = (squares[:, None] + squares[None, :] - 2 * centred @ centred.T).clamp_min(0)
        distances = distances * (1 - torch.eye(len(both), dtype=distances.dtype, device=distances.device))
        bandwidth = distances.detach().sum() / (len(both) * (len(both) - 1))
        bandwidth = torch.where(bandwidth == 0, 1.0, bandwidth)
        kernel = torch.stack([torch.exp(-distances / (factor * bandwidth)) for factor in BANDWIDTH_FACTORS]).mean(0)
    split = len(source)
    return kernel[:split, :split].mean() + kernel[split:, split:].mean() - 2 * kernel[:split, split:].mean()


def reverse_gradient(values: Float[Tensor, "*shape"], strength: float) -> Float[Tensor, "*shape"]:
    """The values themselves; on the way back their gradient is multiplied by -strength (Ganin et al. 2016)."""
    same = values.view_as(values)
    if same.requires_grad:
        same.register_hook(lambda gradient: -strength * gradient)  # type: ignore[no-untyped-call]
    return same


def reversal_strength(progress: float) -> float:
    """2 / (1 + exp(-10 p)) - 1: from 0 at the start to almost 1 at the end of training (Ganin et al. 2016)."""
    return 2 / (1 + math.exp(-10.0 * progress)) - 1


def mean_entropy(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, ""]:
    """Mean entropy of the predictions in nats, in [0, log classes]; larger is less sure (Grandvalet & Bengio 2005)."""
    log_probabilities = widen(logits).log_softmax(-1)
    return -(log_probabilities.exp() * log_probabilities).sum(-1).mean()


def classifier_discrepancy(
    one: Float[Tensor, "batch classes"], other: Float[Tensor, "batch classes"]
) -> Float[Tensor, ""]:
    """Mean |p1 - p2| over samples and classes of two classifiers' probabilities, in [0, 2 / classes] (MCD's measure).

    0 where they agree; unchanged by exchanging them.
    """
    return (widen(one).softmax(-1) - widen(other).softmax(-1)).abs().mean()
