# ruff: noqa: N803, N806, RUF005 (Triton has no *)
"""Gluon: the logit of each sample's label and the log-sum-exp of the others, for Hopper; no logit is ever written.

One warp loads tiles ahead, eight multiply and fold them: the loading, the products and the division of the work are
those of `angular_scan_hopper`, the folding is a running maximum and a running sum of exponentials.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from hardsight.kernels.dispatch import blocks_of, on_device_of
from hardsight.kernels.fused.angular_fold import (
    LANES,
    LOG2_E,
    LOWEST,
    leave_out_beyond,
    leave_out_label,
    place_of,
    slices_of,
    with_bias,
)
from hardsight.kernels.fused.angular_norms import Tiling, divide, is_worth_a_look, processors_of
from hardsight.kernels.fused.angular_scan_hopper import describe, load_ahead, multiply_tile, stages_of

# What a program leaves for each of its samples: largest logit of the other classes, their mass under it, label's logit.
FIELDS = tl.constexpr(3)


@triton.jit
@no_type_check
def _fold(product, tile, lane, label, bias, classes, state, LOOK: tl.constexpr, BIAS: tl.constexpr):
    """The lanes' numbers after one more tile of products. `LOOK` first whether a label lies in the tile at all."""
    CLASSES: tl.constexpr = product.shape[1]
    SLICES: tl.constexpr = CLASSES // LANES
    top, mass, own = state
    slices = slices_of(product)
    if BIAS:
        logits = ()
        for i in tl.static_range(SLICES):
            logits = logits + (with_bias(slices[i], bias, tile + i * LANES, lane, classes, BIAS),)
        slices = logits
    hit = (label >= tile) & (label < tile + CLASSES)
    if (not LOOK) or tl.max(hit.to(tl.int32), 0) > 0:
        slices, own = leave_out_label(slices, tile, lane, label, own, SLICES, float("-inf"))
    if tile + CLASSES > classes:
        slices = leave_out_beyond(slices, tile, lane, classes, SLICES, float("-inf"))
    higher = top
    for i in tl.static_range(SLICES):
        higher = tl.maximum(higher, slices[i])
    mass *= tl.exp2((top - higher) * LOG2_E)
    for i in tl.static_range(SLICES):
        mass += tl.exp2(slices[i] * LOG2_E - higher * LOG2_E)
    return higher, mass, own


@gluon.jit
@no_type_check
def _multiply_and_fold(tiles, labels, bias, partial, samples, work, LOOK: gl.constexpr, BIAS: gl.constexpr):
    """What the other warps do with the tiles."""
    dim, classes, classes_per_split, sample_blocks, items, group = work
    SAMPLES: gl.constexpr = tiles[0].shape[1]
    CLASSES: gl.constexpr = tiles[1].shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, CLASSES, 16])
    nothing = slices_of(gl.zeros((SAMPLES, CLASSES), gl.float32, layout))[0]
    lane = gl.arange(0, LANES, gl.SliceLayout(0, nothing.type.layout))[None, :]
    step = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        block, split = place_of(item, items // sample_blocks, sample_blocks, group)
        row = block * SAMPLES + gl.arange(0, SAMPLES, gl.SliceLayout(1, nothing.type.layout))
        inside = row < samples
        label = gl.load(labels + row, mask=inside, other=-1).to(gl.int32)
        state = (nothing + LOWEST, nothing, nothing)
        begin = split * classes_per_split
        for tile in range(begin, gl.minimum(begin + classes_per_split, classes), CLASSES):
            product, step = multiply_tile(tiles, step, dim, layout)
            state = _fold(product, tile, lane, label, bias, classes, state, LOOK, BIAS)
        top, mass, own = state
        highest = gl.max(top, 1)
        out = partial + split.to(gl.int64) * FIELDS * samples + row
        gl.store(out, highest, mask=inside)
        gl.store(out + samples, gl.sum(mass * gl.exp2((top - highest[:, None]) * LOG2_E), 1), mask=inside)
        gl.store(out + 2 * samples, gl.sum(own, 1), mask=inside)


@gluon.jit(do_not_specialize=["samples", "classes", "sample_blocks", "items", "group"])
@no_type_check
def scan_tiles(
    features,
    weight,
    labels,
    bias,
    partial,
    samples,
    classes,
    dim,
    classes_per_split,
    sample_blocks,
    items,
    group,
    STAGES: gl.constexpr,
    LOOK: gl.constexpr,
    BIAS: gl.constexpr,
):
    """The three numbers of every sample in every split of the classes."""
    tiles = stages_of(features, weight, STAGES, 1)
    fence_async_shared()
    work = (dim, classes, classes_per_split, sample_blocks, items, group)
    gl.warp_specialize(
        [
            (_multiply_and_fold, (tiles, labels, bias, partial, samples, work, LOOK, BIAS)),
            (load_ahead, (features, weight, tiles, work)),
        ],
        [1],
        [24],
    )


def scan(features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, tiling: Tiling) -> Tensor:
    """[splits, FIELDS, samples]: what each sample found in every split of the classes."""
    (samples, dim), classes = features.shape, len(weight)
    division = divide(tiling, features, classes)
    sample_blocks = blocks_of(samples, tiling.samples)
    items = sample_blocks * division.splits
    partial = torch.empty(division.splits, FIELDS.value, samples, dtype=torch.float32, device=features.device)
    with on_device_of(features):
        scan_tiles[(min(items, processors_of(features.device)),)](
            describe(features, tiling.samples, tiling.dim),
            describe(weight, tiling.classes, tiling.dim),
            labels,
            bias,
            partial,
            samples,
            classes,
            dim,
            division.tiles * tiling.classes,
            sample_blocks,
            items,
            division.group,
            STAGES=tiling.stages,
            LOOK=is_worth_a_look(tiling, classes),
            BIAS=bias is not None,
            num_warps=tiling.warps,
        )
    return partial
