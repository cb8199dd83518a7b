# ruff: noqa: N803
"""Triton: AMC's contrast of rows of products with all samples, and its slope by each product."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, on_device_of, over_blocks, power_of_two
from hardsight.kernels.fused.angles import arccos, label_and_weight, number_at
from hardsight.kernels.fused.angular_cross_entropy import reduced
from hardsight.kernels.fused.directions import LEAST_SINE, inverse_norms, write_factor

# Products of one block, samples x all samples.
_BLOCK_ELEMENTS = 2**26
# Rows a program walks together: the others' labels, weights and lengths are read once for all of them.
_ROWS = 4


@triton.jit
@no_type_check
def _contrast_rows(
    products, slopes, labels, sample_weight, inverses, factor, margin, contrast, first, end, samples, products_stride,
    slopes_stride, ignore_index,
    SLOPES: tl.constexpr, LARGEST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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


def contrast(
    features: Tensor, labels: Tensor, sample_weight: Tensor | None, margin: float, ignore_index: int, reduction: str,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
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
    block = min(512, max(16, power_of_two(samples)))

    def fill(start: int, end: int, products: Tensor, slopes: Tensor | None) -> None:
        with on_device_of(features):
            _contrast_rows[(blocks_of(end - start, _ROWS),)](
                products, slopes, labels, sample_weight, inverses, factor, margin, found, start, end, samples,
                products.stride(0), 0 if slopes is None else slopes.stride(0), ignore_index,
                SLOPES=slopes_wanted, LARGEST=torch.finfo(features.dtype).max, ROWS=_ROWS, BLOCK=block,
                num_warps=max(1, _ROWS * block // 256),
            )  # fmt: skip

    over_blocks(features, features, _BLOCK_ELEMENTS, fill, gradient if slopes_wanted else None, None)
    unit = torch.empty(1, dtype=torch.float32, device=device)
    counted = (labels, sample_weight, ignore_index)
    value = reduced(found, unit, None, counted, factor, reduction, most=2048, pairs=True)
    return value, inverses, gradient, unit
