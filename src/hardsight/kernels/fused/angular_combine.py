# ruff: noqa: N803
"""Triton: what the splits of a scan found, joined into a sample's numbers; and which of them are in doubt."""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angles import HALF_PI, arccos, softplus
from hardsight.kernels.fused.angular_fold import FIELDS, LOWEST
from hardsight.kernels.fused.angular_norms import inverse_of, is_out_of_range

# See geometry: beyond this |cosine| an arccos of a float32 product is no measurement any more.
_NEARLY_PARALLEL = tl.constexpr(0.995)
# What is in doubt of a sample: the angle to its labelled class, every angle, or every number.
LABEL_IN_DOUBT = tl.constexpr(1)
ANGLES_IN_DOUBT = tl.constexpr(2)
ALL_IN_DOUBT = tl.constexpr(3)


@triton.jit
@no_type_check
def leave_logits(out, predicted, row, samples, inside, own_class, largest_other, masses, SPREAD: tl.constexpr):
    """The numbers that logits give: from the labelled class and its logit, the largest other one, and the others' sums.

    The sums are of exponentials below that largest one, of those times how far they are below it, and of their squares.
    """
    label, label_logit = own_class
    place, top = largest_other
    mass, below, mass_squares = masses
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
    squares = total * 0.0
    entropy = squares
    if SPREAD:
        squares = mass_squares * tl.exp(2.0 * (top - total_top)) / (total * total)
        spread_others = below * tl.exp(top - total_top) + others * (total_top - top)
        entropy = (spread_others + own * (total_top - label_logit)) / total + log_total
    tl.store(out + 8 * samples + row, squares, mask=inside)
    tl.store(out + 9 * samples + row, entropy, mask=inside)


@triton.jit
@no_type_check
def combine(
    partial,
    labels,
    norms,
    weight_inverse,
    unsafe,
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
    """What the splits of the classes found, joined into the numbers of `AngularScores`; and what to measure again."""
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
    label_cosine = label_product * inverse_of(norm) * tl.load(weight_inverse + label, mask=inside, other=0.0)
    label_angle = arccos(label_cosine)
    angle_sum = (classes - 1) * HALF_PI - lack
    tl.store(out + row, norm, mask=inside)
    tl.store(out + samples + row, label_angle, mask=inside)
    tl.store(out + 2 * samples + row, angle_sum + label_angle, mask=inside)
    tl.store(out + 3 * samples + row, arccos(nearest), mask=inside)
    doubt = tl.where(tl.abs(label_cosine) > _NEARLY_PARALLEL, LABEL_IN_DOUBT, 0)
    doubt = tl.where(largest > _NEARLY_PARALLEL, ANGLES_IN_DOUBT, doubt)
    doubt = tl.where(is_out_of_range(norm) | (tl.load(unsafe) > 0), ALL_IN_DOUBT, doubt)
    tl.store(doubtful + row, doubt, mask=inside)
    if not LOGITS:
        tl.store(predicted + row, tl.full((ROWS,), -1, tl.int64), mask=inside)
        for field in tl.static_range(4, 10):
            tl.store(out + field * samples + row, tl.zeros((ROWS,), tl.float32), mask=inside)
        return

    label_logit = label_product
    if BIAS:
        label_logit += tl.load(bias + label, mask=inside, other=0.0).to(tl.float32)
    masses = (mass, below, mass_squares)
    leave_logits(out, predicted, row, samples, inside, (label, label_logit), (place, top), masses, SPREAD)
