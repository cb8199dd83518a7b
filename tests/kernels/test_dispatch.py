"""Every op where it is used: compiled, under autocast, checkpointed, and on a machine without Triton."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hardsight import kernels
from hardsight.kernels import dispatch


def ops(labels: Tensor) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    return {
        "angular_scores": lambda x, w: kernels.angular_scores(x, w, labels).angle_sum.sum() + 0 * x.sum() + 0 * w.sum(),
        "angular_cross_entropy": lambda x, w: kernels.angular_cross_entropy(x, w, labels, 5.0),
        "recomputed": lambda x, w: kernels.angular_cross_entropy(x, w, labels, 5.0, recompute=True),
        "rescaled_cross_entropy": lambda x, w: kernels.rescaled_cross_entropy(x @ w.T, labels),
        "rescaled_linear": lambda x, w: kernels.rescaled_linear_cross_entropy(x, w, None, labels),
        "pairwise": lambda x, w: kernels.pairwise_angular_contrast(x @ w.T, labels),
    }


NAMES = list(ops(torch.zeros(1)))


def draw(device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(6, 8, generator=generator), torch.randn(5, 8, generator=generator)
    labels = torch.randint(0, 5, (6,), generator=generator)
    return features.to(device).requires_grad_(), weight.to(device).requires_grad_(), labels.to(device)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # what tracing itself does
@pytest.mark.parametrize("name", NAMES)
def test_compiled_as_one_graph_equals_eager(device: str, name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--jaxtyping-packages", None):
        pytest.skip("torch.compile does not trace the shape checks of the test run")
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    want = op(features, weight)
    torch.compiler.reset()
    got = torch.compile(op, backend="aot_eager", fullgraph=True)(features, weight)
    torch.testing.assert_close(got, want)
    for one, other in zip(
        torch.autograd.grad(got, (features, weight), allow_unused=True),
        torch.autograd.grad(want, (features, weight), allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_checkpointing_changes_nothing(device: str, name: str) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    want = torch.autograd.grad(op(features, weight), (features, weight))
    got = torch.autograd.grad(checkpoint(op, features, weight, use_reentrant=False), (features, weight))
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_multiplies_in_half_precision_and_returns_full_gradients(device: str, name: str) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    full = op(features, weight)
    with torch.autocast(device, dtype=torch.bfloat16):
        got = op(features, weight)
    gradients = torch.autograd.grad(got, (features, weight))
    assert all(one.dtype == torch.float32 and torch.isfinite(one).all() for one in gradients)
    torch.testing.assert_close(got.float(), full, atol=5e-2, rtol=2e-2)


@pytest.mark.parametrize("name", NAMES)
def test_without_triton_the_plain_version_gives_the_same(
    device: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    fused = op(features, weight)
    monkeypatch.setattr(dispatch, "_TRITON_IS_INSTALLED", False)
    plain = op(features, weight)
    torch.testing.assert_close(plain, fused, atol=1e-5, rtol=1e-5)
    for one, other in zip(
        torch.autograd.grad(plain, (features, weight)), torch.autograd.grad(fused, (features, weight)), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_on_a_cpu_the_plain_version_runs_in_float64_too(name: str) -> None:
    features, weight, labels = draw("cpu")
    op = ops(labels)[name]
    wide = op(features.double(), weight.double())
    torch.testing.assert_close(op(features, weight).double(), wide.double(), atol=1e-4, rtol=1e-4)


def test_the_door_knows_who_may_enter() -> None:
    assert not dispatch.runs_fused(torch.zeros(2, dtype=torch.float64))
    mixed = dispatch.same_precision((torch.zeros(1, dtype=torch.bfloat16), nn.Parameter(torch.zeros(1))))
    assert [one.dtype for one in mixed] == [torch.float32, torch.float32]
