"""The device a training runs on: chosen, there, and the current one while it runs."""

import contextlib
from typing import Any

import torch


def usable_device(name: torch.device | str) -> torch.device:
    """The device of this name; refuses one that torch does not know or that is not there."""
    try:
        torch.empty(0, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).splitlines()[0]
        raise ValueError(
            f"device must be one that this machine has, cpu or cuda:0, say; got {name!r}: {reason}"
        ) from None


def chosen_device(name: torch.device | str | None = None) -> torch.device:
    """The device asked for, which must be there; left out, a GPU where there is one."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return usable_device(name)


def current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make a GPU the current device: streams, graphs and the global generator are the current device's unless named.

    A step on another GPU would be captured as an empty graph, and its replays would train nothing.
    """
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
