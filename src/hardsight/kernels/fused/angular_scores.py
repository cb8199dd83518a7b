# ruff: noqa: N803
"""Triton: one pass over tiles of samples x classes that leaves a few numbers a sample.

`angular_norms` takes the norms. `scan` folds the products tile by tile (`angular_scan`, on Hopper
`angular_scan_hopper`); `angular_tiling` splits the classes among programs that work at the same time on few sample
blocks, so that both operands stay in the L2 cache. `_combine` joins the splits; `_remeasure` measures again, from the
vectors, the angles that a product cannot give: those of nearly parallel vectors.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hardsight.kernels.dispatch import blocks_of, on_device_of
from hardsight.kernels.fused.angles import HALF_PI, angle_from_chords, arccos, softplus
from hardsight.kernels.fused.angular_fold import FIELDS, LOWEST
from hardsight.kernels.fused.angular_norms import Measured
from hardsight.kernels.fused.angular_scan import scan_tiles
from hardsight.kernels.fused.angular_tiling import Division, Tiling, can_be_described, divide, processors_of

# See geometry: beyond this |cosine| an arccos of a float32 product is no measurement any more.
_NEARLY_PARALLEL = tl.constexpr(0.995)


@triton.jit
@no_type_check
def _combine(
    partial,
    labels,
    norms,
    feature_inverse,
    weight_inverse,
    bias,
    out,
    predicted,
    doubtful,
    samples,
    classes,
    splits,
    LOGITS: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < samples
    top = tl.full((ROWS,), LOWEST, tl.float32)
    place = tl.zeros((ROWS,), tl.int32)
    nearest = tl.full((ROWS,), float("-inf"), tl.float32)
    largest = tl.zeros((ROWS,), tl.float32)
    mass = tl.zeros((ROWS,), tl.float32)
    below = tl.zeros((ROWS,), tl.float32)
    mass_squares = tl.zeros((ROWS,), tl.float32)
    lack = tl.zeros((ROWS,), tl.float32)
    label_product = tl.zeros((ROWS,), tl.float32)
    source = partial + row
    for _ in range(0, splits):
        if LOGITS:
            split_top = tl.load(source, mask=inside, other=0.0)
            split_mass = tl.load(source + samples, mask=inside, other=1.0)
            split_below = tl.load(source + 7 * samples, mask=inside, other=0.0)
            split_place = tl.load(source + 2 * samples, mask=inside, other=0.0).to(tl.int32, bitcast=True)
            higher = tl.maximum(top, split_top)
            fade = tl.exp(top - higher)
            split_fade = tl.exp(split_top - higher)
            split_below = (split_below + split_mass * (higher - split_top)) * split_fade
            below = (below + mass * (higher - top)) * fade + split_below
            mass = mass * fade + split_mass * split_fade
            split_squares = tl.load(source + 8 * samples, mask=inside, other=0.0)
            mass_squares = mass_squares * fade * fade + split_squares * split_fade * split_fade
            place = tl.where(split_top > top, split_place, place)
            top = higher
        nearest = tl.maximum(nearest, tl.load(source + 3 * samples, mask=inside, other=0.0))
        largest = tl.maximum(largest, tl.load(source + 4 * samples, mask=inside, other=0.0))
        lack += tl.load(source + 5 * samples, mask=inside, other=0.0)
        label_product += tl.load(source + 6 * samples, mask=inside, other=0.0)
        source += FIELDS * samples

    label = tl.load(labels + row, mask=inside, other=0)
    inverse = tl.load(feature_inverse + row, mask=inside, other=1.0)
    label_cosine = label_product * inverse * tl.load(weight_inverse + label, mask=inside, other=0.0)
    label_angle = arccos(label_cosine)
    angle_sum = (classes - 1) * HALF_PI - lack
    tl.store(out + row, tl.load(norms + row, mask=inside, other=0.0), mask=inside)
    tl.store(out + samples + row, label_angle, mask=inside)
    tl.store(out + 2 * samples + row, angle_sum + label_angle, mask=inside)
    tl.store(out + 3 * samples + row, arccos(nearest), mask=inside)
    label_in_doubt = tl.abs(label_cosine) > _NEARLY_PARALLEL
    others_in_doubt = largest > _NEARLY_PARALLEL
    tl.store(doubtful + row, label_in_doubt.to(tl.int32) + 2 * others_in_doubt.to(tl.int32), mask=inside)
    if not LOGITS:
        tl.store(predicted + row, tl.full((ROWS,), -1, tl.int64), mask=inside)
        for field in tl.static_range(4, 10):
            tl.store(out + field * samples + row, tl.zeros((ROWS,), tl.float32), mask=inside)
        return

    label_logit = label_product
    if BIAS:
        label_logit += tl.load(bias + label, mask=inside, other=0.0).to(tl.float32)
    total_top = tl.maximum(top, label_logit)
    others = mass * tl.exp(top - total_top)
    own = tl.exp(label_logit - total_top)
    total = others + own
    # Where the label leads its own term is 1, and log (1 + others) keeps what 1 + others would round away.
    log_total = tl.where(label_logit >= top, softplus(tl.log(others)), tl.log(total))
    wins = (label_logit > top) | ((label_logit == top) & (label < place))
    tl.store(predicted + row, tl.where(wins, label, place.to(tl.int64)), mask=inside)
    tl.store(out + 4 * samples + row, label_logit, mask=inside)
    tl.store(out + 5 * samples + row, top, mask=inside)
    tl.store(out + 6 * samples + row, total_top + log_total, mask=inside)
    tl.store(out + 7 * samples + row, others / total, mask=inside)
    squares = tl.zeros((ROWS,), tl.float32)
    entropy = squares
    if SPREAD:
        squares = mass_squares * tl.exp(2.0 * (top - total_top)) / (total * total)
        spread_others = below * tl.exp(top - total_top) + others * (total_top - top)
        entropy = (spread_others + own * (total_top - label_logit)) / total + log_total
    tl.store(out + 8 * samples + row, squares, mask=inside)
    tl.store(out + 9 * samples + row, entropy, mask=inside)


@triton.jit
@no_type_check
def _remeasure(
    features,
    weight,
    labels,
    feature_inverse,
    weight_inverse,
    out,
    doubtful,
    samples,
    classes,
    dim,
    feature_stride,
    weight_stride,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
):
    first = tl.program_id(0) * ROWS
    doubts = tl.load(doubtful + first + tl.arange(0, ROWS), mask=first + tl.arange(0, ROWS) < samples, other=0)
    # Nearly always there is none.
    rows = tl.where(tl.max(doubts, 0) > 0, tl.minimum(ROWS, samples - first), 0)
    for step in range(0, rows):
        row = (first + step).to(tl.int64)
        doubt = tl.load(doubtful + row)
        if doubt > 0:
            label = tl.load(labels + row)
            inverse = tl.load(feature_inverse + row)
            own = 0.0
            others = 0.0
            nearest = 4.0
            # The labelled class alone, or all of them: `begin` steps over one tile or over every tile.
            begin = tl.where(doubt == 1, label, 0).to(tl.int32)
            end = tl.where(doubt == 1, begin + 1, classes).to(tl.int32)
            for tile in range(begin, end, CLASSES):
                column = tile + tl.arange(0, CLASSES)
                valid = column < end
                scale = tl.load(weight_inverse + column, mask=valid, other=0.0)
                apart = tl.zeros((CLASSES,), tl.float32)
                together = tl.zeros((CLASSES,), tl.float32)
                for start in range(0, dim, DIM):
                    d = start + tl.arange(0, DIM)
                    u = tl.load(features + row * feature_stride + d, mask=d < dim, other=0.0).to(tl.float32) * inverse
                    at = weight + column.to(tl.int64)[:, None] * weight_stride + d[None, :]
                    v = tl.load(at, mask=valid[:, None] & (d < dim)[None, :], other=0.0).to(tl.float32)
                    v = v * scale[:, None]
                    apart += tl.sum((u[None, :] - v) * (u[None, :] - v), 1)
                    together += tl.sum((u[None, :] + v) * (u[None, :] + v), 1)
                angle = angle_from_chords(apart, together)
                is_label = column == label
                own += tl.sum(tl.where(is_label & valid, angle, 0.0), 0)
                counted = valid & (column != label)
                others += tl.sum(tl.where(counted, angle, 0.0), 0)
                nearest = tl.minimum(nearest, tl.min(tl.where(counted, angle, 4.0), 0))
            old = tl.load(out + samples + row)
            total = tl.load(out + 2 * samples + row)
            tl.store(out + samples + row, own)
            if doubt == 1:
                tl.store(out + 2 * samples + row, total - old + own)
            else:
                tl.store(out + 2 * samples + row, others + own)
                tl.store(out + 3 * samples + row, nearest)


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
    doubtful = torch.empty(samples, dtype=torch.int32, device=device)
    inverses = measured.feature_inverse, measured.weight_inverse
    terms = {"LOGITS": wanted[0], "BIAS": wanted[0] and bias is not None, "SPREAD": wanted[1]}
    with on_device_of(features):
        _launch_scan(features, weight, (labels, *inverses, bias, partial), terms, precision, measured.tiling, division)
        _combine[(blocks_of(samples, 128),)](
            partial,
            labels,
            measured.norms,
            *inverses,
            bias,
            out,
            predicted,
            doubtful,
            samples,
            classes,
            division.splits,
            **terms,
            ROWS=128,
        )
        _remeasure[(blocks_of(samples, 16),)](
            features,
            weight,
            labels,
            *inverses,
            out,
            doubtful,
            samples,
            classes,
            features.shape[1],
            features.stride(0),
            weight.stride(0),
            ROWS=16,
            CLASSES=16,
            DIM=256,
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
    """Run the kernel of this tiling; `vectors` are labels, inverse norms, bias and what it fills, `terms` its flags."""
    (samples, dim), classes = features.shape, len(weight)
    sample_blocks = blocks_of(samples, tiling.samples)
    items, per_split = sample_blocks * division.splits, division.tiles * tiling.classes
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
        **terms,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
    )
