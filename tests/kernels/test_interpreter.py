"""Runs this folder's laws in Triton's interpreter, which a process must choose before it imports Triton."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="this is that process")
def test_the_fused_kernels_keep_their_laws_in_the_interpreter() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    # Without the suite's shape checks, which torch.compile cannot trace; the plain versions are tested under them.
    # The interpreter's NumPy says aloud what a GPU does in silence: overflow to infinity, which the kernels mean.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", "-k", "interpreter"]
    options += ["-o", "addopts=", "--import-mode=importlib", "--strict-markers"]
    command = [sys.executable, "-m", "pytest", str(HERE), f"--rootdir={HERE.parent.parent}", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
