# ruff: noqa: N803
"""Triton: gradients that were made in the forward pass, multiplied by what comes from above."""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import on_device_of
from hardsight.kernels.fused.samples import number_at

# Elements that a program scales at a time, and the most programs: more would take turns at finding nothing to do.
_BLOCK = 8192
_PROGRAMS = 2048


@triton.jit
@no_type_check
def _scale_one(gradient, out, size, scale, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in range(first, size, tl.num_programs(0) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(gradient + place, mask=place < size, other=0.0).to(tl.float32) * scale
        # A gradient too large for half precision is cut off, not turned into infinity.
        value = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
        tl.store(out + place, value.to(out.dtype.element_ty), mask=place < size)


@triton.jit(do_not_specialize=["first_size", "second_size", "third_size"])
@no_type_check
def _scale(
    first,
    first_out,
    second,
    second_out,
    third,
    third_out,
    upstream,
    log_divisor,
    shift,
    first_size,
    second_size,
    third_size,
    FIRST_LARGEST: tl.constexpr,
    SECOND_LARGEST: tl.constexpr,
    THIRD_LARGEST: tl.constexpr,
    IN_PLACE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Up to three gradients times what comes from above and exp(shift) / divisor, in the types of their inputs."""
    scale = number_at(upstream, 1.0)
    if log_divisor is not None:
        divisor = tl.load(log_divisor)
        scale = tl.where(divisor == float("-inf"), 0.0, tl.exp(shift - divisor) * scale)
    if IN_PLACE:
        # Mostly 1, which only the device knows: then there is nothing to do, and the host has not waited to learn it.
        first_size = tl.where(scale == 1.0, 0, first_size)
        second_size = tl.where(scale == 1.0, 0, second_size)
        third_size = tl.where(scale == 1.0, 0, third_size)
    _scale_one(first, first_out, first_size, scale, FIRST_LARGEST, BLOCK)
    if second is not None:
        _scale_one(second, second_out, second_size, scale, SECOND_LARGEST, BLOCK)
    if third is not None:
        _scale_one(third, third_out, third_size, scale, THIRD_LARGEST, BLOCK)


def scale(
    gradients: Sequence[Tensor],
    out: Sequence[Tensor],
    upstream: Tensor | None,
    log_divisor: Tensor | None,
    shift: float,
) -> None:
    """Writes each gradient times upstream and exp(shift) / divisor, where these are given; in one kernel."""
    none = [None] * (3 - len(gradients))
    sizes = [one.numel() for one in gradients]
    pairs = [one for pair in zip([*gradients, *none], [*out, *none], strict=True) for one in pair]
    with on_device_of(gradients[0]):
        _scale[(min(_PROGRAMS, triton.cdiv(max(sizes), _BLOCK)),)](
            *pairs,
            upstream,
            log_divisor,
            shift,
            *sizes,
            *[0] * len(none),
            *(torch.finfo(one.dtype).max for one in out),
            *[0.0] * len(none),
            IN_PLACE=out[0] is gradients[0],
            BLOCK=_BLOCK,
            num_warps=8,
        )
