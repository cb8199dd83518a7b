# ruff: noqa: N803
"""Triton: the AVH loss of rows of products, its slope by each product, and its sums over the batch.

A block of samples at a time: one matrix product (torch's own), one kernel over its rows, two more products. The
products of a block exist, those of all samples do not.
"""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.angular_cross_entropy import keeps_slopes
from hardsight.kernels.dispatch import (
    aligned_width,
    blocks_of,
    held_dtype,
    on_device_of,
    over_blocks,
    padded,
    power_of_two,
)
from hardsight.kernels.fused.angles import PI, arccos, label_and_weight, number_at
from hardsight.kernels.fused.directions import LEAST_SINE, inverse_norms, write_factor

# Products of one block, samples x classes. Fewer would read and write the weight's gradient more often.
BLOCK_ELEMENTS = 2**28
# The widest row that a program holds in registers; wider ones are read twice. Of short rows it takes several.
WIDEST = 8192
_TILE = 1024


@triton.jit
@no_type_check
def _cosines(products, here, inverse, weight_inverse, column, width):
    """Of some rows with some classes, the products they come from, and 1 / length of the classes."""
    readable = column < width
    z = tl.load(products[:, None] + column, mask=here[:, None] & readable, other=0.0)
    other = tl.load(weight_inverse + column, mask=readable, other=0.0)
    cosine = z * inverse[:, None] * other
    # Infinite products of finite vectors have no angle here: a right one is taken, which pulls nowhere.
    measured = cosine == cosine
    cosine = tl.where(measured, cosine, 0.0)
    return tl.minimum(tl.maximum(cosine, -1.0), 1.0), tl.where(measured, z, 0.0), other


@triton.jit
@no_type_check
def _write_slopes(cosines, p, column, label, outer, slopes, here, width, LARGEST: tl.constexpr):
    """d loss / d product = scale (p - y) / sin, by the two lengths; padding has no length.

    Returns the rows' sums of slope times product: what is written, times the weight, has this part along the features.
    """
    cosine, z, other = cosines
    sine = tl.maximum(tl.sqrt((1.0 - cosine) * (1.0 + cosine)), LEAST_SINE)
    slope = (p - tl.where(column == label[:, None], 1.0, 0.0)) / sine * outer[:, None] * other
    slope = tl.minimum(tl.maximum(slope, -LARGEST), LARGEST).to(slopes.dtype.element_ty)
    tl.store(slopes[:, None] + column, slope, mask=here[:, None] & (column < width))
    return tl.sum(slope.to(tl.float32) * z, 1)


@triton.jit
@no_type_check
def _angular_rows(
    products, slopes, labels, sample_weight, upstream, inverses, scale, scale_value, factor, losses, gaps, along, first,
    end, samples, classes, width_steps, products_stride, slopes_stride, upstream_stride, ignore_index,
    SLOPES: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weighted: -log softmax of scale (pi - angle) at the label, label angle minus mean angle, and d loss / d product.

    `along`: how many times each sample's features lie in its slopes times the weight.

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
        cosines = _cosines(products, here, inverse, weight_inverse, column, width)
        angle = arccos(cosines[0])
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
            angle = arccos(_cosines(products, here, inverse, weight_inverse, column, width)[0])
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
        outer = weight * number_at(factor, 1.0) * s * inverse
        slopes += row * slopes_stride
        if WHOLE:
            p = exponential / mass[:, None]
            radial = _write_slopes(cosines, p, column, label, outer, slopes, here, width, LARGEST)
        else:
            radial = tl.zeros((ROWS,), tl.float32)
            for start in range(0, width, BLOCK):
                column = start + tl.arange(0, BLOCK)[None, :]
                cosines = _cosines(products, here, inverse, weight_inverse, column, width)
                p = tl.exp(s * (PI - arccos(cosines[0])) - log_total[:, None])
                radial += _write_slopes(cosines, p, column, label, outer, slopes, here, width, LARGEST)
        if along is not None:
            tl.store(along + me, radial * inverse * inverse, mask=here)


@triton.jit
@no_type_check
def _totals(
    losses, gaps, labels, sample_weight, factor, value, totals, samples, ignore_index,
    VALUE: tl.constexpr, MEAN: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The reduced loss, what the gradients by products are still to be multiplied by, and the gradient by scale.

    The mean is over the samples' weights, or over the weights of all `PAIRS`.
    """
    loss = tl.zeros((BLOCK,), tl.float32)
    gap = tl.zeros((BLOCK,), tl.float32)
    # Pairs weigh (sum^2 - sum of squares) / 2: a difference of two large numbers.
    count = tl.zeros((BLOCK,), tl.float64 if PAIRS else tl.float32)
    squares = count
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        inside = sample < samples
        if VALUE:
            loss += tl.load(losses + sample, mask=inside, other=0.0)
        if MEAN:
            _, weight = label_and_weight(labels, sample_weight, sample, inside, ignore_index)
            count += weight.to(count.dtype)
            if PAIRS:
                squares += weight.to(count.dtype) * weight.to(count.dtype)
        if gaps is not None:
            gap += tl.load(gaps + sample, mask=inside, other=0.0)
    divisor = 1.0
    if MEAN:
        if PAIRS:
            whole, square = tl.sum(count, 0), tl.sum(squares, 0)
            pairs = (whole * whole - square) / 2
            divisor = tl.where(pairs <= 1e-12 * square, 1.0, pairs).to(tl.float32)
        else:
            divisor = tl.sum(count, 0)
            divisor = tl.where(divisor == 0.0, 1.0, divisor)
    if VALUE:
        tl.store(value, tl.sum(loss, 0) / divisor)
    if totals is not None:
        tl.store(totals, 1.0 / divisor / number_at(factor, 1.0))
    if gaps is not None:
        tl.store(totals + 1, tl.sum(gap, 0) / divisor)


def row_tile(width: int) -> dict[str, int]:
    """How a program takes rows of products: a wide one in turns, or whole, or several short ones together."""
    block = min(WIDEST, max(16, power_of_two(width)))
    rows, whole = max(1, _TILE // block), width <= block
    warps = max(1, min(32 if whole else 16, rows * block // 256))
    return {"ROWS": rows, "BLOCK": block, "WHOLE": whole, "num_warps": warps}


def walk(
    features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor | None, scale_value: float,
    sample_weight: Tensor | None, ignore_index: int, reduction: str, upstream: Tensor | None, wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The loss, 1 / length of features and weight, gradients of the sum before projection by both, and their totals.

    The totals are what the two gradients are to be multiplied by, and the gradient by scale. `wanted` names the
    gradients by features, weight and scale; what is not wanted is empty. Where `ops.keeps_slopes` the slopes stand in
    place of the gradient by features, their product with the weight, and last comes how many times the features lie
    in it.
    """
    samples, classes, device = len(features), len(weight), features.device
    slopes_wait = wanted[0] and keeps_slopes(features, weight)
    features, weight = features.contiguous(), padded(weight.contiguous())
    width = len(weight)
    labels = labels.contiguous()
    sample_weight = None if sample_weight is None else sample_weight.contiguous()
    inverses = inverse_norms(features, weight)
    losses = torch.empty(samples, dtype=torch.float32, device=device)
    gaps = torch.empty_like(losses) if any(wanted) else None
    slopes_wanted, factor = wanted[0] or wanted[1], None
    if slopes_wait:
        by_features = torch.empty(samples, aligned_width(width), dtype=features.dtype, device=device)
    else:
        by_features = torch.empty(features.shape if wanted[0] else 0, dtype=held_dtype(features.dtype), device=device)
    along = torch.empty(samples if slopes_wait else 0, dtype=torch.float32, device=device)
    by_weight = torch.empty(weight.shape if wanted[1] else 0, dtype=torch.float32, device=device)
    if slopes_wanted and features.dtype == torch.float16:
        counted = (labels, sample_weight, upstream, ignore_index)
        factor = write_factor(inverses, samples, width, *counted, scale, scale_value)
    tile = row_tile(width)

    def fill(start: int, end: int, products: Tensor, slopes: Tensor | None) -> None:
        with on_device_of(features):
            _angular_rows[(blocks_of(end - start, tile["ROWS"]),)](
                products, slopes, labels, sample_weight, upstream, inverses, scale, scale_value, factor, losses, gaps,
                along if slopes_wait else None, start, end, samples, classes, width // 8, products.stride(0),
                0 if slopes is None else slopes.stride(0), 0 if upstream is None else upstream.stride(0), ignore_index,
                SLOPES=slopes_wanted, LARGEST=torch.finfo(features.dtype).max, **tile,
            )  # fmt: skip

    over_blocks(
        features, weight, BLOCK_ELEMENTS, fill, by_features if wanted[0] and not slopes_wait else None,
        by_weight if wanted[1] else None, by_features[:, :width] if slopes_wait else None,
    )  # fmt: skip
    totals = torch.empty(2 if any(wanted) else 0, dtype=torch.float32, device=device)
    value = reduced(losses, totals, gaps, (labels, sample_weight, ignore_index), factor, reduction)
    if width != classes:
        inverses, by_weight = inverses[: samples + classes], by_weight[:classes]
    return value, inverses, by_features, by_weight, totals, along


def reduced(
    losses: Tensor, totals: Tensor, gaps: Tensor | None, counted: tuple[Tensor, Tensor | None, int],
    factor: Tensor | None, reduction: str, *, most: int = 16384, pairs: bool = False,
) -> Tensor:  # fmt: skip
    """The reduced losses; `totals`, unless it is empty, is filled. `counted`: labels, sample weights, what to ignore.

    One program sums all, at `most` so many at a time: the fewer turns it takes, the less it waits for memory.
    """
    each = reduction == "none"
    if each and not len(totals):
        return losses
    value = losses if each else torch.empty((), dtype=torch.float32, device=losses.device)
    labels, sample_weight, ignore_index = counted
    block = min(most, max(16, power_of_two(len(losses))))
    with on_device_of(losses):
        _totals[(1,)](
            losses, gaps, labels, sample_weight, factor, value, totals if len(totals) else None, len(losses),
            ignore_index, VALUE=not each, MEAN=reduction == "mean", PAIRS=pairs, BLOCK=block,
            num_warps=max(1, min(32, block // 128)),
        )  # fmt: skip
    return value
