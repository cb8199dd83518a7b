"""How bright the images of a set are: what they are normalised by."""

import torch
from torch import Tensor


def pixel_statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel of uint8 [N, C, H, W], as shares of full brightness."""
    if images.ndim != 4 or images.dtype != torch.uint8:
        raise ValueError(f"images must be uint8 [N, C, H, W]; got {images.dtype} {list(images.shape)}")
    total, squares = torch.zeros(2, images.shape[1], dtype=torch.float64, device=images.device)
    for part in images.split(256):
        values = part.float()
        total += values.sum((0, 2, 3), dtype=torch.float64)
        squares += values.square().sum((0, 2, 3), dtype=torch.float64)
    count = images.numel() / images.shape[1]
    mean = total / count
    # A channel that never changes is left as it is.
    deviation = (squares / count - mean.square()).clamp_min(0).sqrt()
    return (mean / 255).tolist(), torch.where(deviation == 0, 1.0, deviation / 255).tolist()
