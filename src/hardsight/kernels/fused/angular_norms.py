# ruff: noqa: N803
"""Triton: the norms that the scan of `angular_scores` needs of both sides, taken beforehand."""

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
def _measure_rows(
    vectors,
    norms,
    inverse,
    unsafe,
    first,
    count,
    padded,
    dim,
    stride,
    NORMS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Norms and their inverses, 0 for zero and beyond the last; raises the flag where squares left float32's range."""
    row = first + tl.arange(0, ROWS)
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    sizes = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, dim, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row < count)[:, None] & (column < dim)[None, :]
        x = tl.load(vectors + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)
        x = x.to(tl.float32)
        squares += x * x
        sizes = tl.maximum(sizes, tl.abs(x))
    norm = tl.sqrt(tl.sum(squares, 1))
    largest = tl.max(sizes, 1)
    tl.store(inverse + row, tl.where(norm == 0.0, 0.0, 1.0 / tl.where(norm == 0.0, 1.0, norm)), mask=row < padded)
    if NORMS:
        tl.store(norms + row, norm, mask=row < count)
    outside = (largest > 0.0) & ((norm < _LEAST_NORM) | (norm > _LARGEST_NORM) | (norm != norm))
    if tl.max(outside.to(tl.int32), 0) > 0:
        tl.store(unsafe, 1)


@triton.jit
@no_type_check
def _measure(
    features,
    weight,
    norms,
    feature_inverse,
    weight_inverse,
    unsafe,
    samples,
    classes,
    padded,
    dim,
    feature_stride,
    weight_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The features' rows first, then the classes'."""
    first = tl.program_id(0) * ROWS
    behind = tl.cdiv(samples, ROWS) * ROWS
    if first < behind:
        _measure_rows(
            features, norms, feature_inverse, unsafe, first, samples, samples, dim, feature_stride, True, ROWS, BLOCK
        )
    else:
        _measure_rows(
            weight,
            norms,
            weight_inverse,
            unsafe,
            first - behind,
            classes,
            padded,
            dim,
            weight_stride,
            False,
            ROWS,
            BLOCK,
        )


class Measured(NamedTuple):
    """Norms of the features, inverses of both sides' (the classes' padded to whole tiles), and the cut they are for.

    `unsafe` is not 0 where squares left float32's range: then the products are no measurement either.
    """

    norms: Tensor
    feature_inverse: Tensor
    weight_inverse: Tensor
    unsafe: Tensor
    tiling: Tiling


def measure(features: Tensor, weight: Tensor, tiling: Tiling | None = None) -> Measured:
    """What `scan` needs of each vector by itself."""
    samples, dim = features.shape
    tiling = tiling or choose_tiling(features, weight)
    padded = blocks_of(len(weight), tiling.classes) * tiling.classes
    norms, feature_inverse = torch.empty(2, samples, dtype=torch.float32, device=features.device)
    weight_inverse = torch.empty(padded, dtype=torch.float32, device=features.device)
    unsafe = torch.zeros((), dtype=torch.int32, device=features.device)
    rows = 8
    with on_device_of(features):
        _measure[(blocks_of(samples, rows) + blocks_of(padded, rows),)](
            features,
            weight,
            norms,
            feature_inverse,
            weight_inverse,
            unsafe,
            samples,
            len(weight),
            padded,
            dim,
            features.stride(0),
            weight.stride(0),
            ROWS=rows,
            BLOCK=256,
        )
    return Measured(norms, feature_inverse, weight_inverse, unsafe, tiling)
