# ruff: noqa: N803
"""Triton: AMC's contrast of rows of products with all samples, and its slope by each product."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import aligned, product
from hardsight.kernels.fused.angles import arccos
from hardsight.kernels.fused.angular_cross_entropy import inverse_norms

# Products of one block, samples x all samples.
_BLOCK_ELEMENTS = 2**26
_LEAST_SINE = tl.constexpr(4.8828125e-04)


@triton.jit
@no_type_check
def _contrast_rows(
    products,
    slopes,
    labels,
    sample_weight,
    inverse,
    factor,
    margin,
    contrast,
    first,
    samples,
    products_stride,
    slopes_stride,
    SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum over the other samples of angle^2 or max(0, margin - angle)^2, half of each pair's; and the slopes."""
    row = tl.program_id(0).to(tl.int64)
    me = first + row
    label = tl.load(labels + me)
    own_weight = tl.load(sample_weight + me)
    own_inverse = tl.load(inverse + me)
    scale = tl.load(factor)
    total = 0.0
    for start in range(0, samples, BLOCK):
        other = start + tl.arange(0, BLOCK)
        inside = other < samples
        z = tl.load(products + row * products_stride + other, mask=inside, other=0.0)
        length = own_inverse * tl.load(inverse + other, mask=inside, other=0.0)
        cosine = z * length
        cosine = tl.where(cosine == cosine, tl.minimum(tl.maximum(cosine, -1.0), 1.0), 0.0)
        angle = arccos(cosine)
        pair = tl.where(
            inside & (other != me), own_weight * tl.load(sample_weight + other, mask=inside, other=0.0), 0.0
        )
        alike = tl.load(labels + other, mask=inside, other=0) == label
        distance = tl.where(alike, angle, tl.maximum(margin - angle, 0.0))
        total += tl.sum(tl.where(pair == 0.0, 0.0, 0.5 * pair * distance * distance), 0)
        if SLOPES:
            sine = tl.maximum(tl.sqrt((1.0 - cosine) * (1.0 + cosine)), _LEAST_SINE)
            slope = tl.where(alike, -2.0, 2.0) * distance / sine * pair * length * scale
            slope = tl.where(pair == 0.0, 0.0, slope)
            tl.store(slopes + row * slopes_stride + other, slope.to(slopes.dtype.element_ty), mask=inside)
    tl.store(contrast + me, total)


def contrast(
    features: Tensor, labels: Tensor, sample_weight: Tensor, margin: float, slopes_wanted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Each sample's half of the contrast with all others, the gradient before projection times a factor, 1 / factor."""
    samples = len(features)
    inverse = inverse_norms(features)
    found = torch.empty(samples, dtype=torch.float32, device=features.device)
    empty = torch.empty(0, device=features.device)
    gradient = torch.empty(features.shape, dtype=torch.float32, device=features.device) if slopes_wanted else empty
    largest = (sample_weight.abs() * inverse).amax().square()
    factor = torch.where(largest > 0, 1 / largest, 1.0).clamp(max=1e30)
    rows = max(1, min(samples, max(128, _BLOCK_ELEMENTS // samples)))
    block = min(4096, max(16, triton.next_power_of_2(samples)))
    for start in range(0, samples, rows):
        here = slice(start, start + rows)
        count = min(rows, samples - start)
        products = product(features[here], features.T, aligned(count, samples, torch.float32, features.device))
        slopes = aligned(count, samples, features.dtype, features.device) if slopes_wanted else empty
        with torch.cuda.device(features.device if features.device.type == "cuda" else -1):
            _contrast_rows[(len(products),)](
                products,
                slopes,
                labels,
                sample_weight,
                inverse,
                factor,
                margin,
                found,
                start,
                samples,
                products.stride(0),
                slopes.stride(0) if slopes_wanted else 0,
                SLOPES=slopes_wanted,
                BLOCK=block,
                num_warps=max(1, min(8, block // 256)),
            )
        del products
        if slopes_wanted:
            product(slopes, features, gradient[here])
    return found, gradient, 1 / factor
