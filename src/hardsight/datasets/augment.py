"""Augmentation as batched tensor operations: shift (pad and crop), flip, normalisation, Gaussian input noise.

What is random is drawn apart from what is done with it: `draw` gives one small number a sample, the other functions
are pure. A slow loop over the same draws gives the same pixels.
"""

import dataclasses
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from hardsight.names import check_name

Fill = Literal["zero", "edge", "reflect"]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What happens to each training image, by chance. The default is nothing.

    `shift`: move by up to that many pixels each way: the same as padding by `shift` and cropping at random.
    `fill`: what comes in from outside: black, the border's pixels, or the mirror image.
    `flip`: mirror left and right half of the time.
    `noise_std`: standard deviation of Gaussian noise on the normalised input.
    """

    shift: int = 0
    fill: Fill = "zero"
    flip: bool = False
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"shift must be at least 0 pixels; got {self.shift}")
        check_name("fill", self.fill, ("zero", "edge", "reflect"))
        if not 0 <= self.noise_std < float("inf"):
            raise ValueError(f"noise_std must be finite and at least 0; got {self.noise_std!r}")

    @property
    def moves(self) -> bool:
        """Whether pixels change places."""
        return self.shift > 0 or self.flip


class Draws(NamedTuple):
    """One draw a sample: how far to look down and right of each pixel, and whether to mirror first."""

    rows: Int[Tensor, "samples"]
    columns: Int[Tensor, "samples"]
    flips: Bool[Tensor, "samples"]


def draw(augmentation: Augmentation, samples: int, generator: torch.Generator) -> Draws:
    """Draws for that many samples; shifts are uniform in [-shift, shift], flips are fair coins."""
    reach = augmentation.shift
    device = generator.device
    rows, columns = torch.randint(-reach, reach + 1, (2, samples), generator=generator, device=device)
    coins = torch.randint(2, (samples,), generator=generator, device=device, dtype=torch.bool)
    return Draws(rows, columns, coins & augmentation.flip)


def shift_and_flip(
    images: UInt8[Tensor, "samples channels height width"], draws: Draws, augmentation: Augmentation
) -> UInt8[Tensor, "samples channels height width"]:
    """Pixel (h, w) of the result is pixel (h + row, w + column) of the image, mirrored first where `flips` says so.

    One copy of the batch into a padded frame (two with flips: as it is, and mirrored), then one gather in which
    every sample reads its own window. No loop over samples, and nothing waits for the device.
    """
    samples, channels, height, width = images.shape
    check_shift(augmentation, height, width)
    pad = augmentation.shift
    tall, wide = height + 2 * pad, width + 2 * pad
    versions = (images, images.flip(3)) if augmentation.flip else (images,)
    # Zeroed as a whole: four times cheaper on a CPU than zeroing the thin strips of the border.
    frame = images.new_zeros(len(versions), samples, channels, tall, wide)
    for place, version in zip(frame, versions, strict=True):
        place[:, :, pad : pad + height, pad : pad + width] = version
    # Columns first, then whole rows.
    for turned in (frame[..., pad:-pad, :], frame.transpose(-1, -2)) if pad and augmentation.fill != "zero" else ():
        left, right = turned[..., :pad], turned[..., -pad:]
        if augmentation.fill == "edge":
            left.copy_(turned[..., pad : pad + 1].expand_as(left))
            right.copy_(turned[..., -pad - 1 : -pad].expand_as(right))
        else:
            left.copy_(turned[..., pad + 1 : 2 * pad + 1].flip(-1))
            right.copy_(turned[..., -2 * pad - 1 : -pad - 1].flip(-1))
    area = tall * wide
    # All windows of the frame as one strided view: a window is known by where it starts.
    reach = (channels - 1) * area + (height - 1) * wide + width
    windows = frame.view(-1).as_strided(
        (max(0, frame.numel() - reach + 1), channels, height, width), (1, area, wide, 1)
    )
    sample = torch.arange(samples, device=images.device)
    if augmentation.flip:
        sample = sample + draws.flips * samples
    starts = (sample * channels * tall + draws.rows + pad) * wide + draws.columns + pad
    return windows.index_select(0, starts)


def check_shift(augmentation: Augmentation, height: int, width: int) -> None:
    """Reject to move an image out of itself, and to mirror more of it than there is."""
    most = min(height, width) - (augmentation.fill == "reflect")
    if augmentation.shift > most:
        size = f"images of {height} x {width} pixels and fill {augmentation.fill}"
        raise ValueError(f"shift must be at most {most}, for {size}; got {augmentation.shift}")


class PixelScale(NamedTuple):
    """What turns a byte into a network's input: pixel * scale + offset, each [channels, 1, 1]."""

    scale: Float[Tensor, "channels 1 1"]
    offset: Float[Tensor, "channels 1 1"]


def pixel_scale(
    mean: Float[Tensor, "channels"], std: Float[Tensor, "channels"], dtype: torch.dtype = torch.float32
) -> PixelScale:
    """The scale for which the input is (pixel / 255 - mean) / std; at least float32, whatever the input's type."""
    wide = torch.promote_types(dtype, torch.float32)
    scale = 1 / (255 * std.double())
    offset = -mean.double() / std.double()
    return PixelScale(scale.to(wide).view(-1, 1, 1), offset.to(wide).view(-1, 1, 1))


def normalise(
    images: UInt8[Tensor, "samples channels height width"],
    pixels: PixelScale,
    *,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
) -> Float[Tensor, "samples channels height width"]:
    """(pixel / 255 - mean) / std of `pixel_scale`, computed in its type and rounded once."""
    if channels_last:
        # While a pixel is one byte: a quarter of what moving floats would cost.
        images = images.contiguous(memory_format=torch.channels_last)
    return images.to(pixels.scale.dtype).mul_(pixels.scale).add_(pixels.offset).to(dtype)


def pixel_statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel of uint8 [N, C, H, W], as shares of full brightness."""
    if images.ndim != 4 or images.dtype != torch.uint8:
        raise ValueError(f"images must be uint8 [N, C, H, W]; got {images.dtype} {list(images.shape)}")
    if not images.numel():
        raise ValueError("images must hold at least one image; got none")
    # Counted, not summed: exact, and one walk over the bytes without a float of each.
    brightness = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([channel.reshape(-1).cpu().bincount(minlength=256) for channel in images.unbind(1)]).double()
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ brightness
    deviation = (share * (brightness - mean.unsqueeze(1)).square()).sum(1).sqrt()
    # A channel that never changes is left as it is.
    return (mean / 255).tolist(), torch.where(deviation == 0, 1.0, deviation / 255).tolist()
