# ruff: noqa: N803
"""Triton: gradient rescaling of rows of products, weight and gradient of each row in one kernel."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, log_or_nothing, on_device_of, over_blocks, padded
from hardsight.kernels.fused.angles import label_and_weight
from hardsight.kernels.fused.angular_cross_entropy import BLOCK_ELEMENTS, row_tile
from hardsight.kernels.fused.rescaled_cross_entropy import log_held, log_p_and_weight, log_two_over, totals
from hardsight.kernels.rescaled_cross_entropy import dtypes_of

# Elements of a gradient that a program scales.
_SCALED = 8192


@triton.jit
@no_type_check
def _logits(products, here, bias, column, classes, width):
    """The logits of some rows for some classes, -inf in the padding."""
    readable = here[:, None] & (column < width)
    z = tl.load(products[:, None] + column, mask=readable, other=0.0)
    if bias is not None:
        z += tl.load(bias + column, mask=column < classes, other=0.0).to(tl.float32)
    return tl.where(column < classes, z, float("-inf"))


@triton.jit
@no_type_check
def _write_slopes(z, column, label, others, half, slopes, here, width):
    half = half[:, None]
    slope = tl.where(column == label[:, None], -half, tl.exp(z - others[:, None]) * half)
    slope = tl.where(half == 0.0, 0.0, slope).to(slopes.dtype.element_ty)
    tl.store(slopes[:, None] + column, slope, mask=here[:, None] & (column < width))


@triton.jit
@no_type_check
def _rescaled_rows(
    products, slopes, bias, labels, sample_weight, sums, beta, log_beta, lam, log_two_over_epsilon, shift, first, end,
    samples, classes, width_steps, products_stride, slopes_stride, ignore_index,
    EXP: tl.constexpr, LETS_GO: tl.constexpr, SLOPES: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Loss, weight and log weight of each row, and its gradient w (p - y) / (2 (1 - p_y)) times exp(-shift)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    me = first + row
    here = me < end
    width = width_steps * 8
    products += row * products_stride
    label, weight = label_and_weight(labels, sample_weight, me, here, ignore_index)
    if WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        z = _logits(products, here, bias, column, classes, width)
        rest = tl.where(column == label[:, None], float("-inf"), z)
        top = tl.max(rest, 1)
        # Where there is no class but the label the maximum is -inf, and -inf - -inf is no number.
        base = tl.where(top == float("-inf"), 0.0, top)
        mass = tl.sum(tl.exp(rest - base[:, None]), 1)
    else:
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        mass = tl.zeros((ROWS,), tl.float32)
        for start in range(0, classes, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            z = _logits(products, here, bias, column, classes, width)
            rest = tl.where(column == label[:, None], float("-inf"), z)
            higher = tl.maximum(top, tl.max(rest, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            mass = mass * tl.exp(top - base) + tl.sum(tl.exp(rest - base[:, None]), 1)
            top = higher
    others = top + tl.log(mass)
    own = tl.load(products + label, mask=here, other=0.0)
    if bias is not None:
        own += tl.load(bias + label).to(tl.float32)
    log_p, log_weight = log_p_and_weight(own, others, beta, log_beta, lam, EXP)
    log_weight = tl.where(weight == 0.0, float("-inf"), log_weight + tl.log(weight))
    tl.store(sums + me, tl.where(weight == 0.0, 0.0, -log_p * weight), mask=here)
    tl.store(sums + samples + me, weight, mask=here)
    tl.store(sums + 2 * samples + me, log_weight, mask=here)
    if SLOPES:
        if LETS_GO:
            log_weight += log_held(own, others, log_two_over_epsilon)
        # Where there is no other class, there is nothing to learn.
        half = tl.where(others == float("-inf"), 0.0, 0.5 * tl.exp(log_weight - shift))
        slopes += row * slopes_stride
        if WHOLE:
            _write_slopes(z, column, label, others, half, slopes, here, width)
        else:
            for start in range(0, width, BLOCK):
                column = start + tl.arange(0, BLOCK)[None, :]
                z = _logits(products, here, bias, column, classes, width)
                _write_slopes(z, column, label, others, half, slopes, here, width)


@triton.jit
@no_type_check
def _scale_block(gradient, out, block, size, scale, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(gradient + place, mask=place < size, other=0.0) * scale
    # A gradient too large for half precision is cut off, not turned into infinity.
    value = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=place < size)


@triton.jit
@no_type_check
def _scale(
    first, first_out, second, second_out, third, third_out, upstream, log_divisor, shift, first_size, second_size,
    third_size,
    FIRST_LARGEST: tl.constexpr, SECOND_LARGEST: tl.constexpr, THIRD_LARGEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Up to three gradients times what comes from above and exp(shift) / divisor, in the types of their inputs."""
    scale = tl.load(upstream).to(tl.float32)
    if log_divisor is not None:
        divisor = tl.load(log_divisor)
        scale = tl.where(divisor == float("-inf"), 0.0, tl.exp(shift - divisor) * scale)
    block = tl.program_id(0)
    first_blocks = tl.cdiv(first_size, BLOCK)
    second_blocks = tl.cdiv(second_size, BLOCK)
    if block < first_blocks:
        _scale_block(first, first_out, block, first_size, scale, FIRST_LARGEST, BLOCK)
    elif block < first_blocks + second_blocks:
        if second is not None:
            _scale_block(second, second_out, block - first_blocks, second_size, scale, SECOND_LARGEST, BLOCK)
    elif third is not None:
        here = block - first_blocks - second_blocks
        _scale_block(third, third_out, here, third_size, scale, THIRD_LARGEST, BLOCK)


def walk(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, sample_weight: Tensor | None,
    normaliser: Tensor | None, ignore_index: int, beta: float, lam: float, epsilon: float, exponential: bool,
    reduction: str, log_normaliser: float | None, shift: float, slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The loss, the log of the divisor, and the sum's gradients by features, weight and bias, times exp(-shift)."""
    samples, classes, device = len(features), len(weight), features.device
    features, weight, labels = features.contiguous(), weight.contiguous(), labels.contiguous()
    bias = None if bias is None else bias.contiguous()
    sample_weight = None if sample_weight is None else sample_weight.contiguous()
    sums = torch.empty(3 * samples, dtype=torch.float32, device=device)
    divisor = torch.empty(1, dtype=torch.float32, device=device)
    weight = padded(weight)
    width = len(weight)
    sizes = (features.shape, weight.shape) if slopes_wanted else ((0,), (0,))
    by_features, by_weight = (torch.empty(size, dtype=torch.float32, device=device) for size in sizes)
    by_bias = torch.empty(width if slopes_wanted and bias is not None else 0, dtype=torch.float32, device=device)
    tile = row_tile(width)

    def fill(start: int, end: int, products: Tensor, slopes: Tensor | None) -> None:
        with on_device_of(features):
            _rescaled_rows[(blocks_of(end - start, tile["ROWS"]),)](
                products, slopes, bias, labels, sample_weight, sums, beta, log_or_nothing(beta), lam,
                log_two_over(epsilon), shift, start, end, samples, classes, width // 8, products.stride(0),
                0 if slopes is None else slopes.stride(0), ignore_index,
                EXP=exponential, LETS_GO=epsilon > 0, SLOPES=slopes_wanted, **tile,
            )  # fmt: skip
        if slopes is not None and bias is not None:
            if start == 0:
                torch.sum(slopes, 0, dtype=torch.float32, out=by_bias)
            else:
                by_bias.add_(slopes.sum(0, dtype=torch.float32))

    wanted = (by_features, by_weight) if slopes_wanted else (None, None)
    over_blocks(features, weight, BLOCK_ELEMENTS, fill, *wanted)
    value = totals(sums, samples, divisor, 0, reduction, normaliser, log_normaliser, masses=False)
    if width != classes and slopes_wanted:
        by_weight, by_bias = by_weight[:classes], by_bias[:classes]
    return value, divisor, by_features, by_weight, by_bias


def scaled(
    gradients: list[Tensor], dtype: torch.dtype, bias_dtype: torch.dtype | None, upstream: Tensor,
    log_divisor: Tensor | None, shift: float,
) -> list[Tensor]:  # fmt: skip
    """Each gradient times upstream, and exp(shift) / divisor where that is given, in its dtype; in one kernel."""
    dtypes = dtypes_of(gradients, dtype, bias_dtype)
    out = [torch.empty(one.shape, dtype=dtype, device=one.device) for one, dtype in zip(gradients, dtypes, strict=True)]
    none = [None] * (3 - len(gradients))
    largest = [torch.finfo(dtype).max for dtype in dtypes]
    sizes = [one.numel() for one in gradients]
    pairs = [one for pair in zip([*gradients, *none], [*out, *none], strict=True) for one in pair]
    with on_device_of(upstream):
        _scale[(sum(blocks_of(size, _SCALED) for size in sizes),)](
            *pairs, upstream, log_divisor, shift, *sizes, *[0] * len(none), *largest, *[0.0] * len(none),
            BLOCK=_SCALED, num_warps=8,
        )  # fmt: skip
    return out
