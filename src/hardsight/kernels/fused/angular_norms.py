# ruff: noqa: N803
"""Triton: the norms that the scan of `angular_scores` needs, taken beforehand: of the classes, and of the samples too
where the scan does not take theirs itself.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, on_device_of
from hardsight.kernels.fused.angular_tiling import Tiling, choose_tiling

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
    features,
    weight,
    norms,
    weight_inverse,
    samples,
    sample_blocks,
    classes,
    padded,
    dim,
    feature_stride,
    weight_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
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
            features,
            weight,
            norms,
            weight_inverse,
            samples,
            sample_blocks,
            len(weight),
            padded,
            dim,
            features.stride(0),
            weight.stride(0),
            ROWS=rows,
            BLOCK=block,
        )
    return Measured(norms, weight_inverse, tiling)
