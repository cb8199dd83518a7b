"""What a confidence must reach: for each class, that of the sample at a given rank among those predicted as it."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor

# n * portion is a whole number more often than its floating-point product is: 100 * 0.29 must be 29.
_ROUNDING = 1e-9
_LOW_BITS = 2**32 - 1
_LARGEST_BITS = 2**31 - 1


class Thresholds(NamedTuple):
    """A threshold a class, and how many samples its rank counted; where that is none, the threshold is 1."""

    values: Float32[Tensor, "classes"]
    ranks: Int64[Tensor, "classes"]


def check_portion(portion: float, name: str = "portion") -> None:
    """Reject a portion outside (0, 1]."""
    if not 0 < portion <= 1:
        raise ValueError(f"{name} must lie in (0, 1], the share of target samples to pseudo-label; got {portion!r}")


def rank_thresholds(
    confidence: Float[Tensor, "samples"], predicted: Int[Tensor, "samples"], num_classes: int, portion: float
) -> Thresholds:
    """For each class, the confidence at rank floor(n * portion), counted from 1 down, of its n predicted samples.

    Where that rank is 0 (few samples, or none predicted as the class) the threshold is 1. One sort of whole numbers,
    class above confidence: not negative floats order as their bits do, of float32 that they are taken as.
    """
    check_portion(portion)
    counts = torch.bincount(predicted, minlength=num_classes)
    # -0.0 + 0.0 is 0.0: a negative zero's bits would order it below everything.
    bits = (confidence.float() + 0.0).view(torch.int32).to(torch.int64)
    keys = _sorted((predicted.to(torch.int64) << 32) + (_LARGEST_BITS - bits))
    ranks = (counts.double() * portion + _ROUNDING).floor().to(torch.int64)
    places = (counts.cumsum(0) - counts + ranks - 1).clamp(min=0)
    values = (_LARGEST_BITS - (keys[places] & _LOW_BITS)).to(torch.int32).view(torch.float32)
    return Thresholds(torch.where(ranks > 0, values, 1.0), ranks)


def _sorted(keys: Int64[Tensor, "samples"]) -> Int64[Tensor, "samples"]:
    """Ascending; NumPy's sort of whole numbers on a CPU is ten times as fast as torch's."""
    return torch.from_numpy(np.sort(keys.numpy())) if keys.device.type == "cpu" else keys.sort().values
