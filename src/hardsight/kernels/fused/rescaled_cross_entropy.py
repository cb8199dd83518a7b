# ruff: noqa: N803
"""Triton: the statistics of rows of logits in one read, and their rescaled gradient in one read and one write."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

# Elements a program reads at a time. Eight neighbours stay in one thread (16 bytes of half precision), so a running
# maximum for each eight costs no exchange between threads.
_RUN = 8
_BLOCK = 8192


@triton.jit
@no_type_check
def _statistics(logits, labels, label_logit, log_others, classes, row_stride, LANES: tl.constexpr, RUN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    start = logits + row * row_stride
    offsets = tl.arange(0, LANES)[:, None] * RUN + tl.arange(0, RUN)[None, :]
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for begin in range(0, classes, LANES * RUN):
        column = begin + offsets
        z = tl.load(start + column, mask=column < classes, other=float("-inf")).to(tl.float32)
        z = tl.where(column == label, float("-inf"), z)
        higher = tl.maximum(top, tl.max(z, 1))
        # Before the first finite logit the maximum is -inf, and -inf - -inf is no number.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(z - base[:, None]), 1)
        top = higher
    highest = tl.max(top, 0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    mass = tl.sum(total * tl.exp(top - base), 0)
    tl.store(label_logit + row, tl.load(start + label).to(tl.float32))
    tl.store(log_others + row, base + tl.log(mass))


@triton.jit
@no_type_check
def _gradient(
    logits, labels, log_others, coefficient, gradient, classes, row_stride, gradient_stride, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < classes
    label = tl.load(labels + row)
    others = tl.load(log_others + row)
    half = 0.5 * tl.load(coefficient + row)
    # Where every other class is masked out there is nothing to learn; where the weight is 0, nothing to exponentiate.
    half = tl.where(others == float("-inf"), 0.0, half)
    others = tl.where(others == float("-inf"), 0.0, others)
    z = tl.load(logits + row * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    value = tl.exp(z - others) * half
    value = tl.where(column == label, -half, tl.where(half == 0.0, 0.0, value))
    tl.store(gradient + row * gradient_stride + column, value.to(gradient.dtype.element_ty), mask=inside)


def row_statistics(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The label's logit and the others' log-sum-exp of every row."""
    rows, classes = logits.shape
    label_logit = torch.empty(rows, dtype=torch.float32, device=logits.device)
    log_others = torch.empty_like(label_logit)
    block = min(_BLOCK, max(128, triton.next_power_of_2(classes)))
    with _on_device_of(logits):
        _statistics[(rows,)](
            logits,
            labels,
            label_logit,
            log_others,
            classes,
            logits.stride(0),
            LANES=block // _RUN,
            RUN=_RUN,
            num_warps=_warps(block // _RUN),
        )
    return label_logit, log_others


def write_gradient(logits: Tensor, labels: Tensor, log_others: Tensor, coefficient: Tensor, out: Tensor) -> Tensor:
    """The rescaled gradient of every row, into `out`, which may be the logits themselves."""
    rows, classes = logits.shape
    block = min(_BLOCK, max(128, triton.next_power_of_2(classes)))
    with _on_device_of(logits):
        _gradient[(rows, triton.cdiv(classes, block))](
            logits,
            labels,
            log_others,
            coefficient.contiguous(),
            out,
            classes,
            logits.stride(0),
            out.stride(0),
            BLOCK=block,
            num_warps=_warps(block // 16),
        )
    return out


def _warps(threads: int) -> int:
    return max(1, min(32, threads // 32))


def _on_device_of(tensor: Tensor) -> torch.cuda.device:
    return torch.cuda.device(tensor.device if tensor.device.type == "cuda" else -1)
