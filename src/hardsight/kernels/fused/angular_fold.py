# ruff: noqa: N803
"""Triton: a tile of products of samples and classes, folded into a few running numbers a sample.

Each sample's numbers run in `LANES` lanes, every eighth class in the same one, so that threads fold what they hold and
meet only at the end. The functions serve Triton's language and Gluon's: what needs a layout there (`lane`, `column`,
the first state) comes from the kernel.
"""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angles import ARCSINE_OF_HALF, HALF_PI, arcsine, arcsine_of_small, terms_of_small_arcsine

# Columns of what a program leaves for each of its samples.
FIELDS = tl.constexpr(9)
# Lanes in which a sample's numbers run: as many classes as four threads hold of a row side by side.
LANES = tl.constexpr(8)
# Below any logit, and finite, so that a lane without classes takes part in sums.
LOWEST = tl.constexpr(-1e30)
# Stands for the product of a class that must not count: every maximum passes it over, and its exponential is nothing.
# NaN, where there are no exponentials, has no magnitude either.
_NO_LOGIT = tl.constexpr(float("-inf"))
# Inverse norms whose ninth power is a number of float32, as the polynomial for nearly right angles needs it.
_LEAST_INVERSE = tl.constexpr(1e-4)
_LARGEST_INVERSE = tl.constexpr(1e4)
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def slices_of(tile):
    """A tile as a tuple of slices one class a lane; every element stays in the register it is in."""
    SAMPLES: tl.constexpr = tile.shape[0]  # noqa: N806
    CLASSES: tl.constexpr = tile.shape[1]  # noqa: N806
    if CLASSES == LANES:
        return (tile,)
    else:  # noqa: RET505, the branch not taken must not be compiled
        left, right = tile.reshape(SAMPLES, 2, CLASSES // 2).permute(0, 2, 1).split()
        return slices_of(left) + slices_of(right)


@triton.jit
@no_type_check
def _with_bias(products, bias, first, lane, classes, BIAS: tl.constexpr):
    """A slice's logits, from its products."""
    if BIAS:
        column = first + lane
        products += tl.load(bias + column, mask=column < classes, other=0.0).to(tl.float32)
    return products


@triton.jit
@no_type_check
def _leave_out_beyond(slices, tile, lane, classes, SLICES: tl.constexpr, LEFT_OUT: tl.constexpr):
    """The slices without columns beyond the last class."""
    others = ()
    for i in tl.static_range(SLICES):
        kept = tl.where(tile + i * LANES + lane < classes, slices[i], LEFT_OUT)
        others = others + (kept,)  # noqa: RUF005, Triton has no *
    return others


@triton.jit
@no_type_check
def _leave_out_label(slices, tile, lane, label, label_product, SLICES: tl.constexpr, LEFT_OUT: tl.constexpr):
    """The slices without the labelled class, and its product."""
    apart = (label - tile)[:, None] - lane
    others = ()
    for i in tl.static_range(SLICES):
        label_product = tl.where(apart == i * LANES, slices[i], label_product)
        others = others + (tl.where(apart == i * LANES, LEFT_OUT, slices[i]),)  # noqa: RUF005, Triton has no *
    return others, label_product


@triton.jit
@no_type_check
def _largest(slices, tile, lane, bias, classes, top, place, SLICES: tl.constexpr, BIAS: tl.constexpr):
    """The lanes' largest logit so far, where it is, and the largest product in this tile."""
    first = top + LOWEST
    tile_top, tile_place, high = first, place, first
    for i in tl.static_range(SLICES):
        logit = _with_bias(slices[i], bias, tile + i * LANES, lane, classes, BIAS)
        tile_place = tl.where(logit > tile_top, tile + i * LANES, tile_place)
        tile_top = tl.maximum(tile_top, logit)
        if BIAS:
            high = tl.maximum(high, slices[i])
    if not BIAS:
        high = tile_top
    place = tl.where(tile_top > top, tile_place, place)
    return tl.maximum(top, tile_top), place, high


@triton.jit
@no_type_check
def _factors(inverse, NEAR_RIGHT: tl.constexpr):
    """What takes arcsines of cosines times the norm: their lower end and a polynomial if `NEAR_RIGHT`, else 1/norm."""
    inverse = inverse[:, None]
    if NEAR_RIGHT:
        return -0.5 / tl.maximum(inverse, _LEAST_INVERSE), terms_of_small_arcsine(inverse)
    else:  # noqa: RET505, the branch not taken must not be compiled
        return inverse


@triton.jit
@no_type_check
def _add_angle(scaled, factors, angles, NEAR_RIGHT: tl.constexpr):
    """The lanes' nearest and largest cosine, times the sample's norm, and lack, with one slice's; see `_factors`."""
    nearest, largest, lack = angles
    nearest = tl.maximum(nearest, scaled)
    if NEAR_RIGHT:
        lowest, terms = factors
        lack += arcsine_of_small(tl.maximum(scaled, lowest), terms)
    else:
        largest = tl.maximum(largest, tl.abs(scaled))
        lack += arcsine(scaled * factors)
    return nearest, largest, lack


@triton.jit
@no_type_check
def _fade(top, higher, masses, SPREAD: tl.constexpr):
    """The lanes' sums of exponentials, under a new top."""
    mass, below, mass_squares = masses
    fade = tl.exp2((top - higher) * _LOG2_E)
    if SPREAD:
        # Sum of e (top - z): moving the top up adds the step to every term there is.
        below = (below + mass * (higher - top)) * fade
        mass_squares = mass_squares * fade * fade
    return mass * fade, below, mass_squares


@triton.jit
@no_type_check
def _add_exponential(logit, higher, masses, SPREAD: tl.constexpr):
    """The lanes' sums of exponentials with one slice's."""
    mass, below, mass_squares = masses
    exponential = tl.exp2(logit * _LOG2_E - higher * _LOG2_E)
    if SPREAD:
        below += tl.where(exponential > 0.0, (higher - logit) * exponential, 0.0)
        mass_squares += exponential * exponential
    return mass + exponential, below, mass_squares


@triton.jit
@no_type_check
def _add_angles(
    slices, tile, lane, inverse, weight_inverse, higher, left_out, sums,
    SLICES: tl.constexpr, NEAR_RIGHT: tl.constexpr, LOGITS: tl.constexpr, EXPONENTIALS: tl.constexpr,
):  # fmt: skip
    """The lanes' angles, and with `EXPONENTIALS` their sums of these, with this tile's.

    `NEAR_RIGHT` where no |cosine| of the tile is above a half. What is left out counts as an end of the arcsine that is
    taken, and is taken back.
    """
    masses, angles = sums
    factors = _factors(inverse, NEAR_RIGHT)
    for i in tl.static_range(SLICES):
        product = slices[i]
        if LOGITS and not NEAR_RIGHT:
            product = tl.where(product == _NO_LOGIT, float("nan"), product)
        scaled = product * tl.load(weight_inverse + tile + i * LANES + lane)
        angles = _add_angle(scaled, factors, angles, NEAR_RIGHT)
        if EXPONENTIALS:
            masses = _add_exponential(slices[i], higher, masses, False)
    end: tl.constexpr = -ARCSINE_OF_HALF if NEAR_RIGHT else HALF_PI
    return masses, (angles[0], angles[1], angles[2] - left_out * end)


@triton.jit
@no_type_check
def fold(
    product, tile, lane, column, sample, head, state,
    LOOK: tl.constexpr, LOGITS: tl.constexpr, BIAS: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """The lanes' numbers after one more tile of products; the labelled class is kept apart from the others.

    `sample` is the labels and inverse norms of the rows, `head` the classes' inverse norms, bias and number. `LOOK`
    first whether a label lies in the tile at all. Without `LOGITS` the numbers of the angles alone.
    """
    CLASSES: tl.constexpr = product.shape[1]  # noqa: N806
    SLICES: tl.constexpr = CLASSES // LANES  # noqa: N806
    # Exponentials and arcsines slice by slice, so that different units work on them at the same time. A bias or a
    # spread takes registers that are not there then.
    TOGETHER: tl.constexpr = LOGITS and not BIAS and not SPREAD  # noqa: N806
    LEFT_OUT: tl.constexpr = _NO_LOGIT if LOGITS else float("nan")  # noqa: N806
    label, inverse = sample
    weight_inverse, bias, classes = head
    top, place, masses, angles, label_product = state
    slices = slices_of(product)
    if LOGITS:
        # Before anything is left out: only here is every product a number.
        low = slices[0]
        for i in tl.static_range(1, SLICES):
            low = tl.minimum(low, slices[i])
    hit = (label >= tile) & (label < tile + CLASSES)
    beyond = tl.maximum(tile + CLASSES - classes, 0)
    if (not LOOK) or tl.max(hit.to(tl.int32), 0) > 0:
        slices, label_product = _leave_out_label(slices, tile, lane, label, label_product, SLICES, LEFT_OUT)
    if beyond > 0:
        slices = _leave_out_beyond(slices, tile, lane, classes, SLICES, LEFT_OUT)
    higher = top
    if LOGITS:
        higher, place, high = _largest(slices, tile, lane, bias, classes, top, place, SLICES, BIAS)
        size = tl.maximum(high, -low)
        masses = _fade(top, higher, masses, SPREAD)
        if not TOGETHER:
            for i in tl.static_range(SLICES):
                logit = _with_bias(slices[i], bias, tile + i * LANES, lane, classes, BIAS)
                masses = _add_exponential(logit, higher, masses, SPREAD)
    else:
        size = tl.abs(slices[0])
        for i in tl.static_range(1, SLICES):
            size = tl.maximum(size, tl.abs(slices[i]))
    left_out = (hit.to(tl.int32) + beyond).to(tl.float32)[:, None] / LANES
    largest_inverse = tl.max(tl.load(weight_inverse + tile + column), 0)
    ordinary = (inverse == 0.0) | ((inverse >= _LEAST_INVERSE) & (inverse <= _LARGEST_INVERSE))
    reach = tl.where(ordinary, tl.max(size, 1) * inverse, float("inf"))
    near_right = tl.max(reach, 0) * largest_inverse <= 0.5
    sums = masses, angles
    if near_right:
        sums = _add_angles(
            slices, tile, lane, inverse, weight_inverse, higher, left_out, sums, SLICES, True, LOGITS, TOGETHER
        )
    else:
        sums = _add_angles(
            slices, tile, lane, inverse, weight_inverse, higher, left_out, sums, SLICES, False, LOGITS, TOGETHER
        )
        nearest, largest, lack = sums[1]
        # A class out of range spoils every sample's numbers, whatever its product.
        sums = sums[0], (nearest, tl.where(largest_inverse == float("inf"), float("inf"), largest), lack)
    masses, angles = sums
    return higher, place, masses, angles, label_product


@triton.jit
@no_type_check
def _leave_logits(out, top, place, masses, lane, samples, inside):
    mass, below, mass_squares = masses
    highest = tl.max(top, 1)
    step = highest[:, None] - top
    fade = tl.exp(-step)
    # Of equal largest logits the first class.
    column = tl.min(tl.where(top == highest[:, None], place + lane, 2147483647), 1)
    below = tl.sum(tl.where(fade > 0.0, (below + mass * step) * fade, 0.0), 1)
    tl.store(out, highest, mask=inside)
    tl.store(out + samples, tl.sum(mass * fade, 1), mask=inside)
    tl.store(out + 2 * samples, column.to(tl.float32, bitcast=True), mask=inside)
    tl.store(out + 7 * samples, below, mask=inside)
    tl.store(out + 8 * samples, tl.sum(mass_squares * fade * fade, 1), mask=inside)


@triton.jit
@no_type_check
def leave(partial, state, lane, row, inverse, split, samples, LOGITS: tl.constexpr):
    """Write what the samples of these rows found in a split of the classes: their lanes' numbers joined."""
    top, place, masses, angles, label_product = state
    nearest, largest, lack = angles
    out = partial + split.to(tl.int64) * FIELDS * samples + row
    inside = row < samples
    if LOGITS:
        _leave_logits(out, top, place, masses, lane, samples, inside)
    tl.store(out + 3 * samples, tl.max(nearest, 1) * inverse, mask=inside)
    tl.store(out + 4 * samples, tl.max(largest, 1) * inverse, mask=inside)
    tl.store(out + 5 * samples, tl.sum(lack, 1), mask=inside)
    tl.store(out + 6 * samples, tl.sum(label_product, 1), mask=inside)


@triton.jit
@no_type_check
def place_of(item, splits, sample_blocks, group):
    """The block of samples and the split of the classes of an item.

    Items that are worked on at the same time share few blocks, so that these stay in the L2 cache, and few tiles.
    """
    first = item // (group * splits) * group
    blocks = tl.minimum(sample_blocks - first, group)
    within = item - first * splits
    return first + within % blocks, within // blocks
