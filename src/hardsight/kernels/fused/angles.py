"""Triton: the arccos, arcsine and softplus that the kernels share, accurate to float32's rounding.

And what the losses share: who counts and how much, and numbers that may come as tensors.
"""

from typing import no_type_check

import triton
import triton.language as tl

PI = tl.constexpr(3.141592653589793)
HALF_PI = tl.constexpr(1.5707963267948966)
ARCSINE_OF_HALF = tl.constexpr(0.5235987755982989)


@triton.jit
@no_type_check
def arccos_of_magnitude(magnitude):
    """arccos on [0, 1] by sqrt(1 - x) P(x); error 2e-8 (Abramowitz and Stegun, 4.4.46)."""
    p = -0.0012624911 * magnitude + 0.0066700901
    p = p * magnitude - 0.0170881256
    p = p * magnitude + 0.0308918810
    p = p * magnitude - 0.0501743046
    p = p * magnitude + 0.0889789874
    p = p * magnitude - 0.2145988016
    p = p * magnitude + 1.5707963050
    return tl.sqrt(1.0 - magnitude) * p


@triton.jit
@no_type_check
def arccos(cosine):
    """arccos of a cosine that rounding may have pushed past one."""
    angle = arccos_of_magnitude(tl.minimum(tl.abs(cosine), 1.0))
    return tl.where(cosine < 0.0, PI - angle, angle)


@triton.jit
@no_type_check
def arcsine(cosine):
    """pi/2 - arccos: what a class's angle lacks to a right one. Summed, these keep more digits than the angles."""
    lack = HALF_PI - arccos_of_magnitude(tl.minimum(tl.abs(cosine), 1.0))
    # The cosine's sign bit, taken over in one operation.
    sign = cosine.to(tl.int32, bitcast=True) & -2147483648
    return (lack.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def terms_of_small_arcsine(factor):
    """The coefficients with which `arcsine_of_small` gives the arcsine of x times this factor."""
    square = factor * factor
    cube = factor * square
    fifth = cube * square
    seventh = fifth * square
    return (
        1.0000004636 * factor,
        0.1666310110 * cube,
        0.0757618203 * fifth,
        0.0381369772 * seventh,
        (0.0533216800 * square) * seventh,
    )


@triton.jit
@no_type_check
def arcsine_of_small(x, terms):
    """arcsine on [-1/2, 1/2] by an odd polynomial, the best of its degree; error 2e-8."""
    square = x * x
    p = terms[4] * square + terms[3]
    p = p * square + terms[2]
    p = p * square + terms[1]
    p = p * square + terms[0]
    return x * p


@triton.jit
@no_type_check
def angle_from_chords(apart, together):
    """The angle of unit vectors from |u - v|^2 and |u + v|^2: exact near 0 and pi, where arccos is not."""
    # Within 60 degrees of parallel the arcsine of half the shorter chord, else the arccos. The squares of unit vectors
    # sum to 4; where one vector is zero there is no chord, and the arccos of 0 is the right angle.
    half = 0.5 * tl.sqrt(tl.minimum(apart, together))
    z = tl.minimum(half, 0.5) * tl.minimum(half, 0.5)
    ratio = z * (0.16666586697 + z * (-0.042743422091 + z * -0.0086563630030)) / (1.0 - 0.70662963390 * z)
    narrow = 2.0 * (half + half * ratio)
    near = tl.where(apart < together, narrow, PI - narrow)
    return tl.where((half < 0.5) & (apart + together > 3.0), near, arccos(0.25 * (together - apart)))


@triton.jit
@no_type_check
def softplus(x):
    """log (1 + exp x), without overflow and exact to rounding for very negative x."""
    small = tl.exp(-tl.abs(x))
    # log1p by one correction of the rounding in 1 + small.
    one = 1.0 + small
    log = tl.where(one == 1.0, small, tl.log(one) * small / tl.where(one == 1.0, 1.0, one - 1.0))
    return tl.maximum(x, 0.0) + log


@triton.jit
@no_type_check
def label_and_weight(labels, sample_weight, sample, inside, ignore_index):
    """The label of each sample (0 where ignored), and its weight: 1 where none is given, 0 where ignored or outside."""
    # A byte without sign would be taken for one with it where it moves a pointer.
    label = tl.load(labels + sample, mask=inside, other=0).to(tl.int64)
    kept = inside & (label != ignore_index)
    if sample_weight is None:
        weight = tl.where(kept, 1.0, 0.0)
    else:
        weight = tl.load(sample_weight + sample, mask=kept, other=0.0).to(tl.float32)
    return tl.where(kept, label, 0), weight


@triton.jit
@no_type_check
def number_at(pointer, value):
    """A number that comes as a tensor of one element, or as itself where there is no tensor."""
    if pointer is None:  # noqa: SIM108, the branch not taken must not be compiled
        number = value
    else:
        number = tl.load(pointer).to(tl.float32)
    return number
