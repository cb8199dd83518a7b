# ruff: noqa: N803
"""Triton: AMC's contrast of rows of products with all samples, and its slope by each product."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import aligned, blocks_of, on_device_of, power_of_two, product
from hardsight.kernels.fused.angles import arccos, label_and_weight, number_at
from hardsight.kernels.fused.directions import LEAST_SINE, inverse_norms, write_factor

# Products of one block, samples x all samples.
_BLOCK_ELEMENTS = 2**26
# Rows a program walks together: the others' labels, weights and lengths are read once for all of them.
_ROWS = 4


@triton.jit
@no_type_check
def _contrast_rows(
    products,
    slopes,
    labels,
    sample_weight,
    inverses,
    factor,
    margin,
    contrast,
    first,
    end,
    samples,
    products_stride,
    slopes_stride,
    ignore_index,
    SLOPES: tl.constexpr,
    LARGEST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum over the other samples of angle^2 or max(0, margin - angle)^2, half of each pair's; and the slopes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    me = first + row
    here = me < end
    label, own_weight = label_and_weight(labels, sample_weight, me, here, ignore_index)
    own_inverse = tl.load(inverses + me, mask=here, other=0.0)
    scale = number_at(factor, 1.0)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, samples, BLOCK):
        other = start + tl.arange(0, BLOCK)
        inside = other < samples
        other_label, other_weight = label_and_weight(labels, sample_weight, other, inside, ignore_index)
        readable = here[:, None] & inside[None, :]
        z = tl.load(products + (row * products_stride)[:, None] + other[None, :], mask=readable, other=0.0)
        length = own_inverse[:, None] * tl.load(inverses + other, mask=inside, other=0.0)[None, :]
        cosine = z * length
        cosine = tl.where(cosine == cosine, tl.minimum(tl.maximum(cosine, -1.0), 1.0), 0.0)
        angle = arccos(cosine)
        # Ignored samples have the weight 0 and so pair with nobody.
        pair = tl.where(other[None, :] != me[:, None], own_weight[:, None] * other_weight[None, :], 0.0)
        alike = other_label[None, :] == label[:, None]
        distance = tl.where(alike, angle, tl.maximum(margin - angle, 0.0))
        total += tl.where(pair == 0.0, 0.0, 0.5 * pair * distance * distance)
        if SLOPES:
            sine = tl.maximum(tl.sqrt((1.0 - cosine) * (1.0 + cosine)), LEAST_SINE)
            slope = tl.where(alike, -2.0, 2.0) * distance / sine * pair * scale * length
            slope = tl.where(pair == 0.0, 0.0, tl.minimum(tl.maximum(slope, -LARGEST), LARGEST))
            place = slopes + (row * slopes_stride)[:, None] + other[None, :]
            tl.store(place, slope.to(slopes.dtype.element_ty), mask=readable)
    tl.store(contrast + me, tl.sum(total, 1), mask=here)


@triton.jit
@no_type_check
def _totals(
    contrast,
    labels,
    sample_weight,
    factor,
    value,
    unit,
    samples,
    ignore_index,
    MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The reduced contrast, and what the gradient by products is still to be multiplied by."""
    total = tl.zeros((BLOCK,), tl.float32)
    # Pairs weigh (sum^2 - sum of squares) / 2: a difference of two large numbers.
    weights = tl.zeros((BLOCK,), tl.float64)
    squares = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        inside = sample < samples
        total += tl.load(contrast + sample, mask=inside, other=0.0)
        if MEAN:
            _, weight = label_and_weight(labels, sample_weight, sample, inside, ignore_index)
            weights += weight.to(tl.float64)
            squares += weight.to(tl.float64) * weight.to(tl.float64)
    divisor = 1.0
    if MEAN:
        whole, square = tl.sum(weights, 0), tl.sum(squares, 0)
        pairs = (whole * whole - square) / 2
        divisor = tl.where(pairs <= 1e-12 * square, 1.0, pairs).to(tl.float32)
    tl.store(value, tl.sum(total, 0) / divisor)
    tl.store(unit, 1.0 / divisor / number_at(factor, 1.0))


def contrast(
    features: Tensor,
    labels: Tensor,
    sample_weight: Tensor | None,
    margin: float,
    ignore_index: int,
    reduction: str,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The contrast, 1 / length of each sample, the gradient before projection, and what that is to be multiplied by."""
    samples, device, features = len(features), features.device, features.contiguous()
    labels = labels.contiguous()
    sample_weight = None if sample_weight is None else sample_weight.contiguous()
    inverses = inverse_norms(features)
    found = torch.empty(samples, dtype=torch.float32, device=device)
    gradient = torch.empty(features.shape if slopes_wanted else (0,), dtype=torch.float32, device=device)
    factor = None
    if slopes_wanted and features.dtype == torch.float16:
        factor = write_factor(inverses, samples, None, labels, sample_weight, None, ignore_index)
    rows = max(1, min(samples, max(128, _BLOCK_ELEMENTS // samples)))
    block = min(512, max(16, power_of_two(samples)))
    for start in range(0, samples, rows):
        count = min(rows, samples - start)
        here = features if count == samples else features[start : start + count]
        products = product(here, features.T, aligned(count, samples, torch.float32, device))
        slopes = aligned(count, samples, features.dtype, device) if slopes_wanted else None
        with on_device_of(features):
            _contrast_rows[(blocks_of(count, _ROWS),)](
                products,
                slopes,
                labels,
                sample_weight,
                inverses,
                factor,
                margin,
                found,
                start,
                start + count,
                samples,
                products.stride(0),
                0 if slopes is None else slopes.stride(0),
                ignore_index,
                SLOPES=slopes_wanted,
                LARGEST=torch.finfo(features.dtype).max,
                ROWS=_ROWS,
                BLOCK=block,
                num_warps=max(1, _ROWS * block // 256),
            )
        del products
        if slopes is not None:
            product(slopes, features, gradient if count == samples else gradient[start : start + count])
    value = torch.empty((), dtype=torch.float32, device=device)
    unit = torch.empty_like(value)
    block = min(2048, max(16, power_of_two(samples)))
    with on_device_of(features):
        _totals[(1,)](
            found,
            labels,
            sample_weight,
            factor,
            value,
            unit,
            samples,
            ignore_index,
            MEAN=reduction == "mean",
            BLOCK=block,
            num_warps=max(1, block // 128),
        )
    return value, inverses, gradient, unit
