"""JPEG on tensors: what baseline JPEG with 4:2:0 chroma does to the pixels, without writing a file.

The steps and roundings are those of the reference codec (ITU-T T.81; libjpeg's quality scale, edge replication,
integer transforms and triangle upsampling), in floating point: on photographs 96 to 99 of 100 values equal those of
a file, the rest differ where a coefficient is on the edge of a step. Entropy coding is lossless and left out.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.fft import dct
from torch import Tensor

from hardsight.degradation.pictures import Images, Level, closed, opened

# ITU-T T.81, Annex K: the example tables that encoders use at quality 50.
_LUMA = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA = (
    *(17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)
# ITU-T T.871: full-range RGB to luma and the two colour differences.
_TO_YCC = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136286, -0.714136286), (1.0, 1.772, 0.0))
# The reference codec works in whole numbers: how finely it keeps a block after one axis, and after both.
_AFTER_ONE_AXIS, _AFTER_BOTH = 4 * math.sqrt(8), 8.0


def jpeg(images: Images, level: Level) -> Images:
    """The images after JPEG at quality `level`, whole numbers in [1, 100]; three channels are RGB, one is grey.

    Lower is worse; no level leaves every image as it is, 100 comes closest. Colour is halved in resolution (4:2:0),
    the common default.
    """
    pixels, quality = opened(images, level, "jpeg", 1.0, 100.0)
    if images.shape[1] not in (1, 3):
        raise ValueError(f"images must have 1 or 3 channels for jpeg; got {images.shape[1]}")
    if not bool((quality == quality.round()).all()):
        raise ValueError("level of jpeg must be a whole number, the quality")
    whole = (pixels.clamp(0, 1) * 255).round()
    quality = quality.flatten()
    if images.shape[1] == 1:
        return closed(_coded(whole, _table(_LUMA, quality)) / 255, images)
    height, width = whole.shape[2:]
    ycc = torch.einsum("kc,nchw->nkhw", whole.new_tensor(_TO_YCC), whole)
    # A half goes up in luma and down in the colour differences.
    ycc = torch.cat([(ycc[:, :1] + 0.5).floor(), (ycc[:, 1:] + 127.5).ceil()], 1).clamp(0, 255)
    luma = _coded(ycc[:, :1], _table(_LUMA, quality))
    chroma = _upsampled(_coded(_halved(ycc[:, 1:]), _table(_CHROMA, quality)), height, width) - 128
    rgb = torch.einsum("ck,nkhw->nchw", whole.new_tensor(_TO_RGB), torch.cat([luma, chroma], 1))
    return closed((rgb + 0.5).floor() / 255, images)


def _table(base: tuple[int, ...], quality: Tensor) -> Float[Tensor, "qualities 1 1 1 8 8"]:
    """Quantisation steps at each quality, by libjpeg's scale: 50 is the base, 100 is all ones."""
    scale = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)
    steps = torch.tensor(base, dtype=quality.dtype, device=quality.device)
    return ((steps * scale.unsqueeze(1) + 50) / 100).floor().clamp(1, 255).reshape(-1, 1, 1, 1, 8, 8)


def _coded(planes: Tensor, table: Tensor) -> Tensor:
    """Each plane through 8 x 8 cosine transforms, quantisation and back, as whole numbers in [0, 255]."""
    height, width = planes.shape[2:]
    padded = F.pad(planes, (0, -width % 8, 0, -height % 8), mode="replicate") - 128
    # The orthonormal cosine transform of eight numbers, as a matrix.
    cosines = torch.from_numpy(dct(np.eye(8), axis=0, norm="ortho")).to(planes)
    blocks = padded.unflatten(3, (-1, 8)).unflatten(2, (-1, 8)).transpose(3, 4)
    scaled = _kept(cosines @ _kept(blocks @ cosines.T, _AFTER_ONE_AXIS), _AFTER_BOTH) / table
    # Kept so coarsely, halves are common: they go away from zero.
    coefficients = torch.copysign((scaled.abs() + 0.5).floor(), scaled) * table
    restored = (_kept(cosines.T @ coefficients, _AFTER_ONE_AXIS) @ cosines).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    return (restored[:, :, :height, :width] + 128.5).floor().clamp(0, 255)


def _kept(numbers: Tensor, resolution: float) -> Tensor:
    """Numbers rounded to one part in `resolution`, halves upwards."""
    return (numbers * resolution + 0.5).floor() / resolution


def _halved(planes: Tensor) -> Tensor:
    """Means of 2 x 2 pixels, rounded up and down in turn from column to column; the border is repeated."""
    height, width = planes.shape[2:]
    # Columns are repeated before halving and rows after it, as the reference encoder does.
    even = F.pad(planes, (0, -width % 16, 0, height % 2), mode="replicate")
    sums = 4 * F.avg_pool2d(even, 2)
    bias = 1 + torch.arange(sums.shape[3], device=planes.device) % 2
    return ((sums.round() + bias) / 4).floor()


def _upsampled(planes: Tensor, height: int, width: int) -> Tensor:
    """Twice the size by the triangle filter: three parts of the nearer pixel to one of the farther, on each axis."""
    rows, columns = -(-height // 2), -(-width // 2)
    small = planes[:, :, :rows, :columns]
    if columns <= 2:
        # Too narrow for the filter: the reference decoder repeats pixels.
        return small.repeat_interleave(2, 2).repeat_interleave(2, 3)[:, :, :height, :width]
    framed = F.pad(small, (0, 0, 1, 1), mode="replicate")
    near = 3 * framed[:, :, 1:-1]
    tall = torch.stack([near + framed[:, :, :-2], near + framed[:, :, 2:]], 3).flatten(2, 3)
    framed = F.pad(tall, (1, 1, 0, 0), mode="replicate")
    near = 3 * framed[..., 1:-1]
    left, right = near + framed[..., :-2], near + framed[..., 2:]
    both = torch.stack([((left + 8) / 16).floor(), ((right + 7) / 16).floor()], 4).flatten(3, 4)
    return both[:, :, :height, :width]
