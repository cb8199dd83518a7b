"""`amc_loss` over all pairs, fused, against a loop over pairs in float64, also where vectors meet or oppose."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hardsight.geometry import angle_between
from hardsight.losses import amc_loss

pairwise_angular_contrast = functools.partial(amc_loss, pairs="all", fused=True)
reference = functools.partial(amc_loss, pairs="all", fused=False)
SHAPES = [(5, 7), (19, 20), (2, 3)]


def draw(shape: tuple[int, int], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(shape[0])
    features = torch.randn(shape, generator=generator).to(dtype).to(device)
    labels = torch.randint(0, 3, shape[:1], generator=generator)
    return features, labels.to(device), torch.rand(shape[0], generator=generator).to(device) + 0.1


def gradient(function: Callable[..., Tensor], features: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = features.clone().requires_grad_()
    value = function(leaf, *rest, **options)
    return value.detach(), torch.autograd.grad(2 * value, leaf)[0]


def test_the_plain_version_is_the_loop() -> None:
    features, labels, weight = draw((9, 5), torch.float64, "cpu")
    total, pairs = 0.0, 0.0
    for i in range(9):
        for j in range(i + 1, 9):
            angle = float(angle_between(features[i], features[j]))
            distance = angle if labels[i] == labels[j] else max(0.0, 1.2 - angle)
            total += float(weight[i] * weight[j]) * distance**2
            pairs += float(weight[i] * weight[j])
    got = reference(features, labels, 1.2, sample_weight=weight)
    assert math.isclose(float(got), total / pairs, rel_tol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_value_and_gradient_stay_in_the_budget(
    device: str, shape: tuple[int, int], dtype: torch.dtype, reduction: str, within_budget: Callable[..., None]
) -> None:
    features, labels, weight = draw(shape, dtype, device)
    labels[0] = labels[1]
    options = {"sample_weight": weight, "reduction": reduction}
    true_value, truth = gradient(reference, features.double(), labels, 2.0, **options)
    _, plain = gradient(reference, features, labels, 2.0, **options)
    value, got = gradient(pairwise_angular_contrast, features, labels, 2.0, **options)
    torch.testing.assert_close(value.double(), true_value.double(), atol=1e-5, rtol=1e-5)
    within_budget(got.cpu(), plain.cpu(), truth.cpu(), 4.0 if dtype != torch.float32 else 32.0)


def test_meeting_opposite_zero_and_tiny_vectors_stay_finite(device: str) -> None:
    features, labels, _ = draw((8, 6), torch.float32, device)
    features[1], features[2], features[3] = features[0], -features[0], 0
    features[4:6] *= 1e-18
    for margin in (0.5, math.pi):
        value, got = gradient(pairwise_angular_contrast, features, labels, margin)
        assert torch.isfinite(value)
        assert torch.isfinite(got).all()
    assert torch.equal(got[3], torch.zeros_like(got[3]))


def test_an_ignored_label_pairs_with_nobody(device: str) -> None:
    features, labels, _ = draw((8, 6), torch.float32, device)
    labels[2] = labels[5] = -100
    kept = torch.tensor([0, 1, 3, 4, 6, 7], device=device)
    got = pairwise_angular_contrast(features, labels, 1.5)
    torch.testing.assert_close(got, pairwise_angular_contrast(features[kept], labels[kept], 1.5))


def test_samples_beyond_a_block_pair_with_all_others(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hardsight.kernels.fused import pairwise_angular_contrast as fused

    monkeypatch.setattr(fused, "_BLOCK_ELEMENTS", 1)
    features, labels, weight = draw((131, 5), torch.float32, device)
    true_value, truth = gradient(reference, features.double(), labels, 2.0, sample_weight=weight)
    value, got = gradient(pairwise_angular_contrast, features, labels, 2.0, sample_weight=weight)
    torch.testing.assert_close(value.double(), true_value.double(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got.double(), truth.double(), atol=1e-6, rtol=1e-3)


def test_one_sample_has_no_pair(device: str) -> None:
    features, labels, _ = draw((1, 6), torch.float32, device)
    value, got = gradient(pairwise_angular_contrast, features, labels)
    assert value == 0
    assert not got.any()


def test_no_kernel_makes_single_pairs() -> None:
    with pytest.raises(ValueError, match=r"fused must be .*'mean' or 'sum'.*got True"):
        pairwise_angular_contrast(torch.randn(3, 2), torch.zeros(3, dtype=torch.int64), reduction="none")
