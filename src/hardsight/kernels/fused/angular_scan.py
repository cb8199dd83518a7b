# ruff: noqa: N803
"""Triton: a matrix product whose tiles are folded as they come (`angular_fold`), on any device that Triton serves."""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angular_fold import LANES, LOWEST, fold, leave, place_of
from hardsight.kernels.fused.angular_norms import inverse_of


@triton.jit
@no_type_check
def _load(source, first, start, count, dim, stride, ROWS: tl.constexpr, DIM: tl.constexpr, DESCRIBED: tl.constexpr):
    if DESCRIBED:
        return source.load([first, start])
    else:  # noqa: RET505, the branch not taken must not be compiled
        row = first + tl.arange(0, ROWS)
        column = start + tl.arange(0, DIM)
        inside = (row < count)[:, None] & (column < dim)[None, :]
        return tl.load(source + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
@no_type_check
def scan_tiles(
    features,
    weight,
    labels,
    norms,
    weight_inverse,
    bias,
    partial,
    samples,
    classes,
    dim,
    feature_stride,
    weight_stride,
    classes_per_split,
    sample_blocks,
    SAMPLES: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    DESCRIBED: tl.constexpr,
    LOOK: tl.constexpr,
    LOGITS: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`FIELDS` numbers a sample and split into `partial`: what a block of samples found in its split of the classes."""
    splits = tl.num_programs(0) // sample_blocks
    block, split = place_of(tl.program_id(0), splits, sample_blocks, GROUP)
    first = block * SAMPLES
    begin = split * classes_per_split
    end = tl.minimum(begin + classes_per_split, classes)
    row = first + tl.arange(0, SAMPLES)
    label = tl.load(labels + row, mask=row < samples, other=-1).to(tl.int32)
    inverse = inverse_of(tl.load(norms + row, mask=row < samples, other=1.0))
    sample, head = (label, inverse), (weight_inverse, bias, classes)
    top = tl.full((SAMPLES, LANES), LOWEST, tl.float32)
    place = tl.zeros((SAMPLES, LANES), tl.int32)
    nothing = tl.zeros((SAMPLES, LANES), tl.float32)
    state = (top, place, (nothing, nothing, nothing), (top, nothing, nothing), nothing)
    lane = tl.arange(0, LANES)[None, :]
    column = tl.arange(0, CLASSES)
    # One loop over tiles and features, so that the next tile is loaded while this one is folded.
    tile, start = begin, 0
    product = tl.zeros((SAMPLES, CLASSES), tl.float32)
    for _ in range(0, tl.cdiv(end - begin, CLASSES) * tl.cdiv(dim, DIM)):
        x = _load(features, first, start, samples, dim, feature_stride, SAMPLES, DIM, DESCRIBED)
        w = _load(weight, tile, start, classes, dim, weight_stride, CLASSES, DIM, DESCRIBED)
        product = tl.dot(x, w.T, product, input_precision=PRECISION)
        whole = start + DIM >= dim
        if whole:
            state = fold(product, tile, lane, column, sample, head, state, LOOK, LOGITS, BIAS, SPREAD)
            product = tl.zeros((SAMPLES, CLASSES), tl.float32)
        tile = tl.where(whole, tile + CLASSES, tile)
        start = tl.where(whole, 0, start + DIM)
    leave(partial, state, lane, row, inverse, split, samples, LOGITS)
