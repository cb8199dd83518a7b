"""Kernels compile for a GPU that is not here: the interpreter knows no types, and lets pass what no GPU takes."""

from typing import Any

import pytest

triton = pytest.importorskip("triton")

POINTERS = {"labels": "*i64", "predicted": "*i64"}


def compiled(kernel: Any, pointers: dict[str, str], constants: dict[str, Any]) -> str:
    """The kernel's PTX for Hopper; every argument that is named in neither is a 32-bit integer."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = dict.fromkeys(kernel.arg_names, "i32") | pointers | dict.fromkeys(constants, "constexpr")
    kinds |= {name: POINTERS[name] for name in kernel.arg_names if name in POINTERS}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=places)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"]


@pytest.mark.parametrize("waiting", ["bf16", "fp32"])
def test_gradients_that_wait_in_different_precisions_are_projected_by_one_kernel(waiting: str) -> None:
    from hardsight.kernels.fused.directions import _project

    vectors = dict.fromkeys(("first_vectors", "first_out", "second_vectors", "second_out"), "*bf16")
    numbers = dict.fromkeys(("second", "inverses", "factor", "upstream"), "*fp32")
    constants = {"LARGEST": 3e38, "STEP": 16, "WHOLE": True, "ROWS": 1, "BLOCK": 64}
    assert "st.global" in compiled(_project, vectors | numbers | {"first": f"*{waiting}"}, constants)
    alone = dict.fromkeys(("second", "second_vectors", "second_out", "upstream"))
    pointers = {"first_vectors": "*bf16", "first_out": "*bf16", "inverses": "*fp32", "factor": "*fp32"}
    assert "st.global" in compiled(_project, pointers | {"first": f"*{waiting}"}, constants | alone)


@pytest.mark.parametrize(("logits", "bias"), [(True, "bf16"), (False, None)])
def test_the_parts_of_angular_scores_compile(logits: bool, bias: str | None) -> None:
    from hardsight.kernels.fused.angular_combine import combine
    from hardsight.kernels.fused.angular_norms import _measure

    vectors = {"features": "*bf16", "weight": "*bf16"}
    numbers = dict.fromkeys(("norms", "weight_inverse", "partial", "out"), "*fp32")
    terms: dict[str, Any] = {"LOGITS": logits, "BIAS": bias is not None, "SPREAD": logits}
    if bias is None:
        terms["bias"] = None
    else:
        numbers["bias"] = f"*{bias}"

    def of(kernel: Any, sizes: dict[str, int]) -> str:
        names = set(kernel.arg_names)
        pointers = {name: kind for name, kind in (vectors | numbers).items() if name in names}
        return compiled(kernel, pointers, {name: value for name, value in (terms | sizes).items() if name in names})

    assert "st.global" in of(_measure, {"ROWS": 4, "BLOCK": 64})
    assert ("ex2.approx" in of(combine, {"ROWS": 32, "CLASSES": 4, "DIM": 32})) == logits
