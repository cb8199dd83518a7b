"""The loss alone, from tiles of products that are never written: the kernel for Hopper, and what joins its splits."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hardsight.losses import linear_gradient_rescaling

tiling = pytest.importorskip("hardsight.kernels.fused.angular_norms")


@pytest.mark.parametrize("bias", [True, False])
def test_the_kernel_compiles_into_tensor_core_products_of_tiles_from_the_copy_engine(
    hopper_assembly: Callable[..., str], bias: bool
) -> None:
    from hardsight.kernels.fused.logit_scan_hopper import scan_tiles

    pointers = {"labels": "*i64", "bias": "*bf16", "partial": "*fp32"}
    fixed = {"STAGES": 2, "LOOK": bias, "BIAS": bias}
    assembly = hopper_assembly(scan_tiles, {"features": [64, 64], "weight": [16, 64]}, pointers, fixed)
    assert "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16" in assembly
    assert "cp.async.bulk.tensor.2d.shared" in assembly
    assert "ex2.approx" in assembly


def found_in_splits(logits: Tensor, labels: Tensor, splits: int) -> Tensor:
    """What the kernel leaves: of every split the largest logit but the label's, the mass under it, the label's."""
    own = torch.zeros_like(logits, dtype=torch.bool).scatter(1, labels[:, None], True)
    parts = []
    for z, mine in zip(logits.tensor_split(splits, 1), own.tensor_split(splits, 1), strict=True):
        top = z.masked_fill(mine, -1e30).amax(1)
        mass = (z - top[:, None]).exp().masked_fill(mine, 0.0).sum(1)
        parts.append(torch.stack([top, mass, z.masked_fill(~mine, 0.0).sum(1)]))
    return torch.stack(parts)


@pytest.mark.parametrize("splits", [1, 3, 7])
@pytest.mark.parametrize("exponential", [True, False])
def test_splits_are_joined_into_loss_and_weight_of_every_sample(device: str, splits: int, exponential: bool) -> None:
    from hardsight.kernels.fused.rescaled_linear_cross_entropy import join_splits

    generator = torch.Generator().manual_seed(splits)
    logits = 4 * torch.randn(300, 7, generator=generator)
    logits[1, 2], logits[2] = 90.0, -300.0
    labels = torch.randint(0, 7, (300,), generator=generator)
    weight = torch.rand(300, generator=generator) + 0.1
    found = found_in_splits(logits, labels, splits)
    labels[0] = -100
    sums = torch.full((900,), torch.nan, device=device)
    given = (found.to(device), labels.to(device), weight.to(device))
    join_splits(*given, -100, 6.0, 0.4, exponential, sums)
    loss, counted, log_weight = sums.cpu().double().reshape(3, 300)
    p = logits.double().softmax(1).gather(1, labels.clamp_min(0)[:, None]).squeeze(1)
    emphasis = 6.0 * p**0.4 * (1 - p)
    kept = torch.arange(300) > 0
    assert (loss[0], counted[0], log_weight[0]) == (0.0, 0.0, -torch.inf)
    torch.testing.assert_close(loss[kept], (-p.log() * weight)[kept], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(counted[kept], weight[kept].double())
    want = (emphasis if exponential else emphasis.log()) + weight.double().log()
    ordinary = kept & (p < 1 - 1e-9)  # where 1 - p is all rounding the truth itself has no logarithm
    torch.testing.assert_close(log_weight[ordinary], want[ordinary], atol=2e-4, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_hopper")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(1024, 64, 256), (1100, 72, 1000), (1025, 2048, 333), (2000, 520, 40_001), (20_000, 512, 500)]
)
def test_the_loss_without_gradient_stays_in_the_budget(
    shape: tuple[int, int, int], bias: bool, dtype: torch.dtype
) -> None:
    samples, dim, classes = shape
    torch.manual_seed(0)
    features = torch.randn(samples, dim, device="cuda", dtype=dtype)
    weight = torch.randn(classes, dim, device="cuda", dtype=dtype) * 3 / dim**0.5
    assert tiling.choose_tiling(features, weight).hopper
    shift = torch.randn(classes, device="cuda") * 5 if bias else None
    labels = torch.randint(0, classes, (samples,), device="cuda")
    labels[::7], labels[1], labels[2] = -100, 0, classes - 1
    options = {"beta": 6.0, "lam": 0.4, "sample_weight": torch.rand(samples, device="cuda")}
    with torch.no_grad():
        for reduction in ("weight", "sum"):
            got = linear_gradient_rescaling(features, weight, shift, labels, reduction=reduction, **options)
            wide = [None if one is None else one.double() for one in (features, weight, shift)]
            want = linear_gradient_rescaling(*wide, labels, reduction=reduction, fused=False, **options)
            torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_hopper")
def test_the_loss_is_the_same_with_and_without_gradient_and_the_same_bits_twice() -> None:
    torch.manual_seed(1)
    features = torch.randn(4096, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(3000, 256, device="cuda", dtype=torch.bfloat16) / 8
    labels = torch.randint(0, 3000, (4096,), device="cuda")
    trained = linear_gradient_rescaling(features, weight, None, labels)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        alone, again = (linear_gradient_rescaling(features, weight, None, labels) for _ in range(2))
    assert torch.cuda.max_memory_allocated() - before < 4096 * 3000, "less than a byte a logit"
    torch.testing.assert_close(alone, trained.detach(), atol=1e-5, rtol=1e-5)
    assert torch.equal(alone, again)
