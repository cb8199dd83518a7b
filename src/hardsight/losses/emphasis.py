"""The formula of gradient rescaling: the weight and direction of each row, and which samples the weights emphasise.

Weights are computed in logarithms throughout, so that nothing overflows or vanishes where p or 1 - p rounds to 0.

Above `largest_beta` it rules classes out instead of learning them. Take a network that knows no more of an image than
that it shows one of K classes: it gives each of them p = 1/K, and each comes equally often as the label. GR moves the
logits by a_c - p_c sum_j a_j with a = w(p) / (1 - p). Equal probabilities are a fixed point, but a stable one only
while a'/a < K there; with w = exp(beta p^lam (1 - p)) that is beta < `critical_beta(lam, K)`. Above it, a class that is
a little less probable than the others is pulled less and becomes less probable still, whatever the images show.
Training starts with all classes as candidates (K = C) and passes through fewer. Cross-entropy and GCE (q < 1) are
stable for every K, MAE is exactly neutral: GR above its limit is past MAE, whose slowness is known. A learning rate, a
divisor or a clipping changes the pace of this, not its direction.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, trace_of
from hardsight.losses.inputs import Rows, check_floating, check_not_negative, check_range

Transform = str | Callable[[Tensor], Tensor]
# Beyond it the exponential of a float is infinite.
_LARGEST_LOG = 700.0


class Rescaled(NamedTuple):
    """What gradient rescaling makes of a batch."""

    log_p: Float[Tensor, "rows"]  # of the label
    log_rest: Float[Tensor, "rows"]  # of 1 - p, exact where that rounds to 0
    log_weights: Float[Tensor, "rows"]  # of w times the sample weight; minus infinity where ignored
    direction: Float[Tensor, "rows classes"]  # (p - y) / (2 (1 - p_y) + epsilon): without epsilon its L1 norm is 1


def rescale(rows: Rows, beta: float, lam: float, transform: Transform, epsilon: float = 0.0) -> Rescaled:
    """Weights and directions of a batch.

    The direction of the other classes is half their softmax among themselves: no difference of nearly equal numbers
    and no epsilon, so it is right at p_y = 1 too.
    """
    assert rows.labels is not None
    assert rows.weight is not None
    # A negative weight has no logarithm and would spoil the whole batch.
    check_not_negative(rows.weight)
    label = rows.labels.unsqueeze(-1)
    shifted = rows.logits - rows.logits.amax(-1, keepdim=True)
    others = shifted.scatter(-1, label, -math.inf)
    log_total, log_others = shifted.logsumexp(-1), others.logsumexp(-1)
    log_p, log_rest = rows.at_label(shifted) - log_total, log_others - log_total
    log_w = log_weight(log_p, log_rest, beta, lam, transform) + rows.weight.log()
    # Not from `others`: shifted by a labelled logit far above them, they are rounded to its grid.
    among_others = rows.logits.scatter(-1, label, -math.inf).softmax(-1)
    direction = let_go((among_others / 2).scatter(-1, label, -0.5), log_rest, epsilon)
    # Where every other class is masked out there is nothing to learn.
    direction = torch.where((log_others == -math.inf).unsqueeze(-1), 0.0, direction)
    return Rescaled(log_p, log_rest, log_w, direction)


def let_go(
    direction: Float[Tensor, "rows classes"], log_rest: Float[Tensor, "rows"], epsilon: float
) -> Float[Tensor, "rows classes"]:
    """direction * 2 (1 - p) / (2 (1 - p) + epsilon), from log (1 - p): exact where 1 - p rounds to 0."""
    if epsilon == 0:
        return direction
    return direction * torch.sigmoid(log_rest + math.log(2 / epsilon)).unsqueeze(-1)


def log_weight(log_p: Tensor, log_rest: Tensor, beta: float, lam: float, transform: Transform) -> Tensor:
    """log g(beta p^lam (1 - p)) from log p and log (1 - p): exact where p or 1 - p rounds to 0."""
    log_power = log_rest if lam == 0 else lam * log_p + log_rest
    if transform == "identity":
        return log_power + (math.log(beta) if beta > 0 else -math.inf)
    argument = beta * log_power.exp()
    return argument if isinstance(transform, str) else transform(argument).log()


def rescaled_gradient(
    log_weights: Float[Tensor, "rows"], direction: Float[Tensor, "rows classes"], log_divisor: Float[Tensor, ""]
) -> Float[Tensor, "rows classes"]:
    """direction * w_i / divisor; 0 where the weight is 0, the largest number where a weight overflows."""
    ratio = torch.where(log_weights == -math.inf, 0.0, (log_weights - log_divisor).exp())
    return direction * ratio.clamp(max=torch.finfo(ratio.dtype).max).unsqueeze(-1)


def attach_gradient(value: Tensor, logits: Tensor, gradient: Float[Tensor, "rows classes"]) -> Tensor:
    """`value`, with `gradient` as its derivative by the logits whatever the value is."""
    return applied(_AttachGradient, value, logits, gradient, trace_of(logits))


def check_rescaling(beta: float, lam: float, transform: Transform, epsilon: float = 0.0) -> None:
    check_range(beta, "beta", 0.0)
    check_range(lam, "lam", 0.0)
    check_range(epsilon, "epsilon", 0.0)
    if isinstance(transform, str):
        if transform not in ("exp", "identity"):
            raise ValueError(f"transform must be 'exp', 'identity' or a callable; got {transform!r}")
    elif not torch.compiler.is_compiling():
        largest = beta * (lam / (1 + lam)) ** lam / (1 + lam)
        weights = transform(torch.linspace(0, largest, 65, dtype=torch.float64))
        if not (torch.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"transform must be finite and non-negative on [0, {largest:g}]; got {weights.tolist()}")


class _AttachGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, logits: Tensor, gradient: Tensor, trace: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[None, Tensor, None, None]:
        gradient, _ = saved
        return None, (grad.reshape(-1, 1) if grad.ndim else grad) * gradient, None, None


def weight_curve(
    probability: Float[Tensor, "*shape"], beta: float = 6.0, lam: float = 0.5, transform: Transform = "exp"
) -> Float[Tensor, "*shape"]:
    """GR's weight g(beta p^lam (1 - p)) of a sample whose label has probability p.

    Identity transform: (2, 0) is the curve of CE, 2(1-p); (4, 1) that of MAE, 4p(1-p); (2, q) that of GCE,
    2 p^q (1-p), for which the paper's Eq. 7 prints beta = 1.
    """
    check_rescaling(beta, lam, transform)
    check_floating(probability, "probability")
    return log_weight(probability.log(), torch.log1p(-probability), beta, lam, transform).exp()


def emphasis_focus(beta: float = 6.0, lam: float = 0.5) -> float:
    """The probability with the largest weight, in [0, 1]: lam / (1 + lam) under any increasing transform."""
    check_range(beta, "beta", 0.0, open_low=True)
    check_range(lam, "lam", 0.0)
    return lam / (1 + lam)


def emphasis_spread(weights: Float[Tensor, "samples"]) -> Float[Tensor, ""]:
    """Variance of the weights over the samples (divided by their number); 0 when all are treated alike."""
    return weights.var(correction=0)


def critical_beta(lam: int | float, candidates: int) -> float:
    """K^(lam + 1) (K - 2) / ((K - 1) (lam (K - 1) - 1)): above it, equal probabilities of K classes are unstable.

    Infinite where lam <= 1 / (K - 1): the weight then falls with the probability.

    >>> round(critical_beta(1, 10), 1), round(critical_beta(0.5, 10), 1), round(critical_beta(0.5, 100), 1)
    (11.1, 8.0, 20.4)
    """
    check_range(lam, "lam", 0.0)
    check_range(candidates, "candidates", 2.0)
    steepness = lam * (candidates - 1) - 1
    if steepness <= 0 or (lam + 1) * math.log(candidates) > _LARGEST_LOG:
        return math.inf
    found: float = candidates ** (lam + 1) * (candidates - 2) / ((candidates - 1) * steepness)
    return found


def largest_beta(lam: int | float, classes: int) -> float:
    """The smallest `critical_beta` of any number of candidates, from three to all classes; infinite for two classes.

    Not of two: between two, ruling one out is the decision itself.

    >>> [round(largest_beta(lam, 10), 1) for lam in (0.3, 0.5, 1, 2)]
    [10.4, 7.7, 4.5, 4.5]
    """
    check_range(lam, "lam", 0.0)
    check_range(classes, "classes", 2.0)
    return min((critical_beta(lam, candidates) for candidates in range(3, classes + 1)), default=math.inf)
