"""A command in a process of its own: how it ended, what it said, and the most memory it held."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

# Far above what any of these commands needs; whoever takes it is stopped before the machine suffers.
_MOST = 14 << 30


# What the process says of itself: what is counted for a child counts the memory of whoever started it.
_TOLD = """
import atexit, re, sys
from pathlib import Path
told = Path(sys.argv.pop(1))
peak = lambda: re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
atexit.register(lambda: told.write_text(peak()))
"""
_COMMAND = "from hardsight.cli import main; main()"


class Ended(NamedTuple):
    """How a command ended; `peak` is the most memory it held, in bytes."""

    code: int
    said: str
    peak: int


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ended]:
    """Run `hardsight`, or another script, with these arguments."""
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux says how much memory a process has held")
    told = tmp_path_factory.mktemp("peak") / "peak"

    def run(*words: object, script: str = _COMMAND, place: Path | None = None) -> Ended:
        told.write_text("0")
        done = subprocess.run(
            [sys.executable, "-c", _TOLD + script, str(told), *map(str, words)],
            cwd=place,
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MOST, _MOST)),
        )
        return Ended(done.returncode, done.stdout + done.stderr, int(told.read_text()) * 1024)

    return run


@pytest.fixture(scope="session")
def honest(ended: Callable[..., Ended], tmp_path_factory: pytest.TempPathFactory) -> int:
    """The most memory that scoring a small honest file takes."""
    import torch

    from hardsight.engines.files import write_features

    folder: Path = tmp_path_factory.mktemp("honest")
    write_features(folder / "f.npz", torch.randn(100, 8), torch.randn(3, 8), torch.arange(100) % 3)
    answer = ended("score", folder / "f.npz", "-o", folder / "s.parquet")
    assert answer.code == 0, answer.said
    return answer.peak
