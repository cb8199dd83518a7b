# ruff: noqa: N803
"""Triton: lengths of vectors, a safe size for slopes in half precision, and gradients made tangent to the sphere.

Also slopes by products turned into gradients by features and weight, on Hopper in one kernel.
"""

import math
from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, held_dtype, on_device_of, padded, power_of_two, product
from hardsight.kernels.fused.angles import label_and_weight, number_at
from hardsight.kernels.fused.angular_norms import can_be_described, processors_of, serves_hopper

# Two cosines one rounding step apart near 1 differ by an angle of sqrt(2 eps): no smaller sine can be told apart.
LEAST_SINE = tl.constexpr(4.8828125e-04)
# The longest part of a vector that a program holds; of short vectors it takes several.
_BLOCK = 4096
_TILE = 1024
# Of a tile: samples, classes that are summed at a time, dimensions; and stages of loading ahead.
_SAMPLES, _CLASSES, _DIM, _STAGES = 128, 64, 256, 3


# Sizes chosen between while the kernel runs must not be compiled in where they happen to be 1.
@triton.jit(do_not_specialize=["first_rows", "second_rows", "first_steps", "second_steps"])
@no_type_check
def _inverse_norms(
    first, second, out, first_rows, second_rows, dim_steps, first_steps, second_steps,
    STEP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """1 / |vector| of the rows of two matrices, one after the other; 0 where float32 cannot hold the length."""
    program = tl.program_id(0)
    rows = first_rows
    steps = first_steps
    vectors = first
    if second is not None:  # noqa: SIM102, known when compiling; the other when it runs
        if program >= tl.cdiv(first_rows, ROWS):
            program -= tl.cdiv(first_rows, ROWS)
            out += first_rows
            rows = second_rows
            steps = second_steps
            vectors = second
    row = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    vector = vectors + row * steps * STEP
    dim = dim_steps * STEP
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, dim, BLOCK):
        d = start + tl.arange(0, BLOCK)
        x = tl.load(vector[:, None] + d[None, :], mask=here[:, None] & (d < dim)[None, :], other=0.0).to(tl.float32)
        total += x * x
    length = tl.sqrt_rn(tl.sum(total, 1))
    measured = (length > 0.0) & (length < float("inf"))
    tl.store(out + row, tl.where(measured, tl.div_rn(1.0, tl.where(measured, length, 1.0)), 0.0), mask=here)


@triton.jit
@no_type_check
def _factor(
    inverses, labels, sample_weight, upstream, scale, scale_value, out, samples, classes, upstream_stride, ignore_index,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """1 / the largest product of two inverse lengths, weights and scale; without classes, of two samples."""
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, samples, BLOCK):
        sample = start + tl.arange(0, BLOCK)
        inside = sample < samples
        _, weight = label_and_weight(labels, sample_weight, sample, inside, ignore_index)
        if upstream is not None:
            weight *= tl.load(upstream + sample * upstream_stride, mask=inside, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(weight) * tl.load(inverses + sample, mask=inside, other=0.0))
    one = tl.max(largest, 0)
    other = one
    if classes is not None:
        largest = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, classes, BLOCK):
            column = start + tl.arange(0, BLOCK)
            largest = tl.maximum(largest, tl.load(inverses + samples + column, mask=column < classes, other=0.0))
        other = tl.max(largest, 0)
    product = one * other * tl.abs(number_at(scale, scale_value))
    tl.store(out, tl.where(product > 0.0, tl.minimum(1.0 / product, 1e30), 1.0))


@triton.jit
@no_type_check
def _tangent(g, x, radial, inverse, scale, LARGEST: tl.constexpr):
    """scale (g - (g . u) u); a gradient too large for half precision is cut off, not turned into infinity."""
    value = (g - (radial * inverse * inverse)[:, None] * x) * scale
    return tl.minimum(tl.maximum(value, -LARGEST), LARGEST)


@triton.jit
@no_type_check
def _project_rows(
    matrices, inverses, program, sizes, scale,
    LARGEST: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some rows of one matrix of gradients; `matrices`: these, the vectors, the result; `sizes`: rows, dim, stride."""
    gradients, vectors, out = matrices
    rows, dim, stride = sizes
    row = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    gradient = gradients + row * dim
    vector = vectors + row * stride
    place = out + row * dim
    inverse = tl.load(inverses + row, mask=here, other=0.0)
    if WHOLE:
        d = tl.arange(0, BLOCK)[None, :]
        inside = here[:, None] & (d < dim)
        g = tl.load(gradient[:, None] + d, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(vector[:, None] + d, mask=inside, other=0.0).to(tl.float32)
        value = _tangent(g, x, tl.sum(g * x, 1), inverse, scale, LARGEST)
        tl.store(place[:, None] + d, value.to(out.dtype.element_ty), mask=inside)
    else:
        radial = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, dim, BLOCK):
            d = start + tl.arange(0, BLOCK)[None, :]
            inside = here[:, None] & (d < dim)
            g = tl.load(gradient[:, None] + d, mask=inside, other=0.0).to(tl.float32)
            radial += g * tl.load(vector[:, None] + d, mask=inside, other=0.0).to(tl.float32)
        along = tl.sum(radial, 1)
        for start in range(0, dim, BLOCK):
            d = start + tl.arange(0, BLOCK)[None, :]
            inside = here[:, None] & (d < dim)
            g = tl.load(gradient[:, None] + d, mask=inside, other=0.0).to(tl.float32)
            x = tl.load(vector[:, None] + d, mask=inside, other=0.0).to(tl.float32)
            value = _tangent(g, x, along, inverse, scale, LARGEST)
            tl.store(place[:, None] + d, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["first_rows", "second_rows", "first_steps", "second_steps"])
@no_type_check
def _project(
    first, first_vectors, first_out, second, second_vectors, second_out, inverses, factor, upstream, first_rows,
    second_rows, dim_steps, first_steps, second_steps, offset,
    LARGEST: tl.constexpr, STEP: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The part of each gradient along the sphere: the radial part of a gradient by a direction does nothing."""
    program = tl.program_id(0)
    firsts = tl.cdiv(first_rows, ROWS)
    inverses += offset
    dim = dim_steps * STEP
    scale = tl.load(factor) * number_at(upstream, 1.0)
    # Two calls: the two gradients may wait in different precisions.
    if program < firsts:
        matrices, sizes = (first, first_vectors, first_out), (first_rows, dim, first_steps * STEP)
        _project_rows(matrices, inverses, program, sizes, scale, LARGEST, WHOLE, ROWS, BLOCK)
    elif second is not None:
        others, their_sizes = (second, second_vectors, second_out), (second_rows, dim, second_steps * STEP)
        inverses += first_rows
        _project_rows(others, inverses, program - firsts, their_sizes, scale, LARGEST, WHOLE, ROWS, BLOCK)


def inverse_norms(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """1 / |vector| in float32, then those of the others; 0 where the length is 0 or float32 cannot hold it."""
    rows = len(vectors) + (0 if others is None else len(others))
    out = torch.empty(rows, dtype=torch.float32, device=vectors.device)
    strides = [vectors.stride(0), 0 if others is None else others.stride(0)]
    step = math.gcd(vectors.shape[1], *strides, 16)
    tile, programs = _tile(vectors.shape[1], [vectors] if others is None else [vectors, others])
    with on_device_of(vectors):
        _inverse_norms[(programs,)](
            vectors, others, out, len(vectors), rows - len(vectors), vectors.shape[1] // step, strides[0] // step,
            strides[1] // step,
            STEP=step, **tile,
        )  # fmt: skip
    return out


def write_factor(
    inverses: Tensor, samples: int, classes: int | None, labels: Tensor, sample_weight: Tensor | None,
    upstream: Tensor | None, ignore_index: int, scale: Tensor | None = None, scale_value: float = 1.0,
) -> Tensor:  # fmt: skip
    """What slopes are multiplied by to be about 1 or less: float16 would lose the small ones of a mean over many."""
    out = torch.empty((), dtype=torch.float32, device=inverses.device)
    block = min(2048, max(16, power_of_two(max(samples, classes or 0))))
    with on_device_of(inverses):
        _factor[(1,)](
            inverses, labels, sample_weight, upstream, scale, scale_value, out, samples, classes,
            0 if upstream is None else upstream.stride(0), ignore_index,
            BLOCK=block, num_warps=max(1, block // 128),
        )  # fmt: skip
    return out


def project(
    gradients: Sequence[Tensor], vectors: Sequence[Tensor], inverses: Tensor, offset: int, factor: Tensor,
    upstream: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """factor times what comes from above times the gradients' part along the sphere, in the vectors' dtype.

    One or two matrices in one kernel; `inverses` holds their 1 / length one after the other, from `offset` on.
    """
    if not vectors:
        return []
    vectors = [one.contiguous() for one in vectors]
    out = [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in vectors]
    both = len(vectors) == 2
    dim = vectors[0].shape[1]
    strides = [one.stride(0) for one in vectors]
    step = math.gcd(dim, *strides, 16)
    tile, programs = _tile(dim, vectors)
    with on_device_of(inverses):
        _project[(programs,)](
            gradients[0], vectors[0], out[0], gradients[1] if both else None, vectors[1] if both else None,
            out[1] if both else None, inverses, factor, upstream, len(vectors[0]), len(vectors[1]) if both else 0,
            dim // step, strides[0] // step, strides[-1] // step, offset,
            LARGEST=torch.finfo(vectors[0].dtype).max, STEP=step, WHOLE=dim <= tile["BLOCK"], **tile,
        )  # fmt: skip
    return out


def _tile(dim: int, matrices: Sequence[Tensor]) -> tuple[dict[str, int], int]:
    """How many rows and columns a program takes, and how many programs that makes."""
    block = min(_BLOCK, max(16, power_of_two(dim)))
    rows = max(1, _TILE // block)
    tile = {"ROWS": rows, "BLOCK": block, "num_warps": max(1, rows * block // 512)}
    return tile, sum(blocks_of(len(one), rows) for one in matrices)


def gradients_from_slopes(
    slopes: Tensor, along: Tensor, by_weight: Tensor | None, features: Tensor, weight: Tensor, inverses: Tensor,
    factor: Tensor, upstream: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """factor times upstream times the tangent parts of slopes @ weight and, where it is given, of `by_weight`.

    `along` says how many times the features lie in slopes @ weight. The slopes may be wider than there are classes.
    """
    features, weight = features.contiguous(), weight.contiguous()
    if _fits_hopper(slopes, features, weight):
        found = [tangent_product(slopes[:, : len(weight)], weight, features, along, factor, upstream)]
        if by_weight is not None:
            found += project([by_weight], [weight], inverses, len(features), factor, upstream)
        return found
    wide = padded(weight)
    made = torch.empty(features.shape, dtype=held_dtype(features.dtype), device=features.device)
    gradients, vectors = [product(slopes[:, : len(wide)], wide, made)], [features]
    if by_weight is not None:
        gradients, vectors = [*gradients, by_weight], [*vectors, weight]
    return project(gradients, vectors, inverses, 0, factor, upstream)


def tangent_product(
    slopes: Tensor, weight: Tensor, features: Tensor, along: Tensor, factor: Tensor, upstream: Tensor | None
) -> Tensor:
    """factor upstream (slopes @ weight - along features) in one kernel, on Hopper."""
    from hardsight.kernels.fused import tangent_product_hopper as hopper
    from hardsight.kernels.fused.angular_scan_hopper import describe

    samples, dim = features.shape
    out = torch.empty_like(features)
    # By torch, also because a thread of autograd's that has not yet used the device cannot describe tensors to it.
    scale = factor[0] if upstream is None else factor[0] * upstream
    across = blocks_of(dim, _DIM)
    items = blocks_of(samples, _SAMPLES) * across
    with on_device_of(features):
        hopper.tangent_tiles[(min(items, processors_of(features.device)),)](
            describe(slopes, _SAMPLES, _CLASSES), describe(weight, _CLASSES, _DIM), describe(features, _SAMPLES, _DIM),
            describe(out, _SAMPLES, _DIM), along, scale, samples, len(weight), across, items,
            STAGES=_STAGES, LARGEST=torch.finfo(features.dtype).max, num_warps=8,
        )  # fmt: skip
    return out


def _fits_hopper(slopes: Tensor, features: Tensor, weight: Tensor) -> bool:
    """Whether the kernel for Hopper serves: half precision that the copy engine can address, and enough of it."""
    half = features.dtype in (torch.bfloat16, torch.float16)
    enough = len(features) >= 1024 and features.shape[1] >= _DIM and len(weight) >= _CLASSES
    described = all(can_be_described(one) for one in (slopes, features, weight))
    return half and enough and described and serves_hopper(features.device)
