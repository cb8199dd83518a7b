"""Slopes times weight, tangent to the sphere: the kernel for Hopper against float64, and that it compiles."""

import subprocess
import sys

import pytest
import torch

triton = pytest.importorskip("triton")
tiling = pytest.importorskip("hardsight.kernels.fused.angular_tiling")


@pytest.mark.skipif(
    not triton.__version__.startswith(tiling._GLUON_TRIED_WITH), reason="the kernel was not tried with this Triton"
)
def test_the_kernel_compiles_into_tensor_core_products_that_leave_by_the_copy_engine() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language
    from triton.experimental.gluon._runtime import GluonASTSource

    from hardsight.kernels.fused.tangent_product_hopper import tangent_tiles

    def tile(rows: int, columns: int) -> str:
        layout = language.NVMMASharedLayout.get_default_for([rows, columns], language.bfloat16)
        return f"tensordesc<bf16[{rows},{columns}],{layout!r}>"

    kinds = dict.fromkeys(tangent_tiles.arg_names, "i32") | {
        "slopes": tile(64, 32),
        "weight": tile(32, 64),
        "vectors": tile(64, 64),
        "out": tile(64, 64),
        "along": "*fp32",
        "scale": "*fp32",
    }
    fixed = {"STAGES": 2, "LARGEST": 3e38}
    source = GluonASTSource(tangent_tiles, kinds | dict.fromkeys(fixed, "constexpr"), fixed)
    assembly = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" in assembly
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert "cp.async.bulk.tensor.2d.global" in assembly


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1024, 256, 64), (1100, 328, 72), (20_000, 512, 500), (4096, 2048, 1000)])
def test_the_kernel_is_the_product_less_its_part_along_the_features(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    from hardsight.kernels.dispatch import aligned
    from hardsight.kernels.fused.tangent_product import tangent_product

    if not tiling.serves_hopper(torch.device("cuda", 0)):
        pytest.skip("the kernel is for Hopper")
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
from hardsight.kernels import angular_cross_entropy
features = torch.randn(2048, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
weight = torch.randn(100, 512, device="cuda", dtype=torch.bfloat16, requires_grad={weight_is_trained})
angular_cross_entropy(features, weight, torch.zeros(2048, dtype=torch.int64, device="cuda")).backward()
assert features.grad.isfinite().all() and features.grad.any()
"""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
