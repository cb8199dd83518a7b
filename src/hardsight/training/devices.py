"""The device a training runs on: chosen, there, and the current one while it runs."""

import contextlib
from typing import Any

import torch

from hardsight.validation import check_device


def chosen_device(name: torch.device | str | None = None) -> torch.device:
    """The device asked for, which must be there; left out, a GPU where there is one."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return check_device(name)


def current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make a GPU the current device: streams, graphs and the global generator are the current device's unless named.

    A step on another GPU would be captured as an empty graph, and its replays would train nothing.
    """
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
