# ruff: noqa: N803, N806, RUF005 (Triton has no *)
"""Gluon: the scan of `angular_scores` for Hopper: a warp loads tiles ahead, eight multiply and fold, two take norms.

The programs stay: each takes one item after another, and the loading warp runs on into the next tile and the next item
while the others fold. The norms of the samples come from the tiles that are multiplied, which saves a pass over them.
"""

import functools
from typing import no_type_check

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from hardsight.kernels.fused.angular_fold import LANES, LOWEST, fold, leave, place_of, slices_of
from hardsight.kernels.fused.angular_norms import inverse_of

# Items whose norms may be there before they are needed.
SLOTS = gl.constexpr(2)


def measuring_registers(dim: int) -> int:
    """Of each thread that takes norms. Those that fold get what it does not, and fold often where vectors are short."""
    return 56 if dim >= 1024 else 24


def describe(tensor: Tensor, rows: int, dim: int) -> TensorDescriptor:
    """What the copy engine needs to load tiles of so many rows and features."""
    return TensorDescriptor.from_tensor(tensor, [rows, dim], _layout(rows, dim, tensor.dtype))


@functools.cache
def _layout(rows: int, dim: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([rows, dim], getattr(gl, str(dtype).removeprefix("torch.")))


@gluon.jit
@no_type_check
def stages_of(left, right, STAGES: gl.constexpr, READERS: gl.constexpr):
    """Memory for tiles of two matrices, so many stages of it; what says that one is loaded, and read by all readers."""
    x_tiles = gl.allocate_shared_memory(left.dtype, [STAGES] + left.block_shape, left.layout)
    w_tiles = gl.allocate_shared_memory(right.dtype, [STAGES] + right.block_shape, right.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=READERS)
    return x_tiles, w_tiles, ready, free


@gluon.jit
@no_type_check
def _load_ahead(features, weight, tiles, work):
    """What the loading warp does: every tile of every item, as soon as a stage is free."""
    x_tiles, w_tiles, ready, free = tiles
    dim, classes, classes_per_split, sample_blocks, items, group = work
    STAGES: gl.constexpr = x_tiles.shape[0]
    SAMPLES: gl.constexpr = x_tiles.shape[1]
    CLASSES: gl.constexpr = w_tiles.shape[1]
    DIM: gl.constexpr = x_tiles.shape[2]
    step = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        block, split = place_of(item, items // sample_blocks, sample_blocks, group)
        begin = split * classes_per_split
        for tile in range(begin, gl.minimum(begin + classes_per_split, classes), CLASSES):
            for start in range(0, dim, DIM):
                stage = step % STAGES
                mbarrier.wait(free.index(stage), step // STAGES & 1 ^ 1)
                mbarrier.expect(ready.index(stage), (SAMPLES + CLASSES) * DIM * 2)
                tma.async_copy_global_to_shared(
                    features, [block * SAMPLES, start], ready.index(stage), x_tiles.index(stage)
                )
                tma.async_copy_global_to_shared(weight, [tile, start], ready.index(stage), w_tiles.index(stage))
                step += 1


@gluon.jit
@no_type_check
def _measure(tiles, handed, norms, samples, work):
    """What two more warps do: the norms of each item's samples, while its first classes are multiplied with them."""
    x_tiles, w_tiles, ready, free = tiles
    inverses, measured, taken = handed
    dim, classes, classes_per_split, sample_blocks, items, group = work
    STAGES: gl.constexpr = x_tiles.shape[0]
    SAMPLES: gl.constexpr = x_tiles.shape[1]
    CLASSES: gl.constexpr = w_tiles.shape[1]
    DIM: gl.constexpr = x_tiles.shape[2]
    # A thread reads whole rows: it sums them by itself, and the tiles' swizzle keeps the threads apart.
    layout: gl.constexpr = gl.BlockedLayout([1, DIM], [32, 1], [gl.num_warps(), 1], [1, 0])
    within = gl.arange(0, SAMPLES, gl.SliceLayout(1, layout))
    tile_steps = gl.cdiv(dim, DIM)
    step, turn = 0, 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        block, split = place_of(item, items // sample_blocks, sample_blocks, group)
        squares = gl.zeros((SAMPLES,), gl.float32, gl.SliceLayout(1, layout))
        for _ in range(0, tile_steps):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            x = x_tiles.index(stage).load(layout).to(gl.float32)
            squares += gl.sum(x * x, 1)
            mbarrier.arrive(free.index(stage))
            step += 1
        norm = gl.sqrt(squares)
        slot = turn % SLOTS
        mbarrier.wait(taken.index(slot), turn // SLOTS & 1 ^ 1)
        inverses.index(slot).store(inverse_of(norm))
        mbarrier.arrive(measured.index(slot))
        turn += 1  # noqa: SIM113, Triton has no enumerate
        row = block * SAMPLES + within
        gl.store(norms + row, norm, mask=row < samples)
        # The tiles of the other classes it lets pass.
        begin = split * classes_per_split
        others = gl.cdiv(gl.minimum(classes_per_split, classes - begin), CLASSES) - 1
        for _ in range(0, others * tile_steps):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            mbarrier.arrive(free.index(stage))
            step += 1


@gluon.jit
@no_type_check
def _multiply_tile(tiles, step, dim, layout: gl.constexpr):
    """The product of one tile of samples and one of classes, and the number of the step after it."""
    x_tiles, w_tiles, ready, free = tiles
    STAGES: gl.constexpr = x_tiles.shape[0]
    SAMPLES: gl.constexpr = x_tiles.shape[1]
    CLASSES: gl.constexpr = w_tiles.shape[1]
    DIM: gl.constexpr = x_tiles.shape[2]
    product = gl.zeros((SAMPLES, CLASSES), gl.float32, layout)
    for start in range(0, dim, DIM):
        stage = step % STAGES
        mbarrier.wait(ready.index(stage), step // STAGES & 1)
        w = w_tiles.index(stage).permute((1, 0))
        product = warpgroup_mma(x_tiles.index(stage), w, product, is_async=True)
        # The step before is done; its tiles may be loaded over.
        product = warpgroup_mma_wait(1, deps=(product,))
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=start > 0)
        step += 1
    product = warpgroup_mma_wait(0, deps=(product,))
    mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))
    return product, step


@gluon.jit
@no_type_check
def _multiply_and_fold(
    tiles, handed, vectors, samples, work,
    LOOK: gl.constexpr, LOGITS: gl.constexpr, BIAS: gl.constexpr, SPREAD: gl.constexpr,
):  # fmt: skip
    """What the other warps do with them."""
    labels, weight_inverse, bias, partial = vectors
    inverses, measured, taken = handed
    dim, classes, classes_per_split, sample_blocks, items, group = work
    SAMPLES: gl.constexpr = tiles[0].shape[1]
    CLASSES: gl.constexpr = tiles[1].shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, CLASSES, 16])
    nothing = slices_of(gl.zeros((SAMPLES, CLASSES), gl.float32, layout))[0]
    lane = gl.arange(0, LANES, gl.SliceLayout(0, nothing.type.layout))[None, :]
    # Every warp holds all columns, a thread few: what they have in common is found without other warps.
    across: gl.constexpr = gl.BlockedLayout([1, max(1, CLASSES // 32)], [1, 32], [gl.num_warps(), 1], [1, 0])
    column = gl.arange(0, CLASSES, gl.SliceLayout(0, across))
    top = nothing + LOWEST
    step, turn = 0, 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        block, split = place_of(item, items // sample_blocks, sample_blocks, group)
        row = block * SAMPLES + gl.arange(0, SAMPLES, gl.SliceLayout(1, nothing.type.layout))
        label = gl.load(labels + row, mask=row < samples, other=-1).to(gl.int32)
        head = (weight_inverse, bias, classes)
        slot = turn % SLOTS
        state = (top, nothing.to(gl.int32), (nothing, nothing, nothing), (top, nothing, nothing), nothing)
        begin = split * classes_per_split
        for tile in range(begin, gl.minimum(begin + classes_per_split, classes), CLASSES):
            product, step = _multiply_tile(tiles, step, dim, layout)
            mbarrier.wait(measured.index(slot), turn // SLOTS & 1)
            inverse = inverses.index(slot).load(gl.SliceLayout(1, nothing.type.layout))
            state = fold(product, tile, lane, column, (label, inverse), head, state, LOOK, LOGITS, BIAS, SPREAD)
        inverse = inverses.index(slot).load(gl.SliceLayout(1, nothing.type.layout))
        mbarrier.arrive(taken.index(slot))
        turn += 1  # noqa: SIM113, Triton has no enumerate
        leave(partial, state, lane, row, inverse, split, samples, LOGITS)


@gluon.jit(do_not_specialize=["samples", "classes", "sample_blocks", "items", "group"])
@no_type_check
def scan_tiles(
    features, weight, labels, norms, weight_inverse, bias, partial, samples, classes, dim, classes_per_split,
    sample_blocks, items, group,
    STAGES: gl.constexpr, MEASURING_REGISTERS: gl.constexpr, LOOK: gl.constexpr, LOGITS: gl.constexpr,
    BIAS: gl.constexpr, SPREAD: gl.constexpr,
):  # fmt: skip
    """What `angular_scores.scan_tiles` writes, for items of a block of samples and a split of the classes each."""
    tiles = stages_of(features, weight, STAGES, 2)
    inverses = gl.allocate_shared_memory(
        gl.float32, [SLOTS, features.block_shape[0]], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    measured = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(measured.index(slot), count=1)
        mbarrier.init(taken.index(slot), count=1)
    fence_async_shared()
    handed = (inverses, measured, taken)
    vectors = (labels, weight_inverse, bias, partial)
    work = (dim, classes, classes_per_split, sample_blocks, items, group)
    gl.warp_specialize(
        [
            (_multiply_and_fold, (tiles, handed, vectors, samples, work, LOOK, LOGITS, BIAS, SPREAD)),
            (_load_ahead, (features, weight, tiles, work)),
            (_measure, (tiles, handed, norms, samples, work)),
        ],
        [1, 2],
        [24, MEASURING_REGISTERS],
    )
