# ruff: noqa: N803
"""Triton: what a product cannot measure, measured again from the vectors themselves.

Nearly parallel vectors lose their angle in the product's rounding. Where that is the angle to the labelled class, as in
a network that fits its samples well, the samples are taken together; where it is another, one by one. Vectors whose
squares leave float32's range lose all numbers, and are brought near 1 by powers of two first.
"""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angles import HALF_PI, angle_from_chords
from hardsight.kernels.fused.angular_norms import inverse_of
from hardsight.kernels.fused.angular_numbers import store_logits

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
    one,
    norm,
    label,
    doubt,
    head,
    place,
    samples,
    LOGITS: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
):
    """The angles of one sample to all classes, and where every number is in doubt all of them."""
    weight, weight_inverse, bias, classes, stride = head
    out, predicted, row = place
    anew = doubt == ALL_IN_DOUBT
    exponent, length = tl.zeros((1,), tl.int32), tl.zeros((1,), tl.float32) + norm
    if anew:
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
        if anew:
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
    if anew:
        whole = tl.minimum(length * _power_of_two(exponent), _LARGEST)
        tl.store(out + row, tl.sum(whole, 0), mask=there)
        if LOGITS:
            store_logits(out, predicted, row, samples, there, (label, label_logit), found[:2], found[2:], SPREAD)
