"""The scan for Hopper compiles on a machine without one."""

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("logits", [True, False])
def test_the_kernel_compiles_into_tensor_core_products_of_tiles_from_the_copy_engine(
    hopper_assembly: Callable[..., str], logits: bool
) -> None:
    from hardsight.kernels.fused.angular_scan_hopper import scan_tiles

    pointers = {"labels": "*i64", "bias": "*bf16"} | dict.fromkeys(("norms", "weight_inverse", "partial"), "*fp32")
    fixed = {"STAGES": 2, "MEASURING_REGISTERS": 24, "LOOK": not logits}
    fixed |= dict.fromkeys(("LOGITS", "BIAS", "SPREAD"), logits)
    assembly = hopper_assembly(scan_tiles, {"features": [64, 64], "weight": [16, 64]}, pointers, fixed)
    assert "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16" in assembly
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert ("ex2.approx" in assembly) == logits, "exponentials are for logits"
