"""Triton: what the splits of a scan found, joined into a sample's numbers; what is in doubt is measured again.

Nearly parallel vectors lose their angle in the product's rounding, and are measured again from the vectors themselves.
Where that is the angle to the labelled class, as in a network that fits its samples well, the samples are taken
together; where it is another, one by one. Vectors whose squares leave float32's range lose all numbers, and are brought
near 1 by powers of two first.
"""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angles import HALF_PI, angle_from_chords, arccos, softplus
from hardsight.kernels.fused.angular_fold import FIELDS, LOWEST
from hardsight.kernels.fused.angular_norms import inverse_of, is_out_of_range

# ruff: noqa: N803


# See geometry: beyond this |cosine| an arccos of a float32 product is no measurement any more.
_NEARLY_PARALLEL = tl.constexpr(0.995)


@triton.jit
@no_type_check
def combine(
    partial, features, weight, labels, norms, weight_inverse, bias, out, predicted, samples, classes, dim,
    feature_stride, weight_stride, splits,
    LOGITS: tl.constexpr, BIAS: tl.constexpr, SPREAD: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
    DIM: tl.constexpr,
):  # fmt: skip
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


@triton.jit
@no_type_check
def store_logits(out, predicted, row, samples, inside, own_class, largest_other, masses, SPREAD: tl.constexpr):
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


# What is in doubt of a sample: every angle, or every number.
ANGLES_IN_DOUBT = tl.constexpr(1)
ALL_IN_DOUBT = tl.constexpr(2)
_LARGEST = tl.constexpr(3.4028234663852886e38)
# A quarter of it: differences of two logits stay finite.
_LARGEST_LOGIT = tl.constexpr(8.507059e37)
# Below any logit.
_NO_LOGIT = tl.constexpr(-3e38)


@triton.jit
@no_type_check
def _power_of_two(exponent):
    """2 to the power of -126 to 127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def _exponent_of(size):
    """The exponent of a magnitude, cut off so that the powers of two of it and of its opposite are ordinary numbers."""
    return tl.minimum(tl.maximum((size.to(tl.int32, bitcast=True) >> 23) - 127, -126), 126)


@triton.jit
@no_type_check
def _load(vectors, start, DIM: tl.constexpr):
    """Some components of vectors, in float32; `vectors`: where, the rows, which of them count, dimension, stride."""
    source, row, valid, dim, stride = vectors
    d = start + tl.arange(0, DIM)
    at = source + row.to(tl.int64)[:, None] * stride + d[None, :]
    return tl.load(at, mask=valid[:, None] & (d < dim)[None, :], other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def _scaled(vectors, DIM: tl.constexpr):
    """The exponent of each vector's largest component, and its length once divided by that power of two."""
    sizes = tl.zeros(vectors[1].shape, tl.float32)
    for start in range(0, vectors[3], DIM):
        sizes = tl.maximum(sizes, tl.max(tl.abs(_load(vectors, start, DIM)), 1))
    exponents = _exponent_of(sizes)
    squares = tl.zeros(vectors[1].shape, tl.float32)
    for start in range(0, vectors[3], DIM):
        part = _load(vectors, start, DIM) * _power_of_two(-exponents)[:, None]
        squares += tl.sum(part * part, 1)
    return exponents, tl.sqrt(squares)


@triton.jit
@no_type_check
def _compare(some, others, some_exponents, exponents, some_inverses, inverses, DIM: tl.constexpr):
    """Products of vectors, one with many or in pairs, each divided by its power of two; and the angles, from chords."""
    products = tl.zeros(exponents.shape, tl.float32)
    apart, together = products, products
    for start in range(0, some[3], DIM):
        u = _load(some, start, DIM) * _power_of_two(-some_exponents)[:, None]
        v = _load(others, start, DIM) * _power_of_two(-exponents)[:, None]
        products += tl.sum(u * v, 1)
        u, v = u * some_inverses[:, None], v * inverses[:, None]
        apart += tl.sum((u - v) * (u - v), 1)
        together += tl.sum((u + v) * (u + v), 1)
    # What is not finite shows: every minimum and comparison on the way passes it over.
    return products, angle_from_chords(apart, together) + 0.0 * apart


@triton.jit
@no_type_check
def angles_in_pairs(some, others, inverses, other_inverses, DIM: tl.constexpr):
    """The angle of each vector and the other beside it, from their inverse lengths; vectors are as in `_load`."""
    nothing = tl.zeros(inverses.shape, tl.int32)
    return _compare(some, others, nothing, nothing, inverses, other_inverses, DIM)[1]


@triton.jit
@no_type_check
def _logits(products, exponents, bias, column, valid, BIAS: tl.constexpr):
    """Logits of products that are short of a power of two; it may lie beyond float32's range, so it comes in halves."""
    half = exponents >> 1
    logits = products * _power_of_two(half) * _power_of_two(exponents - half)
    logits = tl.minimum(tl.maximum(logits, -_LARGEST_LOGIT), _LARGEST_LOGIT)
    if BIAS:
        logits += tl.load(bias + column, mask=valid, other=0.0).to(tl.float32)
        logits = tl.minimum(tl.maximum(logits, -_LARGEST_LOGIT), _LARGEST_LOGIT)
    return logits


@triton.jit
@no_type_check
def _add_logits(logits, column, counted, found):
    """The class of the largest logit so far, that logit, and the sums that `store_logits` takes, with these."""
    place, top, mass, below, mass_squares = found
    others = tl.where(counted, logits, _NO_LOGIT)
    tile_top = tl.max(others, 0)
    first = tl.min(tl.where(counted & (others == tile_top), column, 2147483647), 0)
    place = tl.where(tile_top > top, first, place)
    higher = tl.maximum(top, tile_top)
    fade = tl.exp(top - higher)
    exponentials = tl.where(counted, tl.exp(others - higher), 0.0)
    below = tl.where(fade > 0.0, (below + mass * (higher - top)) * fade, 0.0)
    below += tl.sum(tl.where(exponentials > 0.0, (higher - others) * exponentials, 0.0), 0)
    mass = mass * fade + tl.sum(exponentials, 0)
    mass_squares = mass_squares * fade * fade + tl.sum(exponentials * exponentials, 0)
    return place, higher, mass, below, mass_squares


@triton.jit
@no_type_check
def remeasure(
    one, norm, label, doubt, head, place, samples,
    LOGITS: tl.constexpr, BIAS: tl.constexpr, SPREAD: tl.constexpr, CLASSES: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """The angles of one sample to all classes, and where every number is in doubt all of them."""
    weight, weight_inverse, bias, classes, stride = head
    out, predicted, row = place
    again = doubt == ALL_IN_DOUBT
    exponent, length = tl.zeros((1,), tl.int32), tl.zeros((1,), tl.float32) + norm
    if again:
        exponent, length = _scaled(one, DIM)
    inverse = inverse_of(length)
    # A zero vector has no direction: every angle is a right one, and its logits need no product.
    there = tl.sum(length, 0) != 0.0
    zero = tl.full((), 0.0, tl.float32)
    right = tl.where(there, 0.0, HALF_PI)
    own, others, nearest, label_logit = right, right * (classes - 1), zero + 4.0, zero
    found = (zero.to(tl.int32), zero + _NO_LOGIT, zero, zero, zero)
    for tile in range(0, tl.where(there, classes, 0), CLASSES):
        column = tile + tl.arange(0, CLASSES)
        valid = column < classes
        counted = valid & (column != label)
        many = (weight, column, valid, one[3], stride)
        exponents = tl.zeros((CLASSES,), tl.int32)
        inverses = tl.load(weight_inverse + column, mask=valid, other=0.0)
        if again:
            exponents, lengths = _scaled(many, DIM)
            inverses = inverse_of(lengths)
        products, angle = _compare(one, many, exponent, exponents, inverse, inverses, DIM)
        own += tl.sum(tl.where(valid & (column == label), angle, 0.0), 0)
        others += tl.sum(tl.where(counted, angle, 0.0), 0)
        nearest = tl.minimum(nearest, tl.min(tl.where(counted, angle, 4.0), 0))
        if LOGITS:
            logits = _logits(products, exponent + exponents, bias, column, valid, BIAS)
            label_logit += tl.sum(tl.where(valid & (column == label), logits, 0.0), 0)
            found = _add_logits(logits, column, counted, found)
    tl.store(out + samples + row, own)
    tl.store(out + 2 * samples + row, others + own)
    tl.store(out + 3 * samples + row, nearest, mask=there)
    if again:
        whole = tl.minimum(length * _power_of_two(exponent), _LARGEST)
        tl.store(out + row, tl.sum(whole, 0), mask=there)
        if LOGITS:
            store_logits(out, predicted, row, samples, there, (label, label_logit), found[:2], found[2:], SPREAD)
