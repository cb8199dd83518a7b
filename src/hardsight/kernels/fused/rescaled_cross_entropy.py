"""Triton: the statistics and weights of rows of logits in one read, their gradient in one read and one write.

The weight of a row and the sums over all rows are shared with `rescaled_linear_cross_entropy`.
"""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, log_or_nothing, on_device_of, power_of_two
from hardsight.kernels.fused.angles import label_and_weight, softplus

# ruff: noqa: N803


# Elements a program reads at a time. Eight neighbours stay in one thread (16 bytes of half precision), so a running
# maximum for each eight costs no exchange between threads.
_RUN = 8
_BLOCK = 8192
# Short rows are read several at a time, together about this many elements.
_TILE = 4096
LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
@no_type_check
def _label_and_others(
    logits, row, inside, label, classes, row_stride, ROWS: tl.constexpr, LANES: tl.constexpr, RUN: tl.constexpr
):
    """The label's logit and the log-sum-exp of the others, of ROWS rows at once."""
    start = logits + row * row_stride
    offsets = tl.arange(0, LANES)[None, :, None] * RUN + tl.arange(0, RUN)[None, None, :]
    top = tl.full((ROWS, LANES), float("-inf"), tl.float32)
    total = tl.zeros((ROWS, LANES), tl.float32)
    for begin in range(0, classes, LANES * RUN):
        column = begin + offsets
        readable = (column < classes) & inside[:, None, None]
        z = tl.load(start[:, None, None] + column, mask=readable, other=float("-inf")).to(tl.float32)
        z = tl.where(column == label[:, None, None], float("-inf"), z)
        higher = tl.maximum(top, tl.max(z, 2))
        # Before the first finite logit the maximum is -inf, and -inf - -inf is no number.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(z - base[:, :, None]), 2)
        top = higher
    highest = tl.max(top, 1)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    mass = tl.sum(total * tl.exp(top - base[:, None]), 1)
    return tl.load(start + label, mask=inside, other=0.0).to(tl.float32), base + tl.log(mass)


@triton.jit
@no_type_check
def _weights(
    logits, labels, sample_weight, kept, sums, rows, class_steps, stride_steps, ignore_index, beta, log_beta, lam,
    log_two_over_epsilon,
    EXP: tl.constexpr, LETS_GO: tl.constexpr, EACH: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
    LANES: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """log others and log coefficient of every row; the losses where EACH, else this program's share of the sums."""
    program = tl.program_id(0)
    row = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    label, weight = label_and_weight(labels, sample_weight, row, inside, ignore_index)
    own, others = _label_and_others(
        logits, row, inside, label, class_steps * STEP, stride_steps * STEP, ROWS, LANES, RUN
    )
    log_p, log_weight = log_p_and_weight(own, others, beta, log_beta, lam, EXP)
    loss = tl.where(weight == 0.0, 0.0, -log_p * weight)
    log_weight = tl.where(weight == 0.0, float("-inf"), log_weight + tl.log(weight))
    tl.store(kept + row, others, mask=inside)
    if LETS_GO:
        tl.store(kept + rows + row, log_weight + log_held(own, others, log_two_over_epsilon), mask=inside)
    else:
        tl.store(kept + rows + row, log_weight, mask=inside)
    if EACH:
        tl.store(sums + row, tl.minimum(loss, LARGEST), mask=inside)
        tl.store(kept + 2 * rows, 0.0)
    else:
        programs = tl.num_programs(0)
        top = tl.max(log_weight, 0)
        base = tl.where(top == float("-inf"), 0.0, top)
        tl.store(sums + program, tl.sum(loss, 0))
        tl.store(sums + programs + program, tl.sum(weight, 0))
        tl.store(sums + 2 * programs + program, top)
        tl.store(sums + 3 * programs + program, tl.sum(tl.exp(log_weight - base), 0))


@triton.jit
@no_type_check
def _gradient(
    logits, labels, kept, upstream, gradient, rows, class_steps, stride_steps, gradient_steps, upstream_stride,
    STEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(p - y) / (2 (1 - p_y)) times what comes from above and the kept coefficient over the divisor."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    within = row < rows
    label = tl.load(labels + row, mask=within, other=0)[:, None]
    others = tl.load(kept + row, mask=within, other=0.0)
    log_weight = tl.load(kept + rows + row, mask=within, other=float("-inf"))
    ratio = tl.exp(log_weight - tl.load(kept + 2 * rows))
    ratio = tl.where(log_weight == float("-inf"), 0.0, tl.minimum(ratio, LARGEST))
    half = 0.5 * ratio * tl.load(upstream + row * upstream_stride, mask=within, other=0.0).to(tl.float32)
    # Where every other class is masked out there is nothing to learn; where the weight is 0, nothing to exponentiate.
    half = tl.where(others == float("-inf"), 0.0, half)[:, None]
    others = tl.where(others == float("-inf"), 0.0, others)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (column < class_steps * STEP) & within[:, None]
    z = tl.load(logits + (row * stride_steps * STEP)[:, None] + column, mask=inside, other=0.0).to(tl.float32)
    value = tl.exp(z - others) * half
    value = tl.where(column == label, -half, tl.where(half == 0.0, 0.0, value))
    place = gradient + (row * gradient_steps * STEP)[:, None] + column
    tl.store(place, value.to(gradient.dtype.element_ty), mask=inside)


def weigh(
    logits: Tensor, labels: Tensor, sample_weight: Tensor | None, normaliser: Tensor | None, ignore_index: int,
    beta: float, lam: float, epsilon: float, exponential: bool, reduction: str, log_normaliser: float | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The loss; and what the gradient needs: log others and log coefficient of a row, then the log of the divisor."""
    rows, classes = logits.shape
    tile = _read_tile(classes)
    programs = blocks_of(rows, tile["ROWS"])
    step = math.gcd(classes, logits.stride(0), 16)
    each = reduction == "none"
    kept = torch.empty(2 * rows + 1, dtype=torch.float32, device=logits.device)
    sums = torch.empty(rows if each else 4 * programs, dtype=torch.float32, device=logits.device)
    with on_device_of(logits):
        _weights[(programs,)](
            logits, labels.contiguous(), None if sample_weight is None else sample_weight.contiguous(), kept, sums,
            rows, classes // step, logits.stride(0) // step, ignore_index, beta, log_or_nothing(beta), lam,
            log_two_over(epsilon),
            EXP=exponential, LETS_GO=epsilon > 0, EACH=each, STEP=step, **tile,
        )  # fmt: skip
    if each:
        return sums, kept
    return totals(sums, programs, kept, 2 * rows, reduction, normaliser, log_normaliser, masses=True), kept


def write_gradient(logits: Tensor, labels: Tensor, kept: Tensor, upstream: Tensor, out: Tensor | None = None) -> Tensor:
    """The rescaled gradient of every row from what `weigh` kept; into `out`, which may be the logits themselves."""
    rows, classes = logits.shape
    out = torch.empty_like(logits) if out is None else out
    block = min(_BLOCK, max(16, power_of_two(classes)))
    together = max(1, _TILE // block)
    step = math.gcd(classes, logits.stride(0), out.stride(0), 16)
    with on_device_of(logits):
        _gradient[(blocks_of(rows, together), blocks_of(classes, block))](
            logits, labels.contiguous(), kept.contiguous(), upstream, out, rows, classes // step,
            logits.stride(0) // step, out.stride(0) // step, upstream.stride(0) if upstream.ndim else 0,
            STEP=step, ROWS=together, BLOCK=block, num_warps=max(1, together * block // 512),
        )  # fmt: skip
    return out


def _read_tile(classes: int) -> dict[str, int]:
    block = min(_BLOCK, max(2 * _RUN, power_of_two(classes)))
    rows = max(1, _TILE // block)
    # A long row is walked, so a thread holds one run at a time; short rows are held whole, two runs in a thread.
    warps = block // _RUN // 32 if classes > _TILE else rows * block // (2 * _RUN) // 32
    return {"ROWS": rows, "LANES": block // _RUN, "RUN": _RUN, "num_warps": max(1, min(32, warps))}


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
    sums, value, kept, normaliser, log_normaliser, place, shares,
    REDUCTION: tl.constexpr, GIVEN: tl.constexpr, MASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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
    tl.store(value, tl.minimum(loss_sum, LARGEST))
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
    sums: Tensor, shares: int, kept: Tensor, place: int, reduction: str, normaliser: Tensor | None,
    log_normaliser: float | None, *, masses: bool,
) -> Tensor:  # fmt: skip
    """The reduced loss, and the log of the divisor to its place in `kept`; from the sums of every share of the rows."""
    value = torch.empty((), dtype=torch.float32, device=sums.device)
    block = min(2048, max(16, power_of_two(shares)))
    with on_device_of(sums):
        _totals[(1,)](
            sums, value, kept, normaliser, 0.0 if log_normaliser is None else log_normaliser, place, shares,
            REDUCTION=_REDUCTIONS[reduction], GIVEN=log_normaliser is not None, MASSES=masses, BLOCK=block,
            num_warps=max(1, block // 128),
        )  # fmt: skip
    return value


def log_two_over(epsilon: float) -> float:
    """log (2 / epsilon); 0 without epsilon, where nothing reads it."""
    return math.log(2 / epsilon) if epsilon > 0 else 0.0
