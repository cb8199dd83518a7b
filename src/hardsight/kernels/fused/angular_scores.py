# ruff: noqa: N803
"""Triton: one pass over tiles of samples x classes that leaves a few numbers a sample.

`_scan` multiplies a block of samples with one class tile after another and folds each tile into running numbers; the
classes are split among programs that work at the same time on few sample blocks, so that both operands stay in the L2
cache. `_combine` joins the splits; `_remeasure` measures again, from the vectors, the angles that a product cannot
give: those of nearly parallel vectors.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hardsight.kernels.fused.angles import HALF_PI, angle_from_chords, arccos, arcsine, softplus

# Columns of what a program of `_scan` leaves for each of its samples.
_FIELDS = tl.constexpr(10)
# Stands for the product of a class that must not count: far below any, and still finite after scaling.
_LEFT_OUT = tl.constexpr(-1e30)
# See geometry: beyond this |cosine| an arccos of a float32 product is no measurement any more.
_NEARLY_PARALLEL = tl.constexpr(0.995)
_LOG2_E = tl.constexpr(1.4426950408889634)
_LEAST_NORM = tl.constexpr(1e-12)
_LARGEST_NORM = tl.constexpr(1e12)


class Tiling(NamedTuple):
    """How `_scan` is cut."""

    samples: int  # of a tile
    classes: int  # of a tile
    dim: int  # features multiplied at a time
    warps: int
    stages: int  # of loading ahead
    pieces: int = 1  # in which a tile is folded
    group: int = 16  # sample blocks that work side by side on the same classes


@triton.jit
@no_type_check
def _inverse_norms(vectors, inverse, unsafe, count, dim, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / |vector|, 1 for a zero vector (whose products are 0); raises the flag where squares left float32's range."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    squares = tl.zeros((ROWS,), tl.float32)
    largest = tl.zeros((ROWS,), tl.float32)
    for start in range(0, dim, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row < count)[:, None] & (column < dim)[None, :]
        x = tl.load(vectors + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)
        x = x.to(tl.float32)
        squares += tl.sum(x * x, 1)
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
    norm = tl.sqrt(squares)
    tl.store(inverse + row, 1.0 / tl.where(norm == 0.0, 1.0, norm), mask=row < count)
    outside = (largest > 0.0) & ((norm < _LEAST_NORM) | (norm > _LARGEST_NORM) | (norm != norm))
    if tl.max(outside.to(tl.int32), 0) > 0:
        tl.store(unsafe, 1)


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
def _fold(
    product,
    tile,
    label,
    inverse,
    weight_inverse,
    bias,
    classes,
    state,
    CLASSES: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
):
    """The running numbers after one more tile of products; the labelled class is kept apart from the others."""
    top, place, nearest, farthest, mass, below, mass_squares, lack, label_product = state
    column = tile + tl.arange(0, CLASSES)
    scale = tl.load(weight_inverse + column, mask=column < classes, other=1.0)
    farthest = tl.minimum(farthest, tl.min(product * scale[None, :], 1))
    hit = (label >= tile) & (label < tile + CLASSES)
    # The barrier keeps these branches branches: as selects they would cost every tile what few tiles need.
    if tl.max(hit.to(tl.int32), 0) > 0:
        tl.debug_barrier()
        labelled = column[None, :] == label[:, None]
        label_product += tl.sum(tl.where(labelled, product, 0.0), 1)
        product = tl.where(labelled, _LEFT_OUT, product)
    if tile + CLASSES > classes:
        tl.debug_barrier()
        product = tl.where((column < classes)[None, :], product, _LEFT_OUT)
    cosine = product * scale[None, :]
    nearest = tl.maximum(nearest, tl.max(cosine, 1))
    lack += tl.sum(arcsine(cosine * inverse[:, None]), 1)
    if BIAS:
        product += tl.load(bias + column, mask=column < classes, other=0.0).to(tl.float32)[None, :]
    tile_top = tl.max(product, 1)
    higher = tl.maximum(top, tile_top)
    # The first of the largest; a reduction over pairs (value, place) would need twice the registers.
    tile_place = tl.min(tl.where(product == tile_top[:, None], column[None, :], 2147483647), 1)
    place = tl.where(tile_top > top, tile_place, place)
    exponential = tl.exp2(product * _LOG2_E - (higher * _LOG2_E)[:, None])
    fade = tl.exp(top - higher)
    if SPREAD:
        # Sum of e (top - z): moving the top up adds the step to every term there is.
        moved = tl.where(top == float("-inf"), 0.0, below + mass * (higher - top))
        below = moved * fade + tl.sum(tl.where(exponential > 0.0, (higher[:, None] - product) * exponential, 0.0), 1)
        mass_squares = mass_squares * fade * fade + tl.sum(exponential * exponential, 1)
    mass = mass * fade + tl.sum(exponential, 1)
    top = higher
    return top, place, nearest, farthest, mass, below, mass_squares, lack, label_product


@triton.jit
@no_type_check
def _halves(product, SAMPLES: tl.constexpr, CLASSES: tl.constexpr):
    """The left and the right half of a tile; both stay in the registers they are in."""
    return product.reshape(SAMPLES, 2, CLASSES // 2).permute(0, 2, 1).split()


@triton.jit
@no_type_check
def _fold_pieces(
    product,
    tile,
    label,
    inverse,
    weight_inverse,
    bias,
    classes,
    state,
    SAMPLES: tl.constexpr,
    CLASSES: tl.constexpr,
    PIECES: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
):
    """`_fold` over a tile in 1, 2 or 4 pieces: what it makes of a whole one exceeds the registers."""
    WIDTH: tl.constexpr = CLASSES // PIECES  # noqa: N806
    if PIECES == 1:
        state = _fold(product, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
    else:
        left, right = _halves(product, SAMPLES, CLASSES)
        if PIECES == 2:
            state = _fold(left, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
            tile += WIDTH
            state = _fold(right, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
        else:
            first, second = _halves(left, SAMPLES, CLASSES // 2)
            third, fourth = _halves(right, SAMPLES, CLASSES // 2)
            state = _fold(first, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
            tile += WIDTH
            state = _fold(second, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
            tile += WIDTH
            state = _fold(third, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
            tile += WIDTH
            state = _fold(fourth, tile, label, inverse, weight_inverse, bias, classes, state, WIDTH, BIAS, SPREAD)
    return state


@triton.jit
@no_type_check
def _scan(
    features,
    weight,
    labels,
    weight_inverse,
    bias,
    partial,
    samples,
    classes,
    dim,
    feature_stride,
    weight_stride,
    classes_per_split,
    sample_blocks,
    SAMPLES: tl.constexpr,
    CLASSES: tl.constexpr,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    DESCRIBED: tl.constexpr,
    BIAS: tl.constexpr,
    SPREAD: tl.constexpr,
    PRECISION: tl.constexpr,
    PIECES: tl.constexpr,
):
    item = tl.program_id(0)
    splits = tl.num_programs(0) // sample_blocks
    first_block = (item // (GROUP * splits)) * GROUP
    blocks = tl.minimum(sample_blocks - first_block, GROUP)
    within = item % (GROUP * splits)
    first = (first_block + within % blocks) * SAMPLES
    split = within // blocks
    begin = split * classes_per_split
    end = tl.minimum(begin + classes_per_split, classes)

    row = first + tl.arange(0, SAMPLES)
    label = tl.load(labels + row, mask=row < samples, other=-1).to(tl.int32)

    squares = tl.zeros((SAMPLES,), tl.float32)
    largest = tl.zeros((SAMPLES,), tl.float32)
    product = tl.zeros((SAMPLES, CLASSES), tl.float32)
    for start in range(0, dim, DIM):
        x = _load(features, first, start, samples, dim, feature_stride, SAMPLES, DIM, DESCRIBED)
        w = _load(weight, begin, start, classes, dim, weight_stride, CLASSES, DIM, DESCRIBED)
        product = tl.dot(x, w.T, product, input_precision=PRECISION)
        wide = x.to(tl.float32)
        squares += tl.sum(wide * wide, 1)
        largest = tl.maximum(largest, tl.max(tl.abs(wide), 1))
    norm = tl.sqrt(squares)
    inverse = 1.0 / tl.where(norm == 0.0, 1.0, norm)

    top = tl.full((SAMPLES,), float("-inf"), tl.float32)
    place = tl.zeros((SAMPLES,), tl.int32)
    nearest = tl.full((SAMPLES,), float("-inf"), tl.float32)
    farthest = tl.full((SAMPLES,), float("inf"), tl.float32)
    mass = tl.zeros((SAMPLES,), tl.float32)
    below = tl.zeros((SAMPLES,), tl.float32)
    mass_squares = tl.zeros((SAMPLES,), tl.float32)
    lack = tl.zeros((SAMPLES,), tl.float32)
    label_product = tl.zeros((SAMPLES,), tl.float32)
    state = (top, place, nearest, farthest, mass, below, mass_squares, lack, label_product)
    state = _fold_pieces(
        product,
        begin,
        label,
        inverse,
        weight_inverse,
        bias,
        classes,
        state,
        SAMPLES,
        CLASSES,
        PIECES,
        BIAS,
        SPREAD,
    )
    for tile in range(begin + CLASSES, end, CLASSES):
        product = tl.zeros((SAMPLES, CLASSES), tl.float32)
        for start in range(0, dim, DIM):
            x = _load(features, first, start, samples, dim, feature_stride, SAMPLES, DIM, DESCRIBED)
            w = _load(weight, tile, start, classes, dim, weight_stride, CLASSES, DIM, DESCRIBED)
            product = tl.dot(x, w.T, product, input_precision=PRECISION)
        state = _fold_pieces(
            product,
            tile,
            label,
            inverse,
            weight_inverse,
            bias,
            classes,
            state,
            SAMPLES,
            CLASSES,
            PIECES,
            BIAS,
            SPREAD,
        )

    top, place, nearest, farthest, mass, below, mass_squares, lack, label_product = state
    out = partial + split.to(tl.int64) * _FIELDS * samples + row
    inside = row < samples
    tl.store(out, top, mask=inside)
    tl.store(out + samples, mass, mask=inside)
    tl.store(out + 2 * samples, place.to(tl.float32, bitcast=True), mask=inside)
    tl.store(out + 3 * samples, nearest * inverse, mask=inside)
    tl.store(out + 4 * samples, farthest * inverse, mask=inside)
    tl.store(out + 5 * samples, lack, mask=inside)
    tl.store(out + 6 * samples, label_product, mask=inside)
    tl.store(out + 7 * samples, below, mask=inside)
    tl.store(out + 8 * samples, mass_squares, mask=inside)
    # A vector whose squares left float32's range has no norm here: minus one says so.
    lost = (largest > 0.0) & ((norm < _LEAST_NORM) | (norm > _LARGEST_NORM) | (norm != norm))
    tl.store(out + 9 * samples, tl.where(lost, -1.0, norm), mask=inside)


@triton.jit
@no_type_check
def _combine(
    partial,
    labels,
    weight_inverse,
    bias,
    out,
    predicted,
    doubtful,
    unsafe,
    samples,
    classes,
    left_out,
    splits,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < samples
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    place = tl.zeros((ROWS,), tl.int32)
    nearest = tl.full((ROWS,), float("-inf"), tl.float32)
    farthest = tl.full((ROWS,), float("inf"), tl.float32)
    mass = tl.zeros((ROWS,), tl.float32)
    below = tl.zeros((ROWS,), tl.float32)
    mass_squares = tl.zeros((ROWS,), tl.float32)
    lack = tl.zeros((ROWS,), tl.float32)
    label_product = tl.zeros((ROWS,), tl.float32)
    norm = tl.zeros((ROWS,), tl.float32)
    source = partial + row
    for _ in range(0, splits):
        split_top = tl.load(source, mask=inside, other=0.0)
        split_mass = tl.load(source + samples, mask=inside, other=1.0)
        split_below = tl.load(source + 7 * samples, mask=inside, other=0.0)
        split_place = tl.load(source + 2 * samples, mask=inside, other=0.0).to(tl.int32, bitcast=True)
        higher = tl.maximum(top, split_top)
        fade = tl.exp(top - higher)
        split_fade = tl.exp(split_top - higher)
        moved = tl.where(top == float("-inf"), 0.0, below + mass * (higher - top))
        below = moved * fade + (split_below + split_mass * (higher - split_top)) * split_fade
        mass = mass * fade + split_mass * split_fade
        split_squares = tl.load(source + 8 * samples, mask=inside, other=0.0)
        mass_squares = mass_squares * fade * fade + split_squares * split_fade * split_fade
        place = tl.where(split_top > top, split_place, place)
        top = higher
        nearest = tl.maximum(nearest, tl.load(source + 3 * samples, mask=inside, other=0.0))
        farthest = tl.minimum(farthest, tl.load(source + 4 * samples, mask=inside, other=0.0))
        lack += tl.load(source + 5 * samples, mask=inside, other=0.0)
        label_product += tl.load(source + 6 * samples, mask=inside, other=0.0)
        norm = tl.load(source + 9 * samples, mask=inside, other=1.0)
        source += _FIELDS * samples

    label = tl.load(labels + row, mask=inside, other=0)
    inverse = 1.0 / tl.where(norm == 0.0, 1.0, norm)
    label_cosine = label_product * inverse * tl.load(weight_inverse + label, mask=inside, other=0.0)
    label_angle = arccos(label_cosine)
    # Each class left out was counted as opposite: its arcsine is -pi/2.
    angle_sum = (classes - 1) * HALF_PI - (lack + left_out * HALF_PI)
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
    tl.store(out + row, norm, mask=inside)
    tl.store(out + samples + row, label_angle, mask=inside)
    tl.store(out + 2 * samples + row, angle_sum + label_angle, mask=inside)
    tl.store(out + 3 * samples + row, arccos(nearest), mask=inside)
    tl.store(out + 4 * samples + row, label_logit, mask=inside)
    tl.store(out + 5 * samples + row, top, mask=inside)
    tl.store(out + 6 * samples + row, total_top + log_total, mask=inside)
    tl.store(out + 7 * samples + row, others / total, mask=inside)
    tl.store(out + 8 * samples + row, mass_squares * tl.exp(2.0 * (top - total_top)) / (total * total), mask=inside)
    spread_others = below * tl.exp(top - total_top) + others * (total_top - top)
    entropy = (spread_others + own * (total_top - label_logit)) / total + log_total
    tl.store(out + 9 * samples + row, entropy, mask=inside)

    label_in_doubt = tl.abs(label_cosine) > _NEARLY_PARALLEL
    others_in_doubt = (nearest > _NEARLY_PARALLEL) | (farthest < -_NEARLY_PARALLEL)
    tl.store(doubtful + row, label_in_doubt.to(tl.int32) + 2 * others_in_doubt.to(tl.int32), mask=inside)
    if tl.max((norm < 0.0).to(tl.int32), 0) > 0:
        tl.store(unsafe, 1)


@triton.jit
@no_type_check
def _remeasure(
    features,
    weight,
    labels,
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
    for step in range(0, ROWS):
        row = (tl.program_id(0) * ROWS + step).to(tl.int64)
        doubt = 0
        if row < samples:
            doubt = tl.load(doubtful + row)
        if doubt > 0:
            label = tl.load(labels + row)
            norm = tl.load(out + row)
            inverse = 1.0 / tl.where(norm == 0.0, 1.0, norm)
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


def scores(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    spread: bool,
    precision: str,
    tiling: Tiling | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[10, samples] numbers in the order of `AngularScores`, the predictions, and a flag: norms out of range."""
    samples, dim = features.shape
    classes = len(weight)
    device, described = features.device, _can_be_described(features) and _can_be_described(weight)
    tiling = tiling or choose_tiling(features.dtype, samples, classes, dim)
    sample_blocks = triton.cdiv(samples, tiling.samples)
    tiles = triton.cdiv(classes, tiling.classes)
    splits, per_split = split_classes(sample_blocks, tiles, device)
    out = torch.empty(10, samples, dtype=torch.float32, device=device)
    partial = torch.empty(splits, 10, samples, dtype=torch.float32, device=device)
    weight_inverse = torch.empty(classes, dtype=torch.float32, device=device)
    predicted = torch.empty(samples, dtype=torch.int64, device=device)
    doubtful = torch.empty(samples, dtype=torch.int32, device=device)
    unsafe = torch.zeros((), dtype=torch.int32, device=device)
    left, right = features, weight
    if described:
        left = TensorDescriptor.from_tensor(features, [tiling.samples, tiling.dim])
        right = TensorDescriptor.from_tensor(weight, [tiling.classes, tiling.dim])
    with torch.cuda.device(device if device.type == "cuda" else -1):
        _inverse_norms[(triton.cdiv(classes, 8),)](
            weight, weight_inverse, unsafe, classes, dim, weight.stride(0), ROWS=8, BLOCK=256
        )
        _scan[(sample_blocks * splits,)](
            left,
            right,
            labels,
            weight_inverse,
            bias,
            partial,
            samples,
            classes,
            dim,
            features.stride(0),
            weight.stride(0),
            per_split * tiling.classes,
            sample_blocks,
            SAMPLES=tiling.samples,
            CLASSES=tiling.classes,
            DIM=tiling.dim,
            GROUP=tiling.group,
            DESCRIBED=described,
            BIAS=bias is not None,
            SPREAD=spread,
            PRECISION=precision,
            PIECES=tiling.pieces,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
        left_out = 1 + tiles * tiling.classes - classes
        _combine[(triton.cdiv(samples, 128),)](
            partial,
            labels,
            weight_inverse,
            bias,
            out,
            predicted,
            doubtful,
            unsafe,
            samples,
            classes,
            left_out,
            splits,
            BIAS=bias is not None,
            ROWS=128,
        )
        _remeasure[(triton.cdiv(samples, 16),)](
            features,
            weight,
            labels,
            weight_inverse,
            out,
            doubtful,
            samples,
            classes,
            dim,
            features.stride(0),
            weight.stride(0),
            ROWS=16,
            CLASSES=16,
            DIM=256,
        )
    return out, predicted, unsafe


def choose_tiling(dtype: torch.dtype, samples: int, classes: int, dim: int) -> Tiling:
    """The cut that was fastest on an H200; a small one for few samples or classes, and for float32."""
    # No wider than the classes: every column beyond them is counted and taken back again.
    width = max(16, triton.next_power_of_2(classes))
    if dtype == torch.float32:
        return Tiling(64, min(64, width), 32, 4, 3)
    if samples < 1024 or classes < 256:
        return Tiling(64, min(64, width), 64, 4, 3)
    return Tiling(128, 256, 64, 8, 4, pieces=4)


def split_classes(sample_blocks: int, tiles: int, device: torch.device) -> tuple[int, int]:
    """How many splits of the classes, and tiles in each: enough programs for the device, the last wave full."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
    best, waste = (1, tiles), 2.0
    for splits in range(1, min(tiles, 64) + 1):
        each = -(-tiles // splits)
        splits = -(-tiles // each)
        waves = -(-sample_blocks * splits // processors)
        # Work of the fullest processor over the mean, and the first tile's extra work for the norms.
        cost = waves * (each + 0.15) * processors / (sample_blocks * tiles)
        if cost < waste * 0.99:
            best, waste = (splits, each), cost
    return best


def _can_be_described(tensor: Tensor) -> bool:
    """Whether the copy engine can address it: aligned to 16 bytes, rows too."""
    size = tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and tensor.stride(1) == 1 and tensor.stride(0) * size % 16 == 0
