"""Open-set noise: images of no class of the set, or of nothing at all, under labels that stay."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Integer, Shaped
from torch import Tensor

from hardsight.noise.classes import check_generator, check_rows, choose
from hardsight.validation import check_share, check_tensor


class OpenSetImages(NamedTuple):
    """Images after replacement, the labels as they were, which images are foreign, and which outlier each one is.

    `source` is the index of the outlier in an image's place, -1 where the image is its own.
    """

    images: Shaped[Tensor, "samples channels height width"]
    labels: Integer[Tensor, "samples"]
    changed: Bool[Tensor, "samples"]
    source: Integer[Tensor, "samples"]


def replace_images(
    images: Shaped[Tensor, "samples channels height width"],
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
    images: Shaped[Tensor, "samples channels height width"],
    number: int,
    *,
    generator: torch.Generator,
    share: float = 0.25,
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
