"""`gradient_rescaling`, fused: its gradient against a float64 loop, its special cases, and p = 0 and p = 1."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hardsight.losses.rescaling import gradient_rescaling, linear_gradient_rescaling

fused = functools.partial(gradient_rescaling, fused=True)
plainly = functools.partial(gradient_rescaling, fused=False)
# The first is more rows than one program takes, the third wider than one reads at a time.
SHAPES = [(300, 3), (4, 1000), (2, 9_001), (6, 2)]


def loop(logits: Tensor, labels: Tensor, beta: float, lam: float, weight: Tensor, reduction: str) -> Tensor:
    """The gradient of each logit, in float64, from the formula (GR, Eq. 6)."""
    rows, magnitudes = [], []
    for z, y, v in zip(logits.double().tolist(), labels.tolist(), weight.double().tolist(), strict=True):
        label = max(y, 0)
        top = max(z)
        p = [math.exp(one - top) for one in z]
        total = math.fsum(p)
        p = [one / total for one in p]
        rest = math.fsum(one for k, one in enumerate(p) if k != label)
        rows.append([-0.5 if k == label else one / rest / 2 for k, one in enumerate(p)])
        magnitudes.append(0.0 if y < 0 else v * math.exp(beta * p[label] ** lam * rest))
    divisor = {"weight": math.fsum(magnitudes), "mean": float(weight[labels >= 0].double().sum())}.get(reduction, 1.0)
    return torch.tensor([[m / divisor * g for g in row] for m, row in zip(magnitudes, rows, strict=True)]).double()


def draw(shape: tuple[int, int], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(shape[1])
    logits = (3 * torch.randn(shape, generator=generator)).to(dtype).to(device)
    labels = torch.randint(0, shape[1], shape[:1], generator=generator)
    labels[0] = -100
    return logits, labels.to(device), torch.rand(shape[0], generator=generator).to(device) + 0.1


def gradient(function: Callable[..., Tensor], logits: Tensor, labels: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    value = function(leaf, labels, **options)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["weight", "mean", "none"])
def test_the_gradient_equals_the_loop(
    device: str, shape: tuple[int, int], dtype: torch.dtype, reduction: str, within_budget: Callable[..., None]
) -> None:
    logits, labels, weight = draw(shape, dtype, device)
    options = {"beta": 6.0, "lam": 0.5, "sample_weight": weight, "reduction": reduction}
    truth = loop(logits.cpu(), labels.cpu(), 6.0, 0.5, weight.cpu(), reduction)
    value, got = gradient(fused, logits, labels, **options)
    plain_value, plain = gradient(plainly, logits, labels, **options)
    within_budget(got.cpu(), plain.cpu(), truth, 8.0)
    torch.testing.assert_close(value, plain_value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("beta", "lam", "power"), [(2.0, 0.0, 0.0), (4.0, 1.0, 1.0), (2.0, 0.7, 0.7)])
def test_cross_entropy_mae_and_gce_are_special_cases(device: str, beta: float, lam: float, power: float) -> None:
    logits, labels, _ = draw((5, 300), torch.float32, device)
    _, got = gradient(fused, logits, labels, beta=beta, lam=lam, transform="identity", reduction="sum")
    leaf = logits.double().requires_grad_()
    p = leaf.softmax(1).gather(1, labels.clamp_min(0)[:, None]).squeeze(1)
    losses = -p.log() if power == 0 else beta / 2 * (1 - p**power) / power
    want = torch.autograd.grad(losses[labels >= 0].sum(), leaf)[0]
    torch.testing.assert_close(got.double(), want, atol=1e-6, rtol=1e-4)


def test_cross_entropys_magnitude_is_not_maes(device: str) -> None:
    logits, labels, _ = draw((5, 300), torch.float32, device)
    options = {"transform": "identity", "reduction": "sum"}
    _, entropy = gradient(fused, logits, labels, beta=2.0, lam=0.0, **options)
    _, absolute = gradient(fused, logits, labels, beta=4.0, lam=1.0, **options)
    assert not torch.allclose(entropy, absolute)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_certain_and_impossible_labels_keep_the_direction(device: str, dtype: torch.dtype) -> None:
    logits = torch.tensor(
        [[90.0, 0.0, 0.0], [-90.0, 0.0, 0.0], [0.0, -math.inf, -math.inf]], dtype=dtype, device=device
    )
    labels = torch.zeros(3, dtype=torch.int64, device=device)
    want = torch.tensor([[-0.5, 0.25, 0.25], [-0.5, 0.25, 0.25], [0.0, 0.0, 0.0]], device=device)
    for version in (fused, plainly):
        value, got = gradient(version, logits, labels, reduction="sum", epsilon=0.0)
        torch.testing.assert_close(got.float(), want, atol=1e-3, rtol=1e-3)
        assert torch.isfinite(value)


@pytest.mark.parametrize("reduction", ["weight", "mean", "sum", "none"])
def test_epsilon_lets_go_of_fitted_samples_as_the_loss_does(device: str, reduction: str) -> None:
    # p of the label from 1 - 4e-7 down: the first rows are let go by half and more, the last not at all.
    logits = torch.zeros(6, 3, device=device)
    logits[:, 0] = torch.tensor([15.4, 14.0, 10.0, 3.0, 0.0, -20.0], device=device)
    labels = torch.zeros(6, dtype=torch.int64, device=device)
    options = {"beta": 6.0, "lam": 0.5, "epsilon": 1e-6, "reduction": reduction}
    value, got = gradient(fused, logits, labels, **options)
    want_value, want = gradient(gradient_rescaling, logits.double(), labels, **options)
    torch.testing.assert_close(got.double(), want, atol=1e-7, rtol=2e-5)
    torch.testing.assert_close(value.double(), want_value, atol=1e-6, rtol=1e-5)
    _, plain = gradient(plainly, logits, labels, **options)
    torch.testing.assert_close(plain.double(), want, atol=1e-7, rtol=2e-5)
    _, without = gradient(fused, logits, labels, **options | {"epsilon": 0.0})
    share = (got / without)[:, 0]
    torch.testing.assert_close(share[0], torch.tensor(8e-7 / 1.8e-6, device=device), atol=0.02, rtol=0.0)
    torch.testing.assert_close(share[-2:], torch.ones(2, device=device))


def test_in_place_writes_the_same_gradient_over_the_logits(device: str) -> None:
    logits, labels, weight = draw((4, 1000), torch.bfloat16, device)
    _, want = gradient(fused, logits, labels, sample_weight=weight)
    leaf = logits.clone().requires_grad_()
    passed = leaf * 1.0
    got = torch.autograd.grad(fused(passed, labels, sample_weight=weight, in_place=True), passed)[0]
    assert torch.equal(got, want)
    assert got.data_ptr() == passed.data_ptr()


def test_a_batch_of_ignored_labels_learns_nothing(device: str) -> None:
    logits, labels, _ = draw((4, 10), torch.float32, device)
    value, got = gradient(fused, logits, torch.full_like(labels, -100))
    assert value == 0
    assert torch.equal(got, torch.zeros_like(got))


def test_a_known_normaliser_replaces_the_sum_of_the_weights(device: str) -> None:
    logits, labels, _ = draw((4, 10), torch.float32, device)
    _, total = gradient(fused, logits, labels, reduction="sum")
    _, got = gradient(fused, logits, labels, normaliser=7.0)
    torch.testing.assert_close(got, total / 7.0)


def test_a_normaliser_may_be_a_tensor_of_any_type(device: str) -> None:
    logits, labels, _ = draw((4, 10), torch.float32, device)
    _, want = gradient(fused, logits, labels, normaliser=7.0)
    for dtype in (torch.float64, torch.bfloat16):
        _, got = gradient(fused, logits, labels, normaliser=torch.tensor(7.0, dtype=dtype))
        torch.testing.assert_close(got, want)


def test_views_and_short_integers_are_read_as_they_lie(device: str) -> None:
    wide, labels, weight = draw((6, 300), torch.bfloat16, device)
    labels = labels.clamp(0, 250)
    _, want = gradient(fused, wide[:, :251].contiguous(), labels, sample_weight=weight)
    spread_weight = torch.stack((weight, weight), 1)[:, 0]
    spread_labels = torch.stack((labels, labels), 1).to(torch.uint8)[:, 0]
    leaf = wide.clone().requires_grad_()
    value = fused(leaf[:, :251], spread_labels, sample_weight=spread_weight, ignore_index=255)
    got = torch.autograd.grad(value, leaf)[0]
    assert torch.equal(got[:, :251], want)
    assert not got[:, 251:].any()


def test_without_power_an_impossible_label_has_its_weight(device: str) -> None:
    logits = torch.tensor([[-math.inf, 0.0, 1.0], [0.0, 0.0, 1.0]], device=device)
    options = {"lam": 0.0, "beta": 2.0, "reduction": "sum"}
    for transform in ("exp", "identity"):
        _, got = gradient(fused, logits, torch.tensor([0, 1], device=device), transform=transform, **options)
        _, want = gradient(plainly, logits, torch.tensor([0, 1], device=device), transform=transform, **options)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("reduction", ["weight", "mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_logits_have_a_finite_value(device: str, dtype: torch.dtype, reduction: str) -> None:
    largest = torch.finfo(dtype).max
    logits = torch.tensor([[largest, -largest, 0.0], [-largest, largest, 0.0], [0.0, 1.0, 2.0]], device=device)
    labels = torch.tensor([1, 0, 2], device=device)
    value, got = gradient(fused, logits.to(dtype), labels, reduction=reduction)
    plain, _ = gradient(plainly, logits.to(dtype), labels, reduction=reduction)
    torch.testing.assert_close(value, plain)
    assert value.isfinite().all()
    assert got.isfinite().all()
    if reduction != "none":
        eye = torch.eye(3, dtype=dtype, device=device)
        torch.testing.assert_close(
            linear_gradient_rescaling(logits.to(dtype), eye, None, labels, reduction=reduction, fused=True), plain
        )
