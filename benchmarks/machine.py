"""What every benchmark says of the machine it ran on, and where it keeps what it measured."""

import json
import os
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def processor_name() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    return torch.cuda.get_device_name() if device.type == "cuda" else processor_name()


def about(benchmark: str, device: torch.device, **versions: str) -> dict[str, Any]:
    """What stands above the numbers: when, on what, with which versions beside Python's and torch's."""
    return {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": {
            "device": device_name(device),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            "load_before": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__, **versions},
    }


def save(record: Mapping[str, Any], device: torch.device) -> Path:
    """Write a record that begins with `about` to the benchmark's file for this device."""
    slug = re.sub(r"[^a-z0-9]+", "-", device_name(device).lower() if device.type == "cuda" else "cpu").strip("-")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{record['benchmark']}-{slug}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path


def wait(device: torch.device) -> None:
    """Let a GPU finish what it was given; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize()
