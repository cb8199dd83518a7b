"""Noise of samples: some are mistaken more easily than others, some show no class of the set, or nothing at all."""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor

from hardsight.names import check_name
from hardsight.noise.classes import (
    Labels,
    NoisyLabels,
    check_generator,
    check_labels,
    check_rows,
    choose,
    draw_from_rows,
    replaced,
)
from hardsight.validation import check_share, check_tensor

# One block of samples at a time: the scores of a block are at most this many numbers.
_BLOCK = 2**22
# Features beyond this are scaled down to it: times normal numbers, and summed, they stay within float32.
_LARGE = 1e30


def flip_by_projection(
    labels: Labels,
    features: Float[Tensor, "samples *dims"],
    rate: float,
    num_classes: int,
    *,
    generator: torch.Generator,
    spread: float = 0.1,
) -> NoisyLabels:
    """Flip sample x of class y with its own probability q, to class j with probability softmax(x W_y)_j, j not y.

    The instance-dependent noise of Xia et al. (2020): q is normal around `rate` with standard deviation `spread`,
    cut to [0, 1]; each W_y is standard normal, and features are the flattened images. Cutting moves the mean of q:
    at rate 0.1 it is 0.129. Rates 0 and 1, and `spread` 0, are kept as they are.
    """
    check_labels(labels, num_classes, generator, rate)
    if not spread >= 0:
        raise ValueError(f"spread must be at least 0, the standard deviation of the flip rates; got {spread!r}")
    check_rows("features", features, labels)
    flat = features.to(labels.device).reshape(len(labels), math.prod(features.shape[1:]))
    if not bool(flat.isfinite().all()):
        raise ValueError("features must be finite; got NaN or infinity")
    if bool((flat.abs() > _LARGE).any()):
        # A softmax of such numbers is one class, whatever their size; their products would leave float32's range.
        largest = flat.abs().amax(1, keepdim=True)
        flat = torch.where(largest > _LARGE, flat / largest * _LARGE, flat)
    uniform = torch.rand(2, len(labels), generator=generator, device=labels.device, dtype=torch.float64)
    chosen = torch.rand(labels.shape, generator=generator, device=labels.device, dtype=torch.float64)
    chosen = chosen < _truncated_normal(uniform[0], rate, spread)
    noisy = labels.long().clone()
    for label in range(num_classes):
        # One class at a time: all the W_y together would be classes x dims x classes numbers.
        weight = torch.randn(flat.shape[1], num_classes, generator=generator, device=labels.device)
        members = (chosen & (labels == label)).nonzero().squeeze(1)
        for block in members.split(max(1, _BLOCK // max(num_classes, flat.shape[1]))):
            scores = (flat[block].float() @ weight).double()
            scores[:, label] = -torch.inf
            rows = torch.arange(len(block), device=labels.device)
            noisy[block] = draw_from_rows(scores.softmax(1), rows, uniform[1, block])
    return replaced(labels, noisy, chosen)


def flip_by_margin(
    labels: Labels,
    probabilities: Float[Tensor, "samples classes"],
    rate: float,
    *,
    generator: torch.Generator,
    kind: Literal["quadratic", "cubic", "mixed"] = "quadratic",
) -> NoisyLabels:
    """Flip each label to the likeliest other class, the more often the smaller its margin m over that class.

    The polynomial-margin-diminishing noise of Zhang et al. (2021), with `probabilities` of a trained model: types I
    to III flip with probability (1 - m^2) / 2, 1 - m^3 and 1 - (m^3 + m^2 + m) / 3, here times the one factor,
    never beyond 1, that makes the expected share of changed labels equal `rate`. A label that is not the likeliest
    class has margin 0.
    """
    check_tensor("probabilities", probabilities)
    num_classes = probabilities.shape[1]
    check_labels(labels, num_classes, generator, rate)
    check_rows("probabilities", probabilities, labels)
    margin, target = _margins(probabilities, labels)
    polynomials = {
        "quadratic": (1 - margin**2) / 2,
        "cubic": 1 - margin**3,
        "mixed": 1 - (margin**3 + margin**2 + margin) / 3,
    }
    check_name("kind", kind, polynomials)
    draws = torch.rand(labels.shape, generator=generator, device=labels.device, dtype=torch.float64)
    return replaced(labels, target, draws < _scaled_to_mean(polynomials[kind], rate))


def _margins(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """How far each label's probability is above that of the likeliest other class, at least 0, and that class."""
    margin = torch.empty(labels.shape, dtype=torch.float64, device=labels.device)
    target = torch.empty_like(margin, dtype=torch.int64)
    rows = max(1, _BLOCK // probabilities.shape[1])
    for start in range(0, len(labels), rows):
        block = slice(start, start + rows)
        table = probabilities[block].to(labels.device).double()
        if not bool(((table >= 0) & (table <= 1)).all()):
            raise ValueError("probabilities must lie in [0, 1]; got a value outside or NaN")
        index = labels[block].long().unsqueeze(1)
        rival, target[block] = table.scatter(1, index, -1.0).max(1)
        margin[block] = (table.gather(1, index).squeeze(1) - rival).clamp_min(0)
    return margin, target


def _scaled_to_mean(chances: Tensor, mean: float) -> Tensor:
    """min(1, factor * chances) with that mean; where even certainty for all that can flip is too little, that."""
    if not chances.numel() or mean == 0:
        return torch.zeros_like(chances)
    ordered = chances.sort(descending=True).values
    below = ordered.flip(0).cumsum(0).flip(0)
    # With the k largest at certainty, the rest must share what is left: the first k for which they stay below 1.
    certain = torch.arange(len(ordered), device=chances.device, dtype=torch.float64)
    factors = (mean * len(ordered) - certain) / below.clamp_min(torch.finfo(torch.float64).tiny)
    fits = (factors * ordered <= 1) & (factors >= 0) & (below > 0)
    factor = factors[fits.int().argmax()] if bool(fits.any()) else torch.tensor(torch.inf, dtype=torch.float64)
    return torch.where(chances > 0, (chances * factor).clamp(max=1.0), 0.0)


def _truncated_normal(uniform: Tensor, mean: float, spread: float) -> Tensor:
    """Normal numbers cut to [0, 1], by inverting their distribution at the uniform numbers."""
    if spread == 0 or mean in (0, 1):
        return torch.full_like(uniform, mean)
    low, high = (torch.special.ndtr(torch.tensor((edge - mean) / spread, dtype=torch.float64)) for edge in (0, 1))
    normal: Tensor = torch.special.ndtri(low + uniform * (high - low))
    return (mean + spread * normal).clamp(0, 1)


Images = Shaped[Tensor, "samples channels height width"]


class OpenSetImages(NamedTuple):
    """Images after replacement, the labels as they were, which images are foreign, and which outlier each one is.

    `source` is the index of the outlier in an image's place, -1 where the image is its own.
    """

    images: Images
    labels: Labels
    changed: Bool[Tensor, "samples"]
    source: Integer[Tensor, "samples"]


def replace_images(
    images: Images,
    labels: Integer[Tensor, "labels"],
    outliers: Shaped[Tensor, "outliers _ _ _"],
    rate: float,
    *,
    generator: torch.Generator,
    exact: bool = False,
) -> OpenSetImages:
    """Put an outlier in the place of each image with probability `rate`; the label stays (Wang et al., 2018).

    Outliers are images of classes that the set does not have, or of `background_images`. None is used twice before
    all have been used once.
    """
    check_share("rate", rate, "the share of images to replace")
    for name, values in (("images", images), ("labels", labels), ("outliers", outliers)):
        check_tensor(name, values)
    check_generator(generator, images.device)
    check_rows("images", images, labels)
    if outliers.shape[1:] != images.shape[1:] or outliers.dtype != images.dtype:
        raise ValueError(
            f"outliers must have the images' shape and type, {tuple(images.shape[1:])} {images.dtype}; "
            f"got {tuple(outliers.shape[1:])} {outliers.dtype}"
        )
    chosen = choose(torch.ones(len(images), dtype=torch.bool, device=images.device), rate, exact, generator)
    places = chosen.nonzero().squeeze(1)
    if len(places) and not len(outliers):
        raise ValueError("outliers must hold at least one image; got none")
    source = torch.full((len(images),), -1, device=images.device)
    rounds = -(-len(places) // max(1, len(outliers)))
    for turn in range(rounds):
        block = places[turn * len(outliers) : (turn + 1) * len(outliers)]
        source[block] = torch.randperm(len(outliers), generator=generator, device=images.device)[: len(block)]
    replaced = images.clone()
    replaced[places] = outliers.to(images.device)[source[places]]
    return OpenSetImages(replaced, labels.clone(), chosen, source)


def background_images(
    images: Images, number: int, *, generator: torch.Generator, share: float = 0.25
) -> Shaped[Tensor, "number channels height width"]:
    """Images of background only: a corner of a random image, `share` of its sides, stretched to full size.

    Objects are in the middle of the public sets' pictures; a corner keeps their colours and loses the object.
    """
    check_tensor("images", images)
    check_generator(generator, images.device)
    if not 0 < share <= 0.5:
        raise ValueError(f"share must lie in (0, 0.5], the side of a corner over the image's; got {share!r}")
    if not len(images):
        raise ValueError("images must hold at least one image; got none")
    height, width = images.shape[2:]
    tall, wide = max(1, round(height * share)), max(1, round(width * share))
    sources = torch.randint(len(images), (number,), generator=generator, device=images.device)
    low = torch.randint(2, (number, 1), generator=generator, device=images.device)
    right = torch.randint(2, (number, 1), generator=generator, device=images.device)
    rows = low * (height - tall) + torch.arange(tall, device=images.device)
    columns = right * (width - wide) + torch.arange(wide, device=images.device)
    channels = torch.arange(images.shape[1], device=images.device)
    corners = images[
        sources[:, None, None, None], channels[:, None, None], rows[:, None, :, None], columns[:, None, None, :]
    ]
    numbers = corners if corners.is_floating_point() else corners.float()
    stretched = F.interpolate(numbers, size=(height, width), mode="bilinear", align_corners=False)
    return stretched if images.is_floating_point() else stretched.round().to(images.dtype)
