"""The scan for Hopper compiles on a machine without one: Gluon is young, and a kernel nobody compiles is a guess."""

import pytest

triton = pytest.importorskip("triton")
tiling = pytest.importorskip("hardsight.kernels.fused.angular_tiling")


@pytest.mark.skipif(
    not triton.__version__.startswith(tiling._GLUON_TRIED_WITH), reason="the kernel was not tried with this Triton"
)
@pytest.mark.parametrize("logits", [True, False])
def test_the_kernel_compiles_into_tensor_core_products_of_tiles_from_the_copy_engine(logits: bool) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language
    from triton.experimental.gluon._runtime import GluonASTSource

    from hardsight.kernels.fused.angular_scan_hopper import scan_tiles

    samples, classes, dim = 64, 16, 64
    layouts = [
        language.NVMMASharedLayout.get_default_for([rows, dim], language.bfloat16) for rows in (samples, classes)
    ]
    kinds = dict.fromkeys(scan_tiles.arg_names, "i32") | {
        "features": f"tensordesc<bf16[{samples},{dim}],{layouts[0]!r}>",
        "weight": f"tensordesc<bf16[{classes},{dim}],{layouts[1]!r}>",
        "labels": "*i64",
        "norms": "*fp32",
        "weight_inverse": "*fp32",
        "bias": "*bf16",
        "partial": "*fp32",
    }
    fixed = {
        "STAGES": 2,
        "MEASURING_REGISTERS": 24,
        "LOOK": not logits,
        "LOGITS": logits,
        "BIAS": logits,
        "SPREAD": logits,
    }
    kinds |= dict.fromkeys(fixed, "constexpr")
    source = GluonASTSource(scan_tiles, kinds, fixed)
    assembly = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16" in assembly
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert ("ex2.approx" in assembly) == logits, "exponentials are for logits"
