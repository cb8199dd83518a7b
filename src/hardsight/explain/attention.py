"""Maps as numbers: how much is where it should be, and what the model predicts as places vanish or come back.

Maps are [N, height, width], zero or more; masks are of the same shape, bool or a share in [0, 1] of each place. A map
that is the same everywhere says nothing about places: it gets what chance gives, the mask's share of the picture. For a
curve, places are taken in the order of the map, largest first, ties in reading order (Petsiuk et al. 2018, RISE).
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.explain.activation_maps import as_classes, check_images, check_size, resize, taking
from hardsight.geometry import widen
from hardsight.heads import evaluating, observe
from hardsight.names import check_name
from hardsight.validation import check_count, check_tensor


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
        from scipy.ndimage import distance_transform_edt

        near = [
            mask.any() & (distance_transform_edt(~mask) <= tolerance * (1 + 1e-12)) for mask in inside.cpu().numpy()
        ]
        inside = torch.from_numpy(np.stack(near)).to(masks.device)
    largest = maps == maps.amax((1, 2), keepdim=True)
    return (largest & inside).sum((1, 2)) / largest.sum((1, 2))


def box_masks(boxes: Tensor, size: tuple[int, int]) -> Float[Tensor, "batch height width"]:
    """Masks of boxes [N, 4], each (left, top, right, bottom) in pixels: the share of every pixel that the box covers.

    The picture spans [0, width] x [0, height]; what is outside is cut off. To use boxes of the input with maps of
    another size, scale them by the ratio of the sizes first.
    """
    check_tensor("boxes", boxes)
    check_size(size)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes must be [samples, 4], left, top, right, bottom; got {list(boxes.shape)}")
    left, top, right, bottom = boxes.to(torch.promote_types(boxes.dtype, torch.float32)).unsqueeze(2).unbind(1)
    wrong = ~((left <= right) & (top <= bottom)).squeeze(1)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(f"boxes must have left <= right and top <= bottom; boxes[{first}] is {boxes[first].tolist()}")
    # How much of each pixel's interval [i, i + 1] lies between the edges, down and across.
    rows, columns = (torch.arange(length, device=left.device, dtype=left.dtype) for length in size)
    down = (torch.minimum(bottom, rows + 1) - torch.maximum(top, rows)).clamp_min(0)
    across = (torch.minimum(right, columns + 1) - torch.maximum(left, columns)).clamp_min(0)
    return down.unsqueeze(2) * across.unsqueeze(1)


def _checked(maps: Tensor, masks: Tensor) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    check_tensor("maps", maps)
    check_tensor("masks", masks)
    if maps.ndim != 3 or masks.shape != maps.shape or not maps.is_floating_point():
        raise ValueError(
            "maps and masks must both be [samples, height, width], maps of floating point (size= enlarges them); "
            f"got {list(maps.shape)} of {maps.dtype} and {list(masks.shape)}"
        )
    maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
    masks = masks.to(maps)
    for name, values, limit in (("maps", maps, float("inf")), ("masks", masks, 1.0)):
        # NaN fails the comparison too.
        if not bool(((values >= 0) & (values <= limit) & values.isfinite()).all()):
            raise ValueError(
                f"{name} must be finite and in [0, {limit:g}]; "
                f"got values from {float(values.min()):g} to {float(values.max()):g}"
            )
    return maps, masks


BASELINES = ("zero", "mean", "blur")
# RISE's blur: a Gaussian of standard deviation 5 cut off at 5 pixels, for pictures of 224 x 224.
_BLUR_SIGMA, _BLUR_REACH = 5.0, 5


class Curve(NamedTuple):
    """The class's probability of each image as its places are taken: `probabilities[:, i]` at `shares[i]`."""

    shares: Float[Tensor, "steps"]
    probabilities: Float[Tensor, "batch steps"]

    @property
    def area(self) -> Float[Tensor, "batch"]:
        """Area under each image's curve by the trapezoidal rule, in [0, 1]."""
        return torch.trapezoid(self.probabilities, self.shares, dim=1)


def deletion_curve(
    model: nn.Module,
    images: Tensor,
    maps: Tensor,
    *,
    classes: Tensor | int | None = None,
    steps: int = 50,
    baseline: str | Tensor = "zero",
    batch_size: int = 256,
    head: str | None = None,
) -> Curve:
    """Probability of the class while the map's largest places give way to the baseline. A smaller area is better.

    `maps` are [N, height, width], enlarged bilinearly to the images' size where they are smaller. `classes` as in
    `grad_cam`: without them, what the model predicts on the whole image. `steps` shares of the picture are taken, one
    after the other. `baseline`: "zero" (of the model's input: the mean colour, where inputs are standardised), "mean"
    (each image's channel means), "blur" (a Gaussian of 5 pixels), or a tensor that fits the images. The model sees
    `batch_size` pictures at a time, in evaluation mode.
    """
    return _curve(False, model, images, maps, classes, steps, baseline, batch_size, head)


def insertion_curve(
    model: nn.Module, images: Tensor, maps: Tensor, *, baseline: str | Tensor = "blur", **options: Any
) -> Curve:
    """Probability of the class while the map's largest places come back onto the baseline. A larger area is better.

    The arguments are those of `deletion_curve`.
    """
    return _curve(True, model, images, maps, baseline=baseline, **options)


@torch.no_grad()
def _curve(
    keep_important: bool,
    model: nn.Module,
    images: Tensor,
    maps: Tensor,
    classes: Tensor | int | None = None,
    steps: int = 50,
    baseline: str | Tensor = "zero",
    batch_size: int = 256,
    head: str | None = None,
) -> Curve:
    check_images(images)
    check_tensor("maps", maps)
    if maps.ndim != 3 or len(maps) != len(images) or maps.numel() == 0:
        raise ValueError(
            f"maps must be [{len(images)}, height, width], one for each image and at least one; got {list(maps.shape)}"
        )
    size = images.shape[-2:]
    if not 1 <= steps <= size.numel():
        raise ValueError(f"steps must lie in [1, {size.numel()}], one pixel at least in each; got {steps}")
    check_count("batch_size", batch_size, "pictures at a time")
    maps = widen(maps).to(images.device)
    if not bool(maps.isfinite().all()):
        raise ValueError("maps must be finite to be put in order; some values are NaN or infinite")
    maps = maps if maps.shape[-2:] == size else resize(maps, size)
    ground = _ground(images, baseline)
    # 0 for the largest place of each map, 1 for the next; ties in reading order.
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(order.shape[1], device=maps.device)
    ranks = torch.empty_like(order).scatter_(1, order, places.expand_as(order)).view_as(maps)
    taken = torch.linspace(0, len(places), steps + 1, dtype=torch.float64).round().long().to(images.device)
    with evaluating(model), observe(model, head) as seen:

        def logits(pictures: Tensor) -> Tensor:
            with taking(pictures):
                model(pictures)
            return widen(seen.logits)

        whole = torch.cat([logits(part) for part in images.split(batch_size)])
        chosen, found = as_classes(classes, whole), []
        # Every image at every step, `batch_size` at a time.
        for part in torch.arange(len(ranks) * len(taken), device=ranks.device).split(batch_size):
            rows = part // len(taken)
            important = (ranks[rows] < taken[part % len(taken), None, None]).unsqueeze(1)
            seen_now = logits(torch.where(important == keep_important, images[rows], ground[rows]))
            found.append(seen_now.softmax(1).gather(1, chosen[rows, None]))
    probabilities = torch.cat(found)
    shares = (taken / len(places)).to(probabilities.dtype)
    return Curve(shares, probabilities.reshape(len(images), len(taken)))


def _ground(images: Tensor, baseline: str | Tensor) -> Tensor:
    """The pictures without information."""
    if isinstance(baseline, Tensor):
        try:
            return baseline.to(images).expand_as(images)
        except RuntimeError:
            raise ValueError(
                f"baseline must fit the images {list(images.shape)}; got shape {list(baseline.shape)}"
            ) from None
    check_name("baseline", baseline, BASELINES)
    if baseline == "zero":
        return torch.zeros_like(images)
    # Bytes have neither means nor blurs of their own: those of their values, rounded.
    values = images if images.is_floating_point() else images.float()
    if baseline == "mean":
        ground = values.mean((2, 3), keepdim=True).expand_as(values)
    else:
        offsets = torch.arange(-_BLUR_REACH, _BLUR_REACH + 1, device=values.device, dtype=values.dtype)
        bell = (-(offsets**2) / (2 * _BLUR_SIGMA**2)).exp()
        kernel = torch.outer(bell, bell)[None, None] / bell.sum().square()
        # Weights that fall outside the picture are left out, and the others made up to 1: no dark rim.
        planes = values.flatten(0, 1).unsqueeze(1)
        sums, weights = (F.conv2d(one, kernel, padding=_BLUR_REACH) for one in (planes, torch.ones_like(planes[:1])))
        ground = (sums / weights).view_as(values)
    return ground if images.is_floating_point() else ground.round().to(images.dtype)
