"""Slopes times weight, tangent to the sphere: the kernel for Hopper against float64, and that it compiles."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch


def test_the_kernel_compiles_into_tensor_core_products_that_leave_by_the_copy_engine(
    hopper_assembly: Callable[..., str],
) -> None:
    from hardsight.kernels.fused.tangent_product_hopper import tangent_tiles

    tiles = {"slopes": [64, 32], "weight": [32, 64], "vectors": [64, 64], "out": [64, 64]}
    pointers = {"along": "*fp32", "scale": "*fp32"}
    assembly = hopper_assembly(tangent_tiles, tiles, pointers, {"STAGES": 2, "LARGEST": 3e38})
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" in assembly
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert "cp.async.bulk.tensor.2d.global" in assembly


@pytest.mark.gpu
@pytest.mark.usefixtures("on_hopper")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1024, 256, 64), (1100, 328, 72), (20_000, 512, 500), (4096, 2048, 1000)])
def test_the_kernel_is_the_product_less_its_part_along_the_features(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    from hardsight.kernels.dispatch import aligned
    from hardsight.kernels.fused.directions import tangent_product

    samples, dim, classes = shape
    torch.manual_seed(0)
    features = torch.randn(samples, dim, device="cuda", dtype=dtype)
    weight = torch.randn(classes, dim, device="cuda", dtype=dtype)
    slopes = aligned(samples, classes, dtype, torch.device("cuda")).normal_()
    along, factor, upstream = (
        torch.randn(samples, device="cuda"),
        torch.rand(2, device="cuda"),
        torch.rand((), device="cuda"),
    )
    got = tangent_product(slopes, weight, features, along, factor, upstream)
    want = (
        (slopes.double() @ weight.double() - along.double()[:, None] * features.double())
        * factor[0].double()
        * upstream
    )
    torch.testing.assert_close(got.double(), want, atol=1e-3, rtol=2 * torch.finfo(dtype).eps)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("weight_is_trained", [True, False])
def test_a_process_whose_first_backward_pass_it_is_finds_its_device(weight_is_trained: bool) -> None:
    command = f"""
import torch
from hardsight.losses import avh_loss
features = torch.randn(2048, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
weight = torch.randn(100, 512, device="cuda", dtype=torch.bfloat16, requires_grad={weight_is_trained})
avh_loss(features, weight, torch.zeros(2048, dtype=torch.int64, device="cuda"), fused=True).backward()
assert features.grad.isfinite().all() and features.grad.any()
"""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
