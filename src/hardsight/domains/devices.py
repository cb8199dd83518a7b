"""Where a training of this room runs."""

import torch

from hardsight.training.fitting import usable_device


def chosen_device(device: torch.device | str | None = None) -> torch.device:
    """The device asked for, which must be there; left out, a GPU where there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return usable_device(device)
