"""Where a training of this room runs."""

import torch


def chosen_device(device: torch.device | str | None = None) -> torch.device:
    """The device asked for, which must be there; left out, a GPU where there is one."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ValueError(f"device must be one that is there; got {str(device)!r}") from None
    return torch.device(device)
