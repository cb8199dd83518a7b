"""What every benchmark says of the machine it ran on."""

import platform
from pathlib import Path

import torch


def processor_name() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def wait(device: torch.device) -> None:
    """Let a GPU finish what it was given; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize()
