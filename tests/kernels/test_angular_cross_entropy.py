"""`avh_loss`, fused: value and gradients for features, weight and scale against float64, also at 0 and pi."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hardsight.geometry import angle_between
from hardsight.losses import avh_loss

angular_cross_entropy = functools.partial(avh_loss, fused=True)
reference = functools.partial(avh_loss, fused=False)
SHAPES = [(9, 17, 70), (3, 40, 2)]


def draw(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    samples, dim, classes = shape
    generator = torch.Generator().manual_seed(classes)
    features = torch.randn(samples, dim, generator=generator).to(dtype).to(device)
    weight = torch.randn(classes, dim, generator=generator).to(dtype).to(device)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    labels[0] = -100
    return features, weight, labels.to(device), torch.rand(samples, generator=generator).to(device) + 0.1


def gradients(
    function: Callable[..., Tensor], features: Tensor, weight: Tensor, labels: Tensor, **options: Any
) -> tuple[Tensor, list[Tensor]]:
    wide = torch.promote_types(features.dtype, torch.float32)
    scale = torch.tensor(7.0, dtype=wide, device=features.device)
    leaves = [one.clone().requires_grad_() for one in (features, weight, scale)]
    value = function(leaves[0], leaves[1], labels, leaves[2], **options)
    upstream = torch.linspace(0.5, 2.0, value.numel(), device=value.device, dtype=value.dtype).reshape(value.shape)
    return value.detach(), list(torch.autograd.grad((value * upstream).sum(), leaves))


def test_the_plain_version_is_the_loop() -> None:
    features, weight, labels, _ = draw((6, 5, 4), torch.float64, "cpu")
    losses = []
    for x, label in zip(features[1:], labels[1:].tolist(), strict=True):
        logits = [7.0 * (math.pi - float(angle_between(x, w))) for w in weight]
        losses.append(math.log(math.fsum(math.exp(z) for z in logits)) - logits[label])
    want = torch.tensor(math.fsum(losses) / len(losses), dtype=torch.float64)
    torch.testing.assert_close(reference(features, weight, labels, 7.0), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("reduction", "recompute"), [("mean", False), ("mean", True), ("sum", False), ("none", False)])
def test_value_and_gradients_stay_in_the_budget(
    device: str,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    reduction: str,
    recompute: bool,
    within_budget: Callable[..., None],
) -> None:
    features, weight, labels, sample_weight = draw(shape, dtype, device)
    options = {"sample_weight": sample_weight, "reduction": reduction}
    true_value, truth = gradients(reference, features.double(), weight.double(), labels, **options)
    _, plain = gradients(reference, features, weight, labels, **options)
    value, got = gradients(angular_cross_entropy, features, weight, labels, recompute=recompute, **options)
    torch.testing.assert_close(value.double(), true_value, atol=2e-5, rtol=1e-5)
    for one, ordinary, true in zip(got, plain, truth, strict=True):
        # Slopes are rounded to the inputs' type once more than in the plain path, which makes them in float32.
        rounding = torch.finfo(dtype).eps / torch.finfo(one.dtype).eps
        within_budget(one.cpu(), ordinary.cpu(), true.cpu(), 4.0 * rounding + 32.0)


def test_leaving_out_the_projection_fails_that_law(device: str, within_budget: Callable[..., None]) -> None:
    features, weight, labels, _ = draw((9, 17, 70), torch.float32, device)
    _, truth = gradients(reference, features.double(), weight.double(), labels)
    _, got = gradients(angular_cross_entropy, features, weight, labels)
    radial = got[0] + 0.01 * features * got[0].norm() / features.norm()
    with pytest.raises(AssertionError):
        within_budget(radial.cpu(), got[0].cpu(), truth[0].cpu(), 36.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parallel_opposite_zero_and_huge_vectors_stay_finite(device: str, dtype: torch.dtype) -> None:
    features, weight, labels, _ = draw((6, 8, 5), dtype, device)
    labels[0] = 0
    features[1], features[2], features[3] = weight[labels[1]], -weight[labels[2]], 0
    weight[4] = 0
    if dtype != torch.float16:
        features[4], features[5], weight[3] = features[4] * 1e25, features[5] * 1e-18, weight[3] * 1e-18
    value, got = gradients(angular_cross_entropy, features, weight, labels)
    assert torch.isfinite(value)
    assert all(torch.isfinite(one).all() for one in got)
    assert torch.equal(got[0][3], torch.zeros_like(got[0][3]))
    assert torch.equal(got[1][4], torch.zeros_like(got[1][4]))


def test_gradients_are_tangent_to_the_sphere(device: str) -> None:
    features, weight, labels, _ = draw((12, 16, 30), torch.float32, device)
    _, got = gradients(angular_cross_entropy, features, weight, labels)
    radial = (got[0] * features).sum(1) / features.norm(dim=1) / got[0].norm(dim=1).clamp_min(1e-30)
    assert radial.abs().max() < 1e-4


@pytest.mark.parametrize("dim", [5, 24], ids=["gradient waits", "slopes wait"])
def test_rows_wider_than_a_program_and_samples_beyond_a_block(
    device: str, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hardsight.kernels.fused import angular_cross_entropy as fused

    monkeypatch.setattr(fused, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(fused, "WIDEST", 16)
    features, weight, labels, sample_weight = draw((130, dim, 21), torch.float32, device)
    for recompute in (False, True):
        options = {"sample_weight": sample_weight}
        true_value, truth = gradients(reference, features.double(), weight.double(), labels, **options)
        value, got = gradients(angular_cross_entropy, features, weight, labels, recompute=recompute, **options)
        torch.testing.assert_close(value.double(), true_value, atol=2e-5, rtol=1e-5)
        for one, true in zip(got, truth, strict=True):
            torch.testing.assert_close(one.double(), true.double(), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("upstream", [1.0, 3.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kept_graph_gives_the_same_gradients_again(
    device: str, dtype: torch.dtype, upstream: float, shape: tuple[int, int, int]
) -> None:
    features, weight, labels, _ = draw(shape, dtype, device)
    leaves = [features.requires_grad_(), weight.requires_grad_()]
    loss = upstream * angular_cross_entropy(features, weight, labels)
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    held = [one.clone() for one in first]
    second = torch.autograd.grad(loss, leaves, retain_graph=True)
    third = torch.autograd.grad(loss, leaves)
    for before, *others in zip(held, first, second, third, strict=True):
        assert all(torch.equal(before, one) for one in others)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("trained", [0, 1])
@pytest.mark.parametrize("dim", [17, 64], ids=["gradient waits", "slopes wait"])
def test_what_is_frozen_costs_no_product(
    device: str, dim: int, trained: int, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hardsight.kernels import dispatch
    from hardsight.kernels.fused import directions

    features, weight, labels, _ = draw((9, dim, 64), torch.float32, device)
    _, both = gradients(angular_cross_entropy, features, weight, labels)
    counted = []

    def product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        counted.append(1)
        return torch.mm(left, right, out=out)

    for module in (dispatch, directions):
        monkeypatch.setattr(module, "product", product)
    leaf = (features, weight)[trained].requires_grad_()
    loss = angular_cross_entropy(features, weight, labels, 7.0, recompute=recompute)
    (got,) = torch.autograd.grad(loss * 0.5, leaf)
    assert torch.equal(got, both[trained])
    assert len(counted) == (3 if recompute else 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("widest", [8192, 16])
def test_the_part_of_the_waiting_slopes_along_the_features_is_known(
    device: str, dtype: torch.dtype, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hardsight.kernels.fused import angular_cross_entropy as fused

    monkeypatch.setattr(fused, "WIDEST", widest)
    features, weight, labels, sample_weight = draw((40, 64, 21), dtype, device)
    features[3], features[4], weight[2] = 0, weight[labels[4]], 0
    given = (features, weight, labels, None, 7.0, sample_weight, -100, "mean", None, [True] * 3)
    _, _, slopes, *_, along = torch.ops.hardsight.angular_walk(*given)
    x, gradient = features.double(), slopes[:, :21].double() @ weight.double()
    tangent = gradient - along.double()[:, None] * x
    radial = (tangent * x).sum(1).abs()
    assert (radial <= 1e-5 * gradient.norm(dim=1) * x.norm(dim=1) + 1e-12).all()
    assert float((gradient * x).sum(1).abs().max()) > 1e-2, "nothing along the features"
    assert (along[0], along[3]) == (0.0, 0.0)


def test_weights_of_samples_can_be_learned(device: str) -> None:
    features, weight, labels, sample_weight = draw((6, 8, 5), torch.float32, device)
    found = []
    for function in (angular_cross_entropy, reference):
        leaf = sample_weight.clone().requires_grad_()
        found.append(torch.autograd.grad(function(features, weight, labels, sample_weight=leaf), leaf)[0])
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("recompute", [False, True])
def test_scale_alone_may_be_trained_in_any_shape_and_type(device: str, recompute: bool) -> None:
    features, weight, labels, _ = draw((6, 8, 5), torch.float32, device)
    want = torch.tensor(4.0, dtype=torch.float64, device=device, requires_grad=True)
    (true,) = torch.autograd.grad(reference(features.double(), weight.double(), labels, want), want)
    for shape, dtype in (((1,), torch.float32), ((), torch.bfloat16)):
        scale = torch.full(shape, 4.0, dtype=dtype, device=device, requires_grad=True)
        value = angular_cross_entropy(features, weight, labels, scale, recompute=recompute)
        (got,) = torch.autograd.grad(value, scale)
        assert (got.shape, got.dtype) == (scale.shape, dtype)
        torch.testing.assert_close(
            got.double().reshape(()), true, atol=1e-5, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5
        )
