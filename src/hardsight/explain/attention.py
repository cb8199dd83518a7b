"""How much of a map lies where it should: numbers for "looks at the object, not at the background".

Maps are [N, height, width], zero or more; masks are of the same shape, bool or a share in [0, 1] of each place. A map
that is zero everywhere, or the same everywhere, says nothing about places: it gets what chance gives, the mask's
share of the picture.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.explain.inputs import check_size, check_tensor

# A column farther away than any picture is wide; its square still fits 64 bits.
_NOWHERE = 2**30


def energy_inside(maps: Tensor, masks: Tensor) -> Float[Tensor, "batch"]:
    """Share of each map's sum that lies inside its mask. In [0, 1]; larger is better (Wang et al. 2020, Score-CAM)."""
    maps, masks = _checked(maps, masks)
    # Divided by the largest value first, so that no sum overflows.
    peak = maps.amax((1, 2), keepdim=True)
    energy = torch.where(peak == 0, 1.0, maps / torch.where(peak == 0, 1.0, peak))
    return (energy * masks).sum((1, 2)) / energy.sum((1, 2))


def pointing_game(maps: Tensor, masks: Tensor, *, tolerance: float = 0.0) -> Float[Tensor, "batch"]:
    """1 where the map's largest value lies in the mask or within `tolerance` pixels of it, else 0; larger is better.

    Its mean over images is the pointing game's accuracy (Zhang et al. 2016, who allow 15 pixels). Of several largest
    places, the share inside counts: the chance that one drawn at random is a hit. A place belongs to a mask that
    covers half of it or more.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more, a distance in pixels; got {tolerance!r}")
    maps, masks = _checked(maps, masks)
    inside = masks >= 0.5
    if tolerance > 0:
        inside = _squared_distance(inside) <= _squared(tolerance, maps.shape[1:])
    largest = maps == maps.amax((1, 2), keepdim=True)
    return (largest & inside).sum((1, 2)) / largest.sum((1, 2))


def box_masks(boxes: Tensor, size: tuple[int, int]) -> Float[Tensor, "batch height width"]:
    """Masks of boxes [N, 4], each (left, top, right, bottom) in pixels: the share of every pixel that the box covers.

    The picture spans [0, width] x [0, height]; what lies outside is cut off. To use boxes of the input with maps of
    another size, scale them by the ratio of the sizes first.
    """
    if not isinstance(boxes, Tensor) or boxes.ndim != 2 or boxes.shape[1] != 4:
        got = f"shape {list(boxes.shape)}" if isinstance(boxes, Tensor) else type(boxes).__name__
        raise ValueError(f"boxes must be a tensor [samples, 4], left, top, right, bottom; got {got}")
    check_size(size)
    left, top, right, bottom = boxes.to(torch.promote_types(boxes.dtype, torch.float32)).unsqueeze(2).unbind(1)
    wrong = ~((left <= right) & (top <= bottom)).squeeze(1)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(f"boxes must have left <= right and top <= bottom; boxes[{first}] is {boxes[first].tolist()}")
    rows, columns = (_covered(*edges, length) for edges, length in (((top, bottom), size[0]), ((left, right), size[1])))
    return rows.unsqueeze(2) * columns.unsqueeze(1)


def _covered(start: Tensor, end: Tensor, length: int) -> Float[Tensor, "batch length"]:
    """How much of each unit interval [i, i + 1] lies between start and end."""
    left = torch.arange(length, device=start.device, dtype=start.dtype)
    return (torch.minimum(end, left + 1) - torch.maximum(start, left)).clamp_min(0)


def _squared_distance(inside: Tensor) -> Int[Tensor, "batch height width"]:
    """From each place to the nearest one inside, in square pixels; beyond every picture where there is none.

    The nearest of its row first, then of all rows: height steps whatever the distance. In whole numbers, because a
    root is rounded differently by different processors.
    """
    rows, columns = (torch.arange(side, device=inside.device) for side in inside.shape[1:])
    before = torch.where(inside, columns, -_NOWHERE).cummax(2).values
    behind = torch.where(inside, columns, _NOWHERE).flip(2).cummin(2).values.flip(2)
    across = torch.minimum(columns - before, behind - columns).square()
    nearest = [(across + (rows - row).square().unsqueeze(1)).amin(1) for row in rows.unbind()]
    return torch.stack(nearest, 1)


def _squared(tolerance: float, size: Sequence[int]) -> int:
    """The largest squared distance within the tolerance: no two places of a picture are farther apart than its corners.

    Squares of distances are whole numbers: a tolerance just below one, as a root's square is, means it.
    """
    farthest = sum(side * side for side in size)
    return farthest if tolerance * tolerance >= farthest else math.floor(tolerance * tolerance * (1 + 1e-12))


def _checked(maps: Tensor, masks: Tensor) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    check_tensor("maps", maps)
    check_tensor("masks", masks)
    if maps.ndim != 3 or maps[:1].numel() == 0 or not maps.is_floating_point():
        raise ValueError(
            f"maps must be [samples, height, width] of floating point; got {list(maps.shape)} of {maps.dtype}"
        )
    if masks.shape != maps.shape:
        raise ValueError(
            f"masks must have the maps' shape {list(maps.shape)}: enlarge the maps with size=, or shrink the masks; "
            f"got {list(masks.shape)}"
        )
    maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
    masks = masks.to(maps)
    for name, values, limit in (("maps", maps, float("inf")), ("masks", masks, 1.0)):
        # NaN fails the comparison too.
        if not bool(((values >= 0) & (values <= limit) & values.isfinite()).all()):
            must = "finite and 0 or more" if limit > 1 else "in [0, 1], or bool"
            raise ValueError(
                f"{name} must be {must}; got values from {float(values.min()):g} to {float(values.max()):g}"
            )
    return maps, masks
