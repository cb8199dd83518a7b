"""Triton: one pass over tiles of samples x classes that leaves a few numbers a sample.

`angular_norms` takes the norms. The scan folds the products tile by tile (`angular_scan`, on Hopper
`angular_scan_hopper`); `angular_norms` splits the classes among programs that work at the same time on few sample
blocks, so that both operands stay in the L2 cache. `angular_combine` joins the splits, and measures again, from the
vectors (`angular_combine`), what a product cannot give.
"""

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hardsight.kernels.dispatch import blocks_of, on_device_of, tf32_is_allowed
from hardsight.kernels.fused.angular_combine import combine
from hardsight.kernels.fused.angular_fold import FIELDS
from hardsight.kernels.fused.angular_norms import (
    Division,
    Measured,
    Tiling,
    can_be_described,
    divide,
    is_worth_a_look,
    measure,
    processors_of,
)
from hardsight.kernels.fused.angular_scan import scan_tiles


def measure_and_scan(
    features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, logits: bool, spread: bool
) -> tuple[Tensor, Tensor]:
    """The numbers of `AngularScores`, as `scan` returns them."""
    precision = "tf32" if features.dtype == torch.float32 and tf32_is_allowed() else "ieee"
    return scan(features, weight, labels, bias, (logits, spread), precision, measure(features, weight))


def scan(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    wanted: tuple[bool, bool],
    precision: str,
    measured: Measured,
) -> tuple[Tensor, Tensor]:
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
            partial,
            features,
            weight,
            labels,
            *norms,
            bias,
            out,
            predicted,
            samples,
            classes,
            features.shape[1],
            features.stride(0),
            weight.stride(0),
            division.splits,
            **terms,
            ROWS=32,
            CLASSES=16,
            DIM=64,
        )
    return out, predicted


def _launch_scan(
    features: Tensor,
    weight: Tensor,
    vectors: tuple[Tensor | None, ...],
    terms: dict[str, bool],
    precision: str,
    tiling: Tiling,
    division: Division,
) -> None:
    """Run the kernel of this tiling; `vectors`: labels, both norms, bias, what it fills; `terms`: its flags."""
    (samples, dim), classes = features.shape, len(weight)
    sample_blocks = blocks_of(samples, tiling.samples)
    items, per_split = sample_blocks * division.splits, division.tiles * tiling.classes
    look = is_worth_a_look(tiling, classes)
    if tiling.hopper:
        from hardsight.kernels.fused import angular_scan_hopper as hopper

        hopper.scan_tiles[(min(items, processors_of(features.device)),)](
            hopper.describe(features, tiling.samples, tiling.dim),
            hopper.describe(weight, tiling.classes, tiling.dim),
            *vectors,
            samples,
            classes,
            dim,
            per_split,
            sample_blocks,
            items,
            division.group,
            STAGES=tiling.stages,
            MEASURING_REGISTERS=hopper.measuring_registers(dim),
            LOOK=look,
            **terms,
            num_warps=tiling.warps,
        )
        return
    left, right, described = features, weight, can_be_described(features) and can_be_described(weight)
    if described:
        left = TensorDescriptor.from_tensor(features, [tiling.samples, tiling.dim])
        right = TensorDescriptor.from_tensor(weight, [tiling.classes, tiling.dim])
    scan_tiles[(items,)](
        left,
        right,
        *vectors,
        samples,
        classes,
        dim,
        features.stride(0),
        weight.stride(0),
        per_split,
        sample_blocks,
        SAMPLES=tiling.samples,
        CLASSES=tiling.classes,
        DIM=tiling.dim,
        GROUP=division.group,
        DESCRIBED=described,
        PRECISION=precision,
        LOOK=look,
        **terms,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
    )
