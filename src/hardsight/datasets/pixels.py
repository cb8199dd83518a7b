"""How bright the images of a set are: what they are normalised by."""

import torch
from torch import Tensor


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
