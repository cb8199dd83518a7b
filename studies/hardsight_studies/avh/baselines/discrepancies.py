"""What the adaptation baselines minimise or maximise beside the source's cross-entropy: pure functions of a batch."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.geometry import full_precision, widen

# Kernels a factor of two apart around the mean distance, as public code of DAN (Long et al. 2015) has them.
BANDWIDTH_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def maximum_mean_discrepancy(
    source: Float[Tensor, "source dim"],
    target: Float[Tensor, "target dim"],
    *,
    factors: Sequence[float] = BANDWIDTH_FACTORS,
    biased: bool = True,
) -> Float[Tensor, ""]:
    """Squared MMD, mean k(s, s') + mean k(t, t') - 2 mean k(s, t), of several Gaussian kernels (Gretton et al. 2012).

    k(x, y) is the mean over `factors` of exp(-|x - y|^2 / (factor b)); b, the mean squared distance between different
    samples of both domains together, is a constant for the gradient. `biased` counts each sample with itself: the
    value is at least 0, and 0 for identical samples. The unbiased estimate leaves those pairs out, may be negative,
    and needs two samples of each domain. Larger is farther apart. A batch whose samples are all equal has MMD 0.
    """
    _check_samples(source, target, factors, biased)
    with full_precision(source):
        both = torch.cat([widen(source), widen(target)])
        distances = _squared_distances(both)
        bandwidth = distances.detach().sum() / (len(both) * (len(both) - 1))
        bandwidth = torch.where(bandwidth == 0, 1.0, bandwidth)
        kernel = torch.stack([torch.exp(-distances / (factor * bandwidth)) for factor in factors]).mean(0)
    split = len(source)
    within_source, within_target, between = kernel[:split, :split], kernel[split:, split:], kernel[:split, split:]
    return _mean_pair(within_source, biased) + _mean_pair(within_target, biased) - 2 * between.mean()


def reverse_gradient(values: Float[Tensor, "*shape"], strength: float = 1.0) -> Float[Tensor, "*shape"]:
    """The values themselves; on the way back their gradient is multiplied by -strength (Ganin et al. 2016)."""
    reversed_gradient: Tensor = _Reversed.apply(values, strength)  # type: ignore[no-untyped-call]
    return reversed_gradient


def reversal_strength(progress: float, steepness: float = 10.0) -> float:
    """2 / (1 + exp(-10 p)) - 1: from 0 at the start to almost 1 at the end of training (Ganin et al. 2016)."""
    return 2 / (1 + math.exp(-steepness * progress)) - 1


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


def symmetric_divergence(
    one: Float[Tensor, "batch classes"], other: Float[Tensor, "batch classes"]
) -> Float[Tensor, ""]:
    """Mean of (KL(p1 || p2) + KL(p2 || p1)) / 2 over samples and classes, in nats: what dropout changes (ADR).

    At least 0, and 0 where they agree; unchanged by exchanging them. The mean runs over the classes too, as in the
    authors' public code.
    """
    first, second = widen(one).log_softmax(-1), widen(other).log_softmax(-1)
    # (p1 - p2)(log p1 - log p2): both divergences in one sum.
    return ((first.exp() - second.exp()) * (first - second)).mean() / 2


class _Reversed(torch.autograd.Function):
    """Identity forward, -strength times the gradient backward."""

    @staticmethod
    def forward(values: Tensor, strength: float) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.strength = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grad, None


def _squared_distances(samples: Tensor) -> Tensor:
    """|x - y|^2 of all pairs by one product; rounding may leave a tiny negative, which is none."""
    # Distances do not change with the origin; around the mean less is lost to rounding.
    centred = samples - samples.detach().mean(0)
    squares = centred.square().sum(1)
    distances = (squares[:, None] + squares[None, :] - 2 * centred @ centred.T).clamp_min(0)
    return distances * (1 - torch.eye(len(samples), dtype=distances.dtype, device=distances.device))


def _mean_pair(kernel: Tensor, biased: bool) -> Tensor:
    if biased:
        return kernel.mean()
    return (kernel.sum() - kernel.diagonal().sum()) / (len(kernel) * (len(kernel) - 1))


def _check_samples(source: Tensor, target: Tensor, factors: Sequence[float], biased: bool) -> None:
    least = 1 if biased else 2
    if min(len(source), len(target)) < least:
        raise ValueError(f"each domain must give at least {least} samples; got {len(source)} and {len(target)}")
    if not factors or min(factors) <= 0:
        raise ValueError(f"factors must be positive numbers, one a kernel; got {list(factors)}")
