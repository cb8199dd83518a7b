"""Where the fused kernels run in these tests: on a GPU when there is one, else in Triton's interpreter.

The interpreter is chosen by an environment variable before Triton is imported, for a whole process, so
`test_interpreter.py` starts one process that runs this folder; outside of it these tests are skipped.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def pytest_configure() -> None:
    if INTERPRETED:
        _repair_interpreter()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        skip = pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's own process")
        places = [pytest.param("cpu", marks=skip, id="interpreter"), pytest.param("cuda", marks=pytest.mark.gpu)]
        metafunc.parametrize("device", places)


@pytest.fixture
def within_budget() -> Callable[[Tensor, Tensor, Tensor, float], None]:
    """A check: against float64 truth, the fused error is at most that of the plain path in the same dtype, plus slack.

    Errors are relative, |got - truth| / |truth|; the slack is in units of the dtype's rounding.
    """

    def check(fused: Tensor, plain: Tensor, truth: Tensor, slack: float = 4.0) -> None:
        assert torch.isfinite(fused).all()
        scale = truth.double().norm().clamp_min(1e-300)
        error = (fused.double() - truth).norm() / scale
        ordinary = (plain.double() - truth).norm() / scale
        rounding = torch.finfo(fused.dtype).eps
        assert error <= 1.5 * ordinary + slack * rounding, f"{error:.2e} against {ordinary:.2e} of the plain path"

    return check


@pytest.fixture
def hopper_assembly() -> Callable[..., str]:
    """Compiles a Gluon kernel for Hopper, which need not be here: Gluon is young, and a kernel nobody compiles a guess.

    Of its arguments: `tiles`, the shapes of what the copy engine loads, `pointers`, and `fixed` ones; the others are
    integers.
    """
    triton = pytest.importorskip("triton")
    tiling = pytest.importorskip("hardsight.kernels.fused.angular_norms")
    if not triton.__version__.startswith(tiling._GLUON_TRIED_WITH):
        pytest.skip("the kernel was not tried with this Triton")
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language
    from triton.experimental.gluon._runtime import GluonASTSource

    def described(shape: list[int]) -> str:
        return f"tensordesc<bf16{shape},{language.NVMMASharedLayout.get_default_for(shape, language.bfloat16)!r}>"

    def compiled(kernel: Any, tiles: dict[str, list[int]], pointers: dict[str, str], fixed: dict[str, Any]) -> str:
        kinds = dict.fromkeys(kernel.arg_names, "i32") | pointers | dict.fromkeys(fixed, "constexpr")
        kinds |= {name: described(shape) for name, shape in tiles.items()}
        source = GluonASTSource(kernel, kinds, fixed)
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]

    return compiled


@pytest.fixture
def on_hopper() -> None:
    """The test needs a GPU that runs the kernels for Hopper."""
    from hardsight.kernels.fused import angular_norms

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if not angular_norms.serves_hopper(torch.device("cuda", 0)):
        pytest.skip("the kernel is for Hopper")


def _repair_interpreter() -> None:
    """Three faults of the interpreter of Triton 3.6, mended for the tests.

    Loop bounds are arrays of one number, which NumPy 2.4 and later do not take for an int; a product of bfloat16
    multiplies the bits, which it holds as integers; and the larger of a number and NaN is NaN, where a GPU's is the
    number.
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

    def passing_over(choose: Any) -> Any:
        return lambda self, one, other: self.binary_op(one, other, choose)

    interpreter.InterpreterBuilder.create_maxnumf = passing_over(np.fmax)
    interpreter.InterpreterBuilder.create_minnumf = passing_over(np.fmin)
    interpreter._patch_lang_tensor = patch_and_repair
    interpreter.InterpreterBuilder.create_dot = dot_of_numbers
