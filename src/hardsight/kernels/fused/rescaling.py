# ruff: noqa: N803
"""Triton: what the rescaled losses share: the weight of a row, and the sums over all rows (see `kernels.rescaling`)."""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import on_device_of, power_of_two
from hardsight.kernels.fused.angles import softplus

# What `totals` makes of the sums.
_REDUCTIONS = {"weight": 0, "mean": 1, "sum": 2}
MEAN, SUM = tl.constexpr(1), tl.constexpr(2)


@triton.jit
@no_type_check
def log_p_and_weight(own, others, beta, log_beta, lam, EXP: tl.constexpr):
    """log p_y, and log g(beta p^lam (1 - p))."""
    log_p = -softplus(others - own)
    # 0 times the log of p = 0 is no number.
    log_power = tl.where(lam == 0.0, 0.0, lam * log_p) - softplus(own - others)
    if EXP:  # noqa: SIM108, the branch not taken must not be compiled
        log_weight = beta * tl.exp(log_power)
    else:
        log_weight = log_beta + log_power
    return log_p, log_weight


@triton.jit
@no_type_check
def log_held(own, others, log_two_over_epsilon):
    """log of 2 (1 - p) / (2 (1 - p) + epsilon): what is left of the gradient of a fitted sample."""
    return -softplus(softplus(own - others) - log_two_over_epsilon)


@triton.jit
@no_type_check
def _totals(
    sums,
    value,
    kept,
    normaliser,
    log_normaliser,
    place,
    shares,
    REDUCTION: tl.constexpr,
    GIVEN: tl.constexpr,
    MASSES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The reduced loss and the log of what the gradient is divided by, from the shares, in one program: same bits."""
    loss = tl.zeros((BLOCK,), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, shares, BLOCK):
        share = start + tl.arange(0, BLOCK)
        inside = share < shares
        loss += tl.load(sums + share, mask=inside, other=0.0)
        weight += tl.load(sums + shares + share, mask=inside, other=0.0)
        log = tl.load(sums + 2 * shares + share, mask=inside, other=float("-inf"))
        if MASSES:
            mass = tl.load(sums + 3 * shares + share, mask=inside, other=0.0)
        else:
            mass = tl.full((BLOCK,), 1.0, tl.float32)
        higher = tl.maximum(top, log)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + mass * tl.exp(log - base)
        top = higher
    loss_sum = tl.sum(loss, 0)
    weight_sum = tl.sum(weight, 0)
    if REDUCTION != SUM:
        loss_sum = loss_sum / tl.where(weight_sum == 0.0, 1.0, weight_sum)
    tl.store(value, loss_sum)
    if REDUCTION == MEAN:
        log_divisor = tl.log(weight_sum)
    elif REDUCTION == SUM:
        log_divisor = 0.0
    elif GIVEN:
        log_divisor = log_normaliser
    elif normaliser is not None:
        log_divisor = tl.log(tl.load(normaliser).to(tl.float32))
    else:
        highest = tl.max(top, 0)
        base = tl.where(highest == float("-inf"), 0.0, highest)
        log_divisor = base + tl.log(tl.sum(total * tl.exp(top - base), 0))
    tl.store(kept + place, log_divisor)


def totals(
    sums: Tensor,
    shares: int,
    kept: Tensor,
    place: int,
    reduction: str,
    normaliser: Tensor | None,
    log_normaliser: float | None,
    *,
    masses: bool,
) -> Tensor:
    """The reduced loss, and the log of the divisor to its place in `kept`; from the sums of every share of the rows."""
    value = torch.empty((), dtype=torch.float32, device=sums.device)
    block = min(2048, max(16, power_of_two(shares)))
    with on_device_of(sums):
        _totals[(1,)](
            sums,
            value,
            kept,
            normaliser,
            0.0 if log_normaliser is None else log_normaliser,
            place,
            shares,
            REDUCTION=_REDUCTIONS[reduction],
            GIVEN=log_normaliser is not None,
            MASSES=masses,
            BLOCK=block,
            num_warps=max(1, block // 128),
        )
    return value


def log_two_over(epsilon: float) -> float:
    """log (2 / epsilon); 0 without epsilon, where nothing reads it."""
    return math.log(2 / epsilon) if epsilon > 0 else 0.0
