# ruff: noqa: N803
"""Triton: the AVH loss of rows of products, its slope by each product, and the projection onto the sphere's tangents.

A block of samples at a time: one matrix product (torch's own), one kernel over its rows, two more products. The
products of a block exist, those of all samples do not.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import add_product, aligned, product
from hardsight.kernels.fused.angles import PI, arccos

# Products of one block, samples x classes. Fewer would read and write the weight's gradient more often.
BLOCK_ELEMENTS = 2**28
# The widest row that stays in registers between its two passes.
_WIDEST = 8192
# Two cosines one rounding step apart near 1 differ by an angle of sqrt(2 eps): no smaller sine can be told apart.
_LEAST_SINE = tl.constexpr(4.8828125e-04)


@triton.jit
@no_type_check
def _angles(products, inverse, weight_inverse, column, classes):
    inside = column < classes
    z = tl.load(products + column, mask=inside, other=0.0)
    cosine = z * inverse * tl.load(weight_inverse + column, mask=inside, other=0.0)
    # Infinite products of finite vectors have no angle here: a right one is taken, which pulls nowhere.
    cosine = tl.where(cosine == cosine, cosine, 0.0)
    return tl.minimum(tl.maximum(cosine, -1.0), 1.0), inside


@triton.jit
@no_type_check
def _angular_rows(
    products,
    slopes,
    labels,
    feature_inverse,
    weight_inverse,
    scale,
    coefficient,
    factor,
    losses,
    gaps,
    classes,
    width,
    products_stride,
    slopes_stride,
    SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """-log softmax of scale (pi - angle) at the label, label angle minus mean angle, and d loss / d product."""
    row = tl.program_id(0).to(tl.int64)
    products += row * products_stride
    inverse = tl.load(feature_inverse + row)
    s = tl.load(scale)
    label = tl.load(labels + row)
    top = float("-inf")
    mass = 0.0
    moment = 0.0
    for start in range(0, classes, BLOCK):
        cosine, inside = _angles(products, inverse, weight_inverse, start + tl.arange(0, BLOCK), classes)
        angle = arccos(cosine)
        logit = tl.where(inside, s * (PI - angle), float("-inf"))
        higher = tl.maximum(top, tl.max(logit, 0))
        exponential = tl.exp(logit - higher)
        fade = tl.exp(top - higher)
        mass = mass * fade + tl.sum(exponential, 0)
        moment = moment * fade + tl.sum(exponential * angle, 0)
        top = higher
    own = tl.load(products + label) * inverse * tl.load(weight_inverse + label)
    own_angle = arccos(tl.where(own == own, own, 0.0))
    log_total = top + tl.log(mass)
    tl.store(losses + row, log_total - s * (PI - own_angle))
    tl.store(gaps + row, own_angle - moment / mass)
    if SLOPES:
        # d loss / d cosine = scale (p - y) / sin; the rest of the chain rule is the two lengths.
        outer = tl.load(coefficient + row) * tl.load(factor) * s * inverse
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)
            cosine, inside = _angles(products, inverse, weight_inverse, column, classes)
            sine = tl.maximum(tl.sqrt((1.0 - cosine) * (1.0 + cosine)), _LEAST_SINE)
            p = tl.exp(s * (PI - arccos(cosine)) - log_total)
            slope = (p - tl.where(column == label, 1.0, 0.0)) / sine * outer
            slope = slope * tl.load(weight_inverse + column, mask=inside, other=0.0)
            tl.store(slopes + row * slopes_stride + column, slope.to(slopes.dtype.element_ty), mask=column < width)


@triton.jit
@no_type_check
def _project(
    gradient,
    vectors,
    inverse,
    factor,
    out,
    dim,
    gradient_stride,
    vectors_stride,
    LARGEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """factor (g - (g . u) u) for each row: the radial part of a gradient by a direction does nothing."""
    row = tl.program_id(0).to(tl.int64)
    inv = tl.load(inverse + row)
    radial = 0.0
    for start in range(0, dim, BLOCK):
        d = start + tl.arange(0, BLOCK)
        g = tl.load(gradient + row * gradient_stride + d, mask=d < dim, other=0.0)
        radial += tl.sum(g * tl.load(vectors + row * vectors_stride + d, mask=d < dim, other=0.0).to(tl.float32), 0)
    radial = radial * inv * inv
    scale = tl.load(factor)
    for start in range(0, dim, BLOCK):
        d = start + tl.arange(0, BLOCK)
        g = tl.load(gradient + row * gradient_stride + d, mask=d < dim, other=0.0)
        x = tl.load(vectors + row * vectors_stride + d, mask=d < dim, other=0.0).to(tl.float32)
        value = (g - radial * x) * scale
        # A gradient too large for half precision is cut off, not turned into infinity.
        value = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
        tl.store(out + row * dim + d, value.to(out.dtype.element_ty), mask=d < dim)


def inverse_norms(vectors: Tensor) -> Tensor:
    """1 / |vector| in float32; 0 for a vector that is zero or whose length float32 cannot hold."""
    # 1 / inf is 0 already, and 1 / 0 becomes it.
    return torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float32).reciprocal_().nan_to_num_(0.0, 0.0, 0.0)


def padded(weight: Tensor) -> Tensor:
    """The weight with zero rows up to a multiple of 64: products of odd widths run several times slower."""
    return torch.nn.functional.pad(weight, (0, 0, 0, -len(weight) % 64)) if len(weight) % 8 else weight


def losses(features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    """The loss of every sample."""
    found, _, _, _ = _walk(features, weight, labels, scale, None)
    return found


def gradients(
    features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, coefficient: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Losses, the gradients of sum(coefficient * loss) before projection (times a factor), by scale, and 1 / factor."""
    found, gaps, (by_features, by_weight), factor = _walk(features, weight, labels, scale, coefficient)
    return found, by_features, by_weight, (gaps * coefficient).sum(), 1 / factor


def project(gradient: Tensor, vectors: Tensor, factor: Tensor) -> Tensor:
    """factor times the gradient's part along the sphere at each vector, in the vectors' dtype."""
    out = torch.empty(vectors.shape, dtype=vectors.dtype, device=vectors.device)
    block = min(4096, max(16, triton.next_power_of_2(vectors.shape[1])))
    with torch.cuda.device(vectors.device if vectors.device.type == "cuda" else -1):
        _project[(len(vectors),)](
            gradient,
            vectors,
            inverse_norms(vectors),
            factor,
            out,
            vectors.shape[1],
            gradient.stride(0),
            vectors.stride(0),
            LARGEST=torch.finfo(vectors.dtype).max,
            BLOCK=block,
            num_warps=max(1, min(8, block // 256)),
        )
    return out


def _walk(
    features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, coefficient: Tensor | None
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], Tensor]:
    samples, classes = len(features), len(weight)
    feature_inverse, weight_inverse = inverse_norms(features), inverse_norms(weight)
    weight = padded(weight)
    width = len(weight)
    found = torch.empty(samples, dtype=torch.float32, device=features.device)
    gaps, factor = torch.empty_like(found), torch.ones_like(found[:1]).squeeze()
    empty = torch.empty(0, device=features.device)
    by_features, by_weight = empty, empty
    if coefficient is not None:
        if features.dtype == torch.float16:
            # Slopes of about 1 or less: float16 would lose the small ones of a mean over many samples.
            largest = (coefficient.abs() * feature_inverse).amax() * weight_inverse.amax() * scale.abs()
            factor = torch.where(largest > 0, 1 / largest, 1.0).clamp(max=1e30)
        by_features = torch.empty(features.shape, dtype=torch.float32, device=features.device)
        by_weight = torch.empty(weight.shape, dtype=torch.float32, device=features.device)
    rows = max(1, min(samples, max(128, BLOCK_ELEMENTS // classes)))
    block = min(_WIDEST, max(16, triton.next_power_of_2(classes)))
    for start in range(0, samples, rows):
        here = slice(start, start + rows)
        count = min(rows, samples - start)
        products = product(features[here], weight.T, aligned(count, width, torch.float32, features.device))
        slopes = empty if coefficient is None else aligned(count, width, features.dtype, features.device)
        with torch.cuda.device(features.device if features.device.type == "cuda" else -1):
            _angular_rows[(len(products),)](
                products,
                slopes,
                labels[here],
                feature_inverse[here],
                weight_inverse,
                scale,
                None if coefficient is None else coefficient[here],
                factor,
                found[here],
                gaps[here],
                classes,
                width,
                products.stride(0),
                0 if coefficient is None else slopes.stride(0),
                SLOPES=coefficient is not None,
                BLOCK=block,
                num_warps=max(1, min(16, block // 256)),
            )
        del products
        if coefficient is not None:
            product(slopes, weight, by_features[here])
            (product if start == 0 else add_product)(slopes.T, features[here], by_weight)
    return found, gaps, (by_features, by_weight[:classes]), factor
