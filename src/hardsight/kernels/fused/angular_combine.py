# ruff: noqa: N803
"""Triton: what the splits of a scan found, joined into a sample's numbers; what is in doubt is measured again."""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angles import HALF_PI, arccos
from hardsight.kernels.fused.angular_fold import FIELDS, LOWEST
from hardsight.kernels.fused.angular_norms import inverse_of, is_out_of_range
from hardsight.kernels.fused.angular_numbers import store_logits
from hardsight.kernels.fused.angular_remeasure import ALL_IN_DOUBT, ANGLES_IN_DOUBT, angles_in_pairs, remeasure

# See geometry: beyond this |cosine| an arccos of a float32 product is no measurement any more.
_NEARLY_PARALLEL = tl.constexpr(0.995)


@triton.jit
@no_type_check
def combine(
    partial,
    features,
    weight,
    labels,
    norms,
    weight_inverse,
    bias,
    out,
    predicted,
    samples,
    classes,
    dim,
    feature_stride,
    weight_stride,
    splits,
    LOGITS: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
):
    """The numbers of `AngularScores` from what the splits of the classes found; `CLASSES`, `DIM`: to measure again."""
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
    norm = tl.load(norms + row, mask=inside, other=1.0)
    inverse = inverse_of(norm)
    label_inverse = tl.load(weight_inverse + label, mask=inside, other=0.0)
    label_cosine = label_product * inverse * label_inverse
    label_angle = arccos(label_cosine)
    nearly_parallel = inside & (tl.abs(label_cosine) > _NEARLY_PARALLEL)
    if tl.max(nearly_parallel.to(tl.int32), 0) > 0:
        mine = (features, row, nearly_parallel, dim, feature_stride)
        labelled = (weight, label, nearly_parallel, dim, weight_stride)
        measured = angles_in_pairs(mine, labelled, inverse, label_inverse, DIM)
        label_angle = tl.where(nearly_parallel, measured, label_angle)
    tl.store(out + row, norm, mask=inside)
    tl.store(out + samples + row, label_angle, mask=inside)
    tl.store(out + 2 * samples + row, (classes - 1) * HALF_PI - lack + label_angle, mask=inside)
    tl.store(out + 3 * samples + row, arccos(nearest), mask=inside)
    if LOGITS:
        label_logit = label_product
        if BIAS:
            label_logit += tl.load(bias + label, mask=inside, other=0.0).to(tl.float32)
        masses = (mass, below, mass_squares)
        store_logits(out, predicted, row, samples, inside, (label, label_logit), (place, top), masses, SPREAD)
    else:
        tl.store(predicted + row, tl.full((ROWS,), -1, tl.int64), mask=inside)
        for field in tl.static_range(4, 10):
            tl.store(out + field * samples + row, tl.zeros((ROWS,), tl.float32), mask=inside)

    doubt = tl.where(largest > _NEARLY_PARALLEL, ANGLES_IN_DOUBT, 0)
    doubt = tl.where(is_out_of_range(norm) | (largest == float("inf")), ALL_IN_DOUBT, doubt)
    doubt = tl.where(inside, doubt, 0)
    # Nearly always there is none.
    if tl.max(doubt, 0) > 0:
        # What is measured again is written over what was stored just now, by other threads.
        tl.debug_barrier()
        head = (weight, weight_inverse, bias, classes, weight_stride)
        for step in range(0, ROWS):
            here = tl.arange(0, ROWS) == step
            its_doubt = tl.sum(tl.where(here, doubt, 0), 0)
            if its_doubt > 0:
                its_row = tl.program_id(0) * ROWS + step
                one = (features, its_row + tl.arange(0, 1), tl.arange(0, 1) == 0, dim, feature_stride)
                its_label, its_norm = tl.load(labels + its_row), tl.load(norms + its_row)
                to = (out, predicted, its_row)
                remeasure(one, its_norm, its_label, its_doubt, head, to, samples, LOGITS, BIAS, SPREAD, CLASSES, DIM)
