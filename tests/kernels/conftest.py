"""Where the fused kernels run in these tests: on a GPU when there is one, else in Triton's interpreter.

The interpreter is chosen by an environment variable before Triton is imported, for a whole process, so
`test_interpreter.py` starts one process that runs this folder; outside of it these tests are skipped.
"""

import os
from typing import Any

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def pytest_configure() -> None:
    if INTERPRETED:
        _repair_interpreter()


@pytest.fixture
def device() -> str:
    """The device on which Triton kernels run here."""
    if INTERPRETED:
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    pytest.skip("runs in the interpreter's own process, or on a GPU")


def _repair_interpreter() -> None:
    """Two faults of the interpreter of Triton 3.6, mended for the tests.

    Loop bounds are arrays of one number, which NumPy 2.4 and later refuse to take for an int; and a product of bfloat16
    multiplies the bits, which it holds as integers.
    """
    import numpy as np
    from triton.language import bfloat16, float32
    from triton.runtime import interpreter

    patch, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

    def patch_and_repair(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), float32)

    def dot_of_numbers(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, widened(a), widened(b), *rest)

    interpreter._patch_lang_tensor = patch_and_repair
    interpreter.InterpreterBuilder.create_dot = dot_of_numbers
