# ruff: noqa: N803
"""Triton: the AVH loss of rows of products, its slope by each product, and its sums over the batch.

A block of samples at a time: one matrix product (torch's own), one kernel over its rows, two more products, and the
features' gradient made tangent to the sphere. The products of a block exist, those of all samples do not.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import add_product, aligned, on_device_of, padded, product
from hardsight.kernels.fused.angles import PI, arccos
from hardsight.kernels.fused.directions import LEAST_SINE, inverse_norms, project_into, write_factor
from hardsight.kernels.fused.samples import label_and_weight, number_at

# Products of one block, samples x classes. Fewer would read and write the weight's gradient more often.
BLOCK_ELEMENTS = 2**28
# A weight's gradient of no more elements than this stays in the L2 cache, and so should a block of this many samples:
# what one kernel writes, the next one reads.
CACHED_ELEMENTS, CACHED_SAMPLES = 2**22, 4096
# The widest row that a program holds in registers; wider ones are read twice. Of short rows it takes several.
WIDEST = 8192
_TILE = 1024


@triton.jit
@no_type_check
def _cosines(products, here, inverse, weight_inverse, column, width):
    """Of some rows with some classes, and 1 / length of the classes."""
    readable = column < width
    z = tl.load(products[:, None] + column, mask=here[:, None] & readable, other=0.0)
    other = tl.load(weight_inverse + column, mask=readable, other=0.0)
    cosine = z * inverse[:, None] * other
    # Infinite products of finite vectors have no angle here: a right one is taken, which pulls nowhere.
    cosine = tl.where(cosine == cosine, cosine, 0.0)
    return tl.minimum(tl.maximum(cosine, -1.0), 1.0), other


@triton.jit
@no_type_check
def _write_slopes(cosine, p, column, label, outer, other, slopes, here, width, LARGEST: tl.constexpr):
    """d loss / d product = scale (p - y) / sin, by the two lengths; padding has no length."""
    sine = tl.maximum(tl.sqrt((1.0 - cosine) * (1.0 + cosine)), LEAST_SINE)
    slope = (p - tl.where(column == label[:, None], 1.0, 0.0)) / sine * outer[:, None] * other
    slope = tl.minimum(tl.maximum(slope, -LARGEST), LARGEST).to(slopes.dtype.element_ty)
    tl.store(slopes[:, None] + column, slope, mask=here[:, None] & (column < width))


@triton.jit
@no_type_check
def _angular_rows(
    products,
    slopes,
    labels,
    sample_weight,
    upstream,
    inverses,
    scale,
    scale_value,
    factor,
    divisor,
    losses,
    gaps,
    first,
    end,
    samples,
    classes,
    width_steps,
    products_stride,
    slopes_stride,
    upstream_stride,
    ignore_index,
    SLOPES: tl.constexpr,
    LARGEST: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Weighted: -log softmax of scale (pi - angle) at the label, label angle minus mean angle, and d loss / d product.

    `width` counts the padding that makes classes a multiple of 8.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    me = first + row
    here = me < end
    width = width_steps * 8
    products += row * products_stride
    inverse = tl.load(inverses + me, mask=here, other=0.0)
    weight_inverse = inverses + samples
    s = number_at(scale, scale_value)
    label, weight = label_and_weight(labels, sample_weight, me, here, ignore_index)
    if WHOLE:
        column = tl.arange(0, BLOCK)[None, :]
        cosine, other = _cosines(products, here, inverse, weight_inverse, column, width)
        angle = arccos(cosine)
        logit = tl.where(column < classes, s * (PI - angle), float("-inf"))
        top = tl.max(logit, 1)
        exponential = tl.exp(logit - top[:, None])
        mass = tl.sum(exponential, 1)
        moment = tl.sum(exponential * angle, 1)
    else:
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        mass = tl.zeros((ROWS,), tl.float32)
        moment = tl.zeros((ROWS,), tl.float32)
        for start in range(0, classes, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            cosine, other = _cosines(products, here, inverse, weight_inverse, column, width)
            angle = arccos(cosine)
            logit = tl.where(column < classes, s * (PI - angle), float("-inf"))
            higher = tl.maximum(top, tl.max(logit, 1))
            exponential = tl.exp(logit - higher[:, None])
            fade = tl.exp(top - higher)
            mass = mass * fade + tl.sum(exponential, 1)
            moment = moment * fade + tl.sum(exponential * angle, 1)
            top = higher
    own = tl.load(products + label, mask=here, other=0.0) * inverse * tl.load(weight_inverse + label)
    own_angle = arccos(tl.where(own == own, own, 0.0))
    log_total = top + tl.log(mass)
    loss = log_total - s * (PI - own_angle)
    tl.store(losses + me, tl.where(weight == 0.0, 0.0, loss * weight), mask=here)
    if upstream is not None:
        weight *= tl.load(upstream + me * upstream_stride, mask=here, other=0.0).to(tl.float32)
    if gaps is not None:
        tl.store(gaps + me, weight * (own_angle - moment / mass), mask=here)
    if SLOPES:
        outer = weight * number_at(factor, 1.0) * s * inverse / number_at(divisor, 1.0)
        slopes += row * slopes_stride
        if WHOLE:
            p = exponential / mass[:, None]
            _write_slopes(cosine, p, column, label, outer, other, slopes, here, width, LARGEST)
        else:
            for start in range(0, width, BLOCK):
                column = start + tl.arange(0, BLOCK)[None, :]
                cosine, other = _cosines(products, here, inverse, weight_inverse, column, width)
                p = tl.exp(s * (PI - arccos(cosine)) - log_total[:, None])
                _write_slopes(cosine, p, column, label, outer, other, slopes, here, width, LARGEST)


@triton.jit
@no_type_check
def _divisor(labels, sample_weight, factor, out, samples, ignore_index, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the samples' weights (1 where it is 0 or not asked for), and the log of that times the factor."""
    total = 1.0
    if MEAN:
        count = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, samples, BLOCK):
            sample = start + tl.arange(0, BLOCK)
            _, weight = label_and_weight(labels, sample_weight, sample, sample < samples, ignore_index)
            count += weight
        total = tl.sum(count, 0)
        total = tl.where(total == 0.0, 1.0, total)
    tl.store(out, total)
    if factor is not None:
        tl.store(out + 1, tl.log(total) + tl.log(tl.load(factor)))


@triton.jit
@no_type_check
def _totals(losses, gaps, divisor, value, by_scale, samples, BLOCK: tl.constexpr):
    """The reduced loss and its gradient by scale."""
    loss = tl.zeros((BLOCK,), tl.float32)
    gap = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        if value is not None:
            loss += tl.load(losses + sample, mask=sample < samples, other=0.0)
        if gaps is not None:
            gap += tl.load(gaps + sample, mask=sample < samples, other=0.0)
    if value is not None:
        tl.store(value, tl.sum(loss, 0) / number_at(divisor, 1.0))
    if gaps is not None:
        tl.store(by_scale, tl.sum(gap, 0) / number_at(divisor, 1.0))


def row_tile(width: int) -> dict[str, int]:
    """How a program takes rows of products: a wide one in turns, or whole, or several short ones together."""
    block = min(WIDEST, max(16, triton.next_power_of_2(width)))
    rows, whole = max(1, _TILE // block), width <= block
    warps = max(1, min(32 if whole else 16, rows * block // 256))
    return {"ROWS": rows, "BLOCK": block, "WHOLE": whole, "num_warps": warps}


class Batch(NamedTuple):
    """What a walk knows of its samples beside their features; the scale as a tensor of one element, or a number."""

    labels: Tensor
    scale: Tensor | None
    scale_value: float
    sample_weight: Tensor | None
    upstream: Tensor | None
    ignore_index: int


class Sizes(NamedTuple):
    """What a mean is divided by, what slopes are multiplied and divided by, and what gradients still are, as a log.

    Float16 would lose the small slopes of a mean over many: they are kept at about 1, and the mean is taken at the end.
    """

    divisor: Tensor | None = None
    slope_factor: Tensor | None = None
    slope_divisor: Tensor | None = None
    log_divisor: Tensor | None = None


def walk(
    features: Tensor, weight: Tensor, batch: Batch, reduction: str, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The loss, its gradients by features, weight and scale as `wanted`, and the log of what still divides two of them.

    What is not wanted is empty; so is the last, except for float16, whose gradients are held in float32.
    """
    samples, classes, device = len(features), len(weight), features.device
    weight = padded(weight)
    inverses = inverse_norms(features, weight)
    sizes = _sizes(batch, inverses, len(weight), features.dtype, reduction)
    held = torch.float32 if features.dtype == torch.float16 else features.dtype
    by_features = torch.empty(features.shape if wanted[0] else 0, dtype=held, device=device)
    by_weight = torch.empty(weight.shape if wanted[1] else 0, dtype=held, device=device)
    weight_sum = torch.empty(weight.shape, dtype=torch.float32, device=device) if wanted[1] else None
    losses = torch.empty(samples, dtype=torch.float32, device=device)
    gaps = torch.empty_like(losses) if wanted[2] else None
    rows = block_rows(samples, len(weight), features.shape[1])
    for start in range(0, samples, rows):
        end = min(start + rows, samples)
        here = features if end - start == samples else features[start:end]
        slopes = _slopes(here, weight, classes, batch, inverses, sizes, losses, gaps, start, wanted[0] or wanted[1])
        if slopes is None:
            continue
        found = []
        if wanted[0]:
            part = torch.empty(here.shape, dtype=torch.float32, device=device)
            found.append((product(slopes, weight, part), here, by_features[start:end]))
        if weight_sum is not None:
            (product if start == 0 else add_product)(slopes.T, here, weight_sum)
            if end == samples:
                found.append((weight_sum, weight, by_weight))
        if found:
            project_into(found, inverses, start if wanted[0] else samples)
    value, by_scale = _reduced(losses, gaps, sizes.divisor, reduction)
    log_divisor = losses.new_empty(0) if sizes.log_divisor is None else sizes.log_divisor
    return value, by_features, by_weight[:classes], by_scale, log_divisor


def block_rows(samples: int, classes: int, dim: int) -> int:
    """How many samples are worked on at a time."""
    rows = CACHED_SAMPLES if classes * dim <= CACHED_ELEMENTS else samples
    return max(1, min(samples, rows, max(128, BLOCK_ELEMENTS // classes)))


def _slopes(
    features: Tensor,
    weight: Tensor,
    classes: int,
    batch: Batch,
    inverses: Tensor,
    sizes: Sizes,
    losses: Tensor,
    gaps: Tensor | None,
    start: int,
    wanted: bool,
) -> Tensor | None:
    """Writes the losses and gaps of a block of samples; d loss / d product where it is wanted."""
    count, samples, width = len(features), len(losses), len(weight)
    products = product(features, weight.T, aligned(count, width, torch.float32, features.device))
    slopes = aligned(count, width, features.dtype, features.device) if wanted else None
    tile = row_tile(width)
    with on_device_of(features):
        _angular_rows[(triton.cdiv(count, tile["ROWS"]),)](
            products,
            slopes,
            batch.labels,
            batch.sample_weight,
            batch.upstream,
            inverses,
            batch.scale,
            batch.scale_value,
            sizes.slope_factor,
            sizes.slope_divisor,
            losses,
            gaps,
            start,
            start + count,
            samples,
            classes,
            width // 8,
            products.stride(0),
            0 if slopes is None else slopes.stride(0),
            0 if batch.upstream is None else batch.upstream.stride(0),
            batch.ignore_index,
            SLOPES=wanted,
            LARGEST=torch.finfo(features.dtype).max,
            **tile,
        )
    return slopes


def _sizes(batch: Batch, inverses: Tensor, classes: int, dtype: torch.dtype, reduction: str) -> Sizes:
    narrow, mean = dtype == torch.float16, reduction == "mean"
    samples = len(batch.labels)
    counted = (batch.labels, batch.sample_weight, batch.upstream, batch.ignore_index)
    factor = None
    if narrow:
        factor = write_factor(inverses, samples, classes, *counted, batch.scale, batch.scale_value)
    if not narrow and not mean:
        return Sizes()
    found = torch.empty(2, dtype=torch.float32, device=inverses.device)
    block, warps = _block(samples)
    with on_device_of(inverses):
        _divisor[(1,)](
            batch.labels,
            batch.sample_weight,
            factor,
            found,
            samples,
            batch.ignore_index,
            MEAN=mean,
            BLOCK=block,
            num_warps=warps,
        )
    divisor = found[:1]
    return Sizes(divisor, factor, None, found[1:]) if narrow else Sizes(divisor, slope_divisor=divisor)


def _reduced(losses: Tensor, gaps: Tensor | None, divisor: Tensor | None, reduction: str) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient by scale, empty where no gaps are given."""
    each = reduction == "none"
    by_scale = torch.empty(0 if gaps is None else 1, dtype=torch.float32, device=losses.device)
    value = losses if each else torch.empty((), dtype=torch.float32, device=losses.device)
    if each and gaps is None:
        return value, by_scale
    block, warps = _block(len(losses))
    with on_device_of(losses):
        _totals[(1,)](
            losses,
            gaps,
            divisor,
            None if each else value,
            by_scale,
            len(losses),
            BLOCK=block,
            num_warps=warps,
        )
    return value, by_scale


def _block(samples: int) -> tuple[int, int]:
    """How many samples a program that sums over all of them takes at a time, and its warps."""
    block = min(2048, max(16, triton.next_power_of_2(samples)))
    return block, max(1, block // 128)
