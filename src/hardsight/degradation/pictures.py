"""The degradations of pixels and places: contrast, uniform noise, brightness, blur, occlusion."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from hardsight.validation import check_share

Images = Shaped[Tensor, "samples channels height width"]
Level = int | float | Float[Tensor, "levels"]


def contrast(images: Images, level: Level) -> Images:
    """level * pixel + (1 - level) / 2: all pixels drawn towards mid-grey (Geirhos et al., 2018).

    Level in [0, 1]: 1 changes nothing, 0 leaves one grey; the standard deviation is multiplied by the level.
    """
    pixels, amount = opened(images, level, "contrast", 0.0, 1.0)
    return closed(amount * pixels + (1 - amount) / 2, images)


def uniform_noise(images: Images, level: Level, *, generator: torch.Generator, grey: bool = False) -> Images:
    """Add noise drawn uniformly from [-level, level] to each pixel and cut to [0, 1] (Geirhos et al., 2018).

    Level at least 0: 0 changes nothing, and before cutting the noise has standard deviation level / sqrt(3). With
    `grey` a pixel's channels share one draw, as in Geirhos et al., whose images are grey.
    """
    pixels, amount = opened(images, level, "uniform_noise", 0.0, math.inf)
    samples, channels, height, width = pixels.shape
    shape = (samples, 1 if grey else channels, height, width)
    noise = torch.rand(shape, generator=generator, device=pixels.device, dtype=pixels.dtype)
    return closed(pixels + amount * (2 * noise - 1), images)


def brightness(images: Images, level: Level) -> Images:
    """level * pixel, cut to [0, 1]: less light below 1, more above; 1 changes nothing, 0 is black."""
    pixels, amount = opened(images, level, "brightness", 0.0, math.inf)
    return closed(amount * pixels, images)


def gaussian_blur(images: Images, level: Level) -> Images:
    """Convolve with a Gaussian of standard deviation `level` in pixels, cut at four of them, mirrored at the border.

    Level at least 0: 0 changes nothing. The mirror repeats the border pixel, so a flat image stays flat and the mean
    is kept.
    """
    pixels, amount = opened(images, level, "gaussian_blur", 0.0, math.inf)
    sigma = amount.flatten()
    # On each axis the blur is a matrix, one a sample: any sigma, also wider than the image, and no padded copy.
    down = _blur_matrices(sigma, pixels.shape[2]).unsqueeze(1)
    across = _blur_matrices(sigma, pixels.shape[3]).unsqueeze(1)
    return closed(down @ pixels @ across.transpose(-1, -2), images)


def occlusion(images: Images, level: Level, *, generator: torch.Generator, fill: float = 0.5) -> Images:
    """Cover a rectangle of the image's proportions, at a place drawn uniformly, with one grey value.

    Level in [0, 1], the covered share of the area up to whole pixels: 0 changes nothing, 1 covers all.
    """
    check_share("fill", fill, "from black to white")
    pixels, amount = opened(images, level, "occlusion", 0.0, 1.0)
    samples, _, height, width = pixels.shape
    side = amount.reshape(-1, 1).expand(samples, 1).sqrt()
    places = torch.rand(2, samples, 1, generator=generator, device=pixels.device, dtype=pixels.dtype)
    covered = []
    for place, size in zip(places, (height, width), strict=True):
        # A stretch of round(side * size) that starts at a share `place` of what is free.
        length = (side * size).round()
        start = (place * (size - length + 1)).floor()
        positions = torch.arange(size, device=side.device)
        covered.append((positions >= start) & (positions < start + length))
    mask = covered[0][:, None, :, None] & covered[1][:, None, None, :]
    return closed(torch.where(mask, fill, pixels), images)


def opened(images: Tensor, level: Level, name: str, lowest: float, highest: float) -> tuple[Tensor, Tensor]:
    """Pixels as floats in [0, 1], and the level as [1 or N, 1, 1, 1] beside them; anything else is an error."""
    if images.ndim != 4:
        raise ValueError(f"images must be a batch [N, C, H, W]; got shape {list(images.shape)}")
    if images.dtype == torch.uint8:
        pixels = images.float() / 255
    elif images.is_floating_point():
        pixels = images.to(torch.promote_types(images.dtype, torch.float32))
        # Resizing may run a little over; bytes as floats and normalised images are far out, and would be cut quietly.
        if not bool(((pixels > -0.5) & (pixels < 1.5)).all()):
            low, high = float(pixels.min()), float(pixels.max())
            raise ValueError(f"images must be uint8 or floats in [0, 1]; got values from {low:g} to {high:g}")
    else:
        raise TypeError(f"images must be uint8 or floats in [0, 1]; got {images.dtype}")
    amount = torch.as_tensor(level, device=images.device, dtype=pixels.dtype).reshape(-1)
    if len(amount) not in (1, len(images)):
        raise ValueError(f"level must be one number, or one for each of the {len(images)} images; got {len(amount)}")
    if not bool(((amount >= lowest) & (amount <= highest) & amount.isfinite()).all()):
        wanted = f"lie in [{lowest:g}, {highest:g}]" if highest < math.inf else f"be finite and at least {lowest:g}"
        given = amount.tolist() if isinstance(level, Tensor) else level
        raise ValueError(f"level of {name} must {wanted}; got {given}")
    return pixels, amount.reshape(-1, 1, 1, 1)


def closed(pixels: Tensor, images: Tensor) -> Tensor:
    """The pixels cut to [0, 1], in the type of the images that came in."""
    inside = pixels.clamp(0, 1)
    return (inside * 255).round().to(torch.uint8) if images.dtype == torch.uint8 else inside.to(images.dtype)


def _blur_matrices(sigma: Tensor, size: int) -> Tensor:
    """[len(sigma), size, size]: row i holds the weights of the pixels that make pixel i."""
    # Beyond a thousand lengths the blur is the mean, to the last digit.
    sigma = sigma.clamp(max=1000.0 * size)
    radius = int(4 * float(sigma.max()) + 0.5) if len(sigma) else 0
    offsets = torch.arange(-radius, radius + 1, device=sigma.device)
    wide = sigma.double().unsqueeze(1)
    weights = torch.exp(-0.5 * (offsets / torch.where(wide == 0, 1.0, wide)) ** 2)
    weights = torch.where(offsets.abs() <= (4 * wide + 0.5).floor(), weights, 0.0)
    weights = weights / weights.sum(1, keepdim=True)
    # Mirrored at both borders, the line repeats itself after two lengths: what is farther is folded back first.
    if len(offsets) > 2 * size:
        weights = weights.new_zeros(len(sigma), 2 * size).index_add_(1, offsets % (2 * size), weights)
        offsets = torch.arange(2 * size, device=sigma.device)
    place = (torch.arange(size, device=sigma.device).unsqueeze(1) + offsets) % (2 * size)
    source = torch.where(place < size, place, 2 * size - 1 - place)
    matrices = torch.zeros(len(sigma), size, size, device=sigma.device, dtype=torch.float64)
    matrices.scatter_add_(2, source.expand(len(sigma), -1, -1), weights.unsqueeze(1).expand(-1, size, -1))
    return matrices.to(sigma.dtype)
