# ruff: noqa: N803, N806
"""Gluon: slopes times weight, made tangent to the sphere before it is written, for Hopper.

One warp loads tiles ahead, eight multiply them. The tile of vectors that the radial part is taken along arrives while
its products are summed, and the result leaves through the same memory.
"""

from typing import no_type_check

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from hardsight.kernels.fused.angular_scan_hopper import stages_of


@gluon.jit
@no_type_check
def _load_ahead(slopes, weight, vectors, tiles, handed, work):
    """What the loading warp does: every tile of every item, as soon as a stage is free; last the item's vectors."""
    s_tiles, w_tiles, ready, free = tiles
    x_tile, arrived, left = handed
    classes, across, items = work
    STAGES: gl.constexpr = s_tiles.shape[0]
    SAMPLES: gl.constexpr = s_tiles.shape[1]
    CLASSES: gl.constexpr = s_tiles.shape[2]
    DIM: gl.constexpr = w_tiles.shape[2]
    step, turn = 0, 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        row, column = item // across * SAMPLES, item % across * DIM
        for start in range(0, classes, CLASSES):
            stage = step % STAGES
            mbarrier.wait(free.index(stage), step // STAGES & 1 ^ 1)
            mbarrier.expect(ready.index(stage), (SAMPLES + DIM) * CLASSES * 2)
            tma.async_copy_global_to_shared(slopes, [row, start], ready.index(stage), s_tiles.index(stage))
            tma.async_copy_global_to_shared(weight, [start, column], ready.index(stage), w_tiles.index(stage))
            step += 1
        mbarrier.wait(left, turn & 1 ^ 1)
        mbarrier.expect(arrived, SAMPLES * DIM * 2)
        tma.async_copy_global_to_shared(vectors, [row, column], arrived, x_tile)
        turn += 1  # noqa: SIM113, Triton has no enumerate


@gluon.jit
@no_type_check
def _multiply(tiles, handed, out, along, scale, samples, work, LARGEST: gl.constexpr):
    """What the other warps do: an item's product, less its part along the vectors."""
    s_tiles, w_tiles, ready, free = tiles
    x_tile, arrived, left = handed
    classes, across, items = work
    STAGES: gl.constexpr = s_tiles.shape[0]
    SAMPLES: gl.constexpr = s_tiles.shape[1]
    CLASSES: gl.constexpr = s_tiles.shape[2]
    DIM: gl.constexpr = w_tiles.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, DIM, 16])
    step, turn = 0, 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        product = gl.zeros((SAMPLES, DIM), gl.float32, layout)
        for start in range(0, classes, CLASSES):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            product = warpgroup_mma(s_tiles.index(stage), w_tiles.index(stage), product, is_async=True)
            # The result of the item before has left: its memory may be loaded over.
            tma.store_wait(0)
            mbarrier.arrive(left, pred=(start == 0) & (turn > 0))
            # The step before is done; its tiles may be loaded over.
            product = warpgroup_mma_wait(1, deps=(product,))
            mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=start > 0)
            step += 1
        product = warpgroup_mma_wait(0, deps=(product,))
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))
        row = item // across * SAMPLES
        mine = row + gl.arange(0, SAMPLES, gl.SliceLayout(1, layout))
        part = gl.load(along + mine, mask=mine < samples, other=0.0)
        mbarrier.wait(arrived, turn & 1)
        value = (product - part[:, None] * x_tile.load(layout).to(gl.float32)) * scale
        # Too large for half precision: cut off, not turned into infinity.
        value = gl.minimum(gl.maximum(value, -LARGEST), LARGEST)
        x_tile.store(value.to(x_tile.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [row, item % across * DIM], x_tile)
        turn += 1  # noqa: SIM113, Triton has no enumerate
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["samples", "classes", "across", "items"])
@no_type_check
def tangent_tiles(
    slopes, weight, vectors, out, along, scale, samples, classes, across, items,
    STAGES: gl.constexpr, LARGEST: gl.constexpr,
):  # fmt: skip
    """scale (slopes weight - along vectors); items: tiles of samples and `across` of dimensions."""
    tiles = stages_of(slopes, weight, STAGES, 1)
    x_tile = gl.allocate_shared_memory(vectors.dtype, vectors.block_shape, vectors.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    left = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.init(left, count=1)
    fence_async_shared()
    handed = (x_tile, arrived, left)
    work = (classes, across, items)
    gl.warp_specialize(
        [
            (_multiply, (tiles, handed, out, along, gl.load(scale), samples, work, LARGEST)),
            (_load_ahead, (slopes, weight, vectors, tiles, handed, work)),
        ],
        [1],
        [24],
    )
