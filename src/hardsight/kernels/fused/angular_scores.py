# ruff: noqa: N803
"""Triton: one pass over tiles of samples x classes that leaves a few numbers a sample.

`angular_norms` takes the norms. The scan folds the products tile by tile (`scan_tiles`, on Hopper
`angular_scan_hopper`); `angular_norms` splits the classes among programs that work at the same time on few sample
blocks, so that both operands stay in the L2 cache. `angular_combine` joins the splits, and measures again, from the
vectors (`angular_combine`), what a product cannot give.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hardsight.kernels.dispatch import blocks_of, on_device_of, tf32_is_allowed
from hardsight.kernels.fused.angular_combine import combine
from hardsight.kernels.fused.angular_fold import FIELDS, LANES, LOWEST, fold, leave, place_of
from hardsight.kernels.fused.angular_norms import (
    Division,
    Measured,
    Tiling,
    can_be_described,
    divide,
    inverse_of,
    is_worth_a_look,
    measure,
    processors_of,
)


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
    features, weight, labels, norms, weight_inverse, bias, partial, samples, classes, dim, feature_stride,
    weight_stride, classes_per_split, sample_blocks,
    SAMPLES: tl.constexpr, CLASSES: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr, DESCRIBED: tl.constexpr,
    LOOK: tl.constexpr, LOGITS: tl.constexpr, BIAS: tl.constexpr, SPREAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
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


def measure_and_scan(
    features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, logits: bool, spread: bool
) -> tuple[Tensor, Tensor]:
    """The numbers of `AngularScores`, as `scan` returns them."""
    precision = "tf32" if features.dtype == torch.float32 and tf32_is_allowed() else "ieee"
    return scan(features, weight, labels, bias, (logits, spread), precision, measure(features, weight))


def scan(
    features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, wanted: tuple[bool, bool], precision: str,
    measured: Measured,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """[10, samples] numbers in the order of `AngularScores`, and the predictions.

    `wanted`: the numbers of the logits, and their spread.
    """
    samples, classes, device = len(features), len(weight), features.device
    division = divide(measured.tiling, features, classes)
    out = torch.empty(10, samples, dtype=torch.float32, device=device)
    partial = torch.empty(division.splits, FIELDS.value, samples, dtype=torch.float32, device=device)
    predicted = torch.empty(samples, dtype=torch.int64, device=device)
    norms = measured.norms, measured.weight_inverse
    terms = {"LOGITS": wanted[0], "BIAS": wanted[0] and bias is not None, "SPREAD": wanted[1]}
    with on_device_of(features):
        _launch_scan(features, weight, (labels, *norms, bias, partial), terms, precision, measured.tiling, division)
        combine[(blocks_of(samples, 32),)](
            partial, features, weight, labels, *norms, bias, out, predicted, samples, classes, features.shape[1],
            features.stride(0), weight.stride(0), division.splits, **terms,
            ROWS=32, CLASSES=16, DIM=64,
        )  # fmt: skip
    return out, predicted


def _launch_scan(
    features: Tensor, weight: Tensor, vectors: tuple[Tensor | None, ...], terms: dict[str, bool], precision: str,
    tiling: Tiling, division: Division,
) -> None:  # fmt: skip
    """Run the kernel of this tiling; `vectors`: labels, both norms, bias, what it fills; `terms`: its flags."""
    (samples, dim), classes = features.shape, len(weight)
    sample_blocks = blocks_of(samples, tiling.samples)
    items, per_split = sample_blocks * division.splits, division.tiles * tiling.classes
    look = is_worth_a_look(tiling, classes)
    if tiling.hopper:
        from hardsight.kernels.fused import angular_scan_hopper as hopper

        hopper.scan_tiles[(min(items, processors_of(features.device)),)](
            hopper.describe(features, tiling.samples, tiling.dim), hopper.describe(weight, tiling.classes, tiling.dim),
            *vectors, samples, classes, dim, per_split, sample_blocks, items, division.group,
            STAGES=tiling.stages, MEASURING_REGISTERS=hopper.measuring_registers(dim), LOOK=look, **terms,
            num_warps=tiling.warps,
        )  # fmt: skip
        return
    left, right, described = features, weight, can_be_described(features) and can_be_described(weight)
    if described:
        left = TensorDescriptor.from_tensor(features, [tiling.samples, tiling.dim])
        right = TensorDescriptor.from_tensor(weight, [tiling.classes, tiling.dim])
    scan_tiles[(items,)](
        left, right, *vectors, samples, classes, dim, features.stride(0), weight.stride(0), per_split, sample_blocks,
        SAMPLES=tiling.samples, CLASSES=tiling.classes, DIM=tiling.dim, GROUP=division.group, DESCRIBED=described,
        PRECISION=precision, LOOK=look, **terms, num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
