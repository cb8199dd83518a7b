"""`linear_gradient_rescaling`, fused, equals logits first and loss then, in value and in every gradient."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hardsight import distributed
from hardsight.losses import linear_gradient_rescaling

rescaled_linear_cross_entropy = functools.partial(linear_gradient_rescaling, fused=True)
reference = functools.partial(linear_gradient_rescaling, fused=False)
SHAPES = [(9, 17, 71), (3, 40, 2)]


def draw(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> tuple[list[Tensor], Tensor, Tensor]:
    samples, dim, classes = shape
    generator = torch.Generator().manual_seed(classes)
    inputs = [torch.randn(samples, dim, generator=generator), torch.randn(classes, dim, generator=generator)]
    inputs = [one.to(dtype).to(device) for one in (*inputs, torch.randn(classes, generator=generator))]
    labels = torch.randint(0, classes, (samples,), generator=generator)
    labels[0] = -100
    return inputs, labels.to(device), torch.rand(samples, generator=generator).to(device) + 0.1


def gradients(
    function: Callable[..., Tensor], inputs: list[Tensor], labels: Tensor, **options: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    leaves = [one.clone().requires_grad_() for one in inputs]
    value = function(*leaves, labels, **options)
    return value.detach(), torch.autograd.grad(2 * value, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("reduction", "transform", "epsilon"), [("weight", "exp", 0.1), ("mean", "identity", 0.0), ("sum", "exp", 0.0)]
)
def test_value_and_gradients_stay_in_the_budget(
    device: str,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    reduction: str,
    transform: str,
    epsilon: float,
    within_budget: Callable[..., None],
) -> None:
    inputs, labels, weight = draw(shape, dtype, device)
    options = {"beta": 6.0, "lam": 0.4, "transform": transform, "reduction": reduction, "sample_weight": weight}
    options["epsilon"] = epsilon
    doubled = [one.double() for one in inputs]
    true_value, truth = gradients(reference, doubled, labels, **options)
    _, plain = gradients(reference, inputs, labels, **options)
    value, got = gradients(rescaled_linear_cross_entropy, inputs, labels, **options)
    torch.testing.assert_close(value.double(), true_value.double(), atol=3e-5, rtol=1e-5)
    for one, ordinary, true in zip(got, plain, truth, strict=True):
        within_budget(one.cpu(), ordinary.cpu(), true.cpu(), 36.0 if dtype == torch.float32 else 4.0)


def test_large_beta_neither_overflows_nor_drowns(device: str) -> None:
    inputs, labels, _ = draw((5, 7, 10), torch.float32, device)
    _, truth = gradients(reference, [one.double() for one in inputs], labels, beta=400.0)
    _, got = gradients(rescaled_linear_cross_entropy, inputs, labels, beta=400.0)
    for one, true in zip(got, truth, strict=True):
        torch.testing.assert_close(one.double(), true, atol=1e-4, rtol=1e-3)


def test_weights_are_summed_over_processes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels, _ = draw((5, 7, 10), torch.float32, device)
    _, alone = gradients(rescaled_linear_cross_entropy, inputs, labels)
    # Two processes, the other with three times these weights: twice as much on average.
    monkeypatch.setattr(distributed, "world_size", lambda group=None: 2)
    monkeypatch.setattr(distributed, "log_sum_over_processes", lambda log_sum, group=None: log_sum + math.log(4.0))
    _, twice = gradients(rescaled_linear_cross_entropy, inputs, labels)
    for one, half in zip(alone, twice, strict=True):
        torch.testing.assert_close(half, one / 2)


def test_without_bias_and_without_gradient(device: str) -> None:
    (features, weight, _), labels, _ = draw((5, 7, 10), torch.float32, device)
    with torch.no_grad():
        got = rescaled_linear_cross_entropy(features.requires_grad_(), weight, None, labels)
    torch.testing.assert_close(got, reference(features.detach(), weight, None, labels))


def test_rows_wider_than_a_program_and_samples_beyond_a_block(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hardsight.kernels.fused import angular_cross_entropy as angular
    from hardsight.kernels.fused import rescaled_linear_cross_entropy as fused

    monkeypatch.setattr(fused, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(angular, "WIDEST", 16)
    inputs, labels, weight = draw((131, 5, 21), torch.float32, device)
    true_value, truth = gradients(reference, [one.double() for one in inputs], labels, sample_weight=weight)
    value, got = gradients(rescaled_linear_cross_entropy, inputs, labels, sample_weight=weight)
    torch.testing.assert_close(value.double(), true_value.double(), atol=2e-5, rtol=1e-5)
    for one, true in zip(got, truth, strict=True):
        torch.testing.assert_close(one.double(), true.double(), atol=1e-6, rtol=1e-3)


def test_one_class_alone_is_no_choice(device: str) -> None:
    inputs, labels, _ = draw((3, 4, 1), torch.float32, device)
    for version in (rescaled_linear_cross_entropy, reference):
        with pytest.raises(ValueError, match=r"two classes or more; got"):
            version(*inputs, labels)


@pytest.mark.parametrize("trained", [(0,), (1,), (2,), (0, 2)])
def test_only_what_is_trained_gets_a_gradient(device: str, trained: tuple[int, ...]) -> None:
    inputs, labels, _ = draw((5, 7, 10), torch.float32, device)
    inputs[2] = inputs[2].to(torch.bfloat16)  # a bias may have a type of its own
    _, want = gradients(rescaled_linear_cross_entropy, inputs, labels)
    leaves = [one.clone().requires_grad_(i in trained) for i, one in enumerate(inputs)]
    (2 * rescaled_linear_cross_entropy(*leaves, labels)).backward()
    for i, leaf in enumerate(leaves):
        assert leaf.grad is None if i not in trained else torch.equal(leaf.grad, want[i])


def test_a_known_normaliser_replaces_the_sum_of_the_weights(device: str) -> None:
    inputs, labels, _ = draw((5, 7, 10), torch.float32, device)
    _, want = gradients(rescaled_linear_cross_entropy, inputs, labels, normaliser=torch.tensor(3.0))
    _, total = gradients(rescaled_linear_cross_entropy, inputs, labels, reduction="sum")
    for one, other in zip(want, total, strict=True):
        torch.testing.assert_close(one, other / 3)


def test_the_loss_is_the_same_with_and_without_gradient_and_the_same_bits_twice(device: str) -> None:
    inputs, labels, weight = draw((131, 40, 21), torch.float32, device)
    trained, _ = gradients(rescaled_linear_cross_entropy, inputs, labels, sample_weight=weight)
    with torch.no_grad():
        alone, again = (rescaled_linear_cross_entropy(*inputs, labels, sample_weight=weight) for _ in range(2))
    assert torch.equal(alone, again)
    torch.testing.assert_close(alone, trained, atol=1e-6, rtol=1e-6)
