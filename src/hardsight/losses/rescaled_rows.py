"""The formula of gradient rescaling: weights and directions of a batch's rows, and how a loss gets that gradient.

In logarithms throughout, so that nothing overflows or vanishes where p or 1 - p rounds to 0.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, trace_of
from hardsight.losses.inputs import Rows, check_not_negative, check_range

Transform = str | Callable[[Tensor], Tensor]


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
    return argument if transform == "exp" else _as_callable(transform)(argument).log()


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
        weights = _as_callable(transform)(torch.linspace(0, largest, 65, dtype=torch.float64))
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


def _as_callable(transform: Transform) -> Callable[[Tensor], Tensor]:
    if isinstance(transform, str):
        return torch.exp if transform == "exp" else lambda argument: argument
    return transform
