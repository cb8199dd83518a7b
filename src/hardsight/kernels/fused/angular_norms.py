"""Triton: the norms that the scan of `angular_scores` needs, taken beforehand: of the classes, and of the samples too
where the scan does not take theirs itself.

And how the scan of `angular_scores` is cut: the tiles, who works on which, and which kernel runs.
"""

import functools
import math
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, on_device_of, power_of_two

# ruff: noqa: N803


# Gluon is young and changes: its kernel runs with the versions of Triton that it was tried with.
_GLUON_TRIED_WITH = ("3.6.", "3.7.")
# Of this many tiles of classes a block of samples has labels in six of ten.
_MANY_TILES = 128


class Tiling(NamedTuple):
    """How the scan is cut."""

    samples: int  # of a tile
    classes: int  # of a tile
    dim: int  # features multiplied at a time
    warps: int
    stages: int  # of loading ahead
    hopper: bool = False  # the kernel that loads in a warp of its own


class Division(NamedTuple):
    """Who works on what."""

    group: int  # sample blocks that work side by side on the same classes
    splits: int  # of the classes
    tiles: int  # of a split


def choose_tiling(features: Tensor, weight: Tensor) -> Tiling:
    """The cut that was fastest on an H200; a small one for few samples or classes, and for float32."""
    samples, classes = len(features), len(weight)
    # No wider than the classes: every column beyond them is counted and taken back again.
    width = max(16, power_of_two(classes))
    if features.dtype == torch.float32:
        return Tiling(64, min(64, width), 32, 4, 3)
    if samples < 1024 or classes < 256:
        return Tiling(64, min(64, width), 64, 4, 3)
    described = can_be_described(features) and can_be_described(weight)
    return Tiling(128, 256, 64, 8, 4, hopper=described and serves_hopper(features.device))


def divide(tiling: Tiling, features: Tensor, classes: int) -> Division:
    """Enough items for the device, and the last round of them full."""
    samples, dim = features.shape
    return _divide(tiling, samples, classes, dim * features.element_size(), features.device)


# Asked for at every call with the same few shapes, and a search.
@functools.lru_cache(maxsize=256)
def _divide(tiling: Tiling, samples: int, classes: int, row_bytes: int, device: torch.device) -> Division:
    blocks, tiles, processors = -(-samples // tiling.samples), -(-classes // tiling.classes), processors_of(device)
    if not tiling.hopper:
        return Division(16, *_split(blocks, tiles, processors, range(1, min(tiles, 64) + 1)))
    # The blocks at work are read once for every tile: together they fill at most a third of the L2 cache, and the
    # processors that are left take other splits of the same blocks.
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    least = -(-processors // max(1, cache // 3 // (tiling.samples * row_bytes)))
    # Norms are taken from an item's first tile, which delays it: two tiles an item, though the blocks fill more of it.
    least = min(least, -(-tiles // 2))
    group = min(blocks, max(1, processors // least))
    least = min(tiles, max(least, processors // group))
    return Division(group, *_split(blocks, tiles, processors, range(least, min(tiles, 16 * least) + 1)))


def _split(blocks: int, tiles: int, processors: int, wanted: range) -> tuple[int, int]:
    """How many splits of the classes, and tiles in each, of the wanted numbers: the least work of the fullest."""
    best, least = (1, tiles), math.inf
    for splits in wanted:
        each = -(-tiles // splits)
        splits = -(-tiles // each)
        rounds = -(-blocks * splits // processors)
        # A split costs some of a tile itself.
        cost = rounds * (each + 0.15)
        if cost < least * 0.99:
            best, least = (splits, each), cost
    return best


def is_worth_a_look(tiling: Tiling, classes: int) -> bool:
    """Whether to look first if a label lies in a tile: where there are few tiles, nearly every one holds some."""
    return -(-classes // tiling.classes) > _MANY_TILES


@functools.cache
def processors_of(device: torch.device) -> int:
    """How many items run at the same time: one fills a processor."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def can_be_described(tensor: Tensor) -> bool:
    """Whether the copy engine can address it: aligned to 16 bytes, rows too."""
    size = tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and tensor.stride(1) == 1 and tensor.stride(0) * size % 16 == 0


@functools.cache
def serves_hopper(device: torch.device) -> bool:
    """Whether the kernel for Hopper can run there."""
    tried = triton.__version__.startswith(_GLUON_TRIED_WITH)
    return tried and device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9


_LEAST_NORM = tl.constexpr(1e-12)
_LARGEST_NORM = tl.constexpr(1e12)


@triton.jit
@no_type_check
def inverse_of(norm):
    """1 / norm; 0 for that of a zero vector, which has no direction."""
    return tl.where(norm == 0.0, 0.0, 1.0 / tl.where(norm == 0.0, 1.0, norm))


@triton.jit
@no_type_check
def is_out_of_range(norm):
    """Whether squares that were summed to this norm may have left float32's range; true for a norm of 0 too."""
    return (norm < _LEAST_NORM) | (norm > _LARGEST_NORM) | (norm != norm)


@triton.jit
@no_type_check
def _norms_of(vectors, row, count, dim, stride, BLOCK: tl.constexpr):
    """Norms of some rows, 0 beyond the last, and the largest magnitude of a component."""
    ROWS: tl.constexpr = row.shape[0]  # noqa: N806
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    sizes = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, dim, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row < count)[:, None] & (column < dim)[None, :]
        x = tl.load(vectors + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)
        x = x.to(tl.float32)
        squares += x * x
        sizes = tl.maximum(sizes, tl.abs(x))
    return tl.sqrt(tl.sum(squares, 1)), tl.max(sizes, 1)


@triton.jit
@no_type_check
def _measure(
    features, weight, norms, weight_inverse, samples, sample_blocks, classes, padded, dim, feature_stride,
    weight_stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The samples' norms, then the classes' inverse ones; infinity stands for that of a norm out of range."""
    block = tl.program_id(0)
    if block < sample_blocks:
        row = block * ROWS + tl.arange(0, ROWS)
        norm, _ = _norms_of(features, row, samples, dim, feature_stride, BLOCK)
        tl.store(norms + row, norm, mask=row < samples)
    else:
        row = (block - sample_blocks) * ROWS + tl.arange(0, ROWS)
        norm, largest = _norms_of(weight, row, classes, dim, weight_stride, BLOCK)
        outside = (largest > 0.0) & is_out_of_range(norm)
        tl.store(weight_inverse + row, tl.where(outside, float("inf"), inverse_of(norm)), mask=row < padded)


class Measured(NamedTuple):
    """Norms of the samples, to be filled by the scan for Hopper; inverses of the classes', padded to whole tiles.

    An inverse is infinite where a class's squares left float32's range: then no product with it is a measurement.
    """

    norms: Tensor
    weight_inverse: Tensor
    tiling: Tiling


def measure(features: Tensor, weight: Tensor, tiling: Tiling | None = None) -> Measured:
    """What `scan` needs of each vector by itself, and the cut it is for."""
    samples, dim = features.shape
    tiling = tiling or choose_tiling(features, weight)
    padded = blocks_of(len(weight), tiling.classes) * tiling.classes
    norms = torch.empty(samples, dtype=torch.float32, device=features.device)
    weight_inverse = torch.empty(padded, dtype=torch.float32, device=features.device)
    # Of classes alone there are few: more programs with fewer turns each.
    rows, block = (2, 1024) if tiling.hopper else (8, 256)
    sample_blocks = 0 if tiling.hopper else blocks_of(samples, rows)
    with on_device_of(features):
        _measure[(sample_blocks + blocks_of(padded, rows),)](
            features, weight, norms, weight_inverse, samples, sample_blocks, len(weight), padded, dim,
            features.stride(0), weight.stride(0),
            ROWS=rows, BLOCK=block,
        )  # fmt: skip
    return Measured(norms, weight_inverse, tiling)
