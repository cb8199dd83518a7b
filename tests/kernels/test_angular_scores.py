"""`angular_scores` against a loop in float64: ragged shapes, every dtype, parallel, opposite, zero and huge vectors."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hardsight.hardness import ClassSummary, summarise
from hardsight.kernels.angular_scores import AngularScores, angular_scores

SHAPES = [(5, 7, 10), (66, 24, 130), (3, 100, 2), (1, 1, 3), (33, 48, 65)]


def reference(features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None) -> ClassSummary:
    """The plain formula of the same numbers."""
    return summarise(features, weight, labels, bias, fused=False)


def angle(x: list[float], y: list[float]) -> float:
    """Kahan's half-angle formula, in float64; pi/2 where a vector is zero."""
    own, other = math.hypot(*x), math.hypot(*y)
    if own == 0 or other == 0:
        return math.pi / 2
    apart = math.hypot(*(a / own - b / other for a, b in zip(x, y, strict=True)))
    together = math.hypot(*(a / own + b / other for a, b in zip(x, y, strict=True)))
    return 2 * math.atan2(apart, together)


def loop(features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None) -> AngularScores:
    """Sample by sample, class by class, in float64."""
    columns = []
    classes = weight.double().tolist()
    offsets = [0.0] * len(classes) if bias is None else bias.double().tolist()
    for x, label in zip(features.double().tolist(), labels.tolist(), strict=True):
        angles = [angle(x, w) for w in classes]
        logits = [
            math.fsum(a * c for a, c in zip(x, w, strict=True)) + b for w, b in zip(classes, offsets, strict=True)
        ]
        top = max(logits)
        total = math.fsum(math.exp(z - top) for z in logits)
        p = [math.exp(z - top) / total for z in logits]
        others = [k for k in range(len(logits)) if k != label]
        columns.append(
            (
                math.hypot(*x),
                angles[label],
                math.fsum(angles),
                min(angles[k] for k in others),
                logits[label],
                max(logits[k] for k in others),
                top + math.log(total),
                math.fsum(p[k] for k in others),
                math.fsum(p[k] ** 2 for k in others),
                -math.fsum(q * math.log(q) for q in p if q > 0),
                logits.index(top),
            )
        )
    return AngularScores(*[torch.tensor(column, dtype=torch.float64) for column in zip(*columns, strict=True)])


def draw(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    samples, dim, classes = shape
    generator = torch.Generator().manual_seed(samples + classes)
    features = torch.randn(samples, dim, generator=generator).to(dtype)
    weight = torch.randn(classes, dim, generator=generator).to(dtype)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    bias = torch.randn(classes, generator=generator)
    return features.to(device), weight.to(device), labels.to(device), bias.to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_number_equals_the_loop(
    device: str, shape: tuple[int, int, int], dtype: torch.dtype, within_budget: Callable[..., None]
) -> None:
    features, weight, labels, bias = draw(shape, dtype, device)
    truth = loop(features.cpu(), weight.cpu(), labels.cpu(), bias.cpu())
    got = angular_scores(features, weight, labels, bias, spread=True)
    plain = reference(features, weight, labels, bias)
    assert torch.equal(got.predicted.cpu().double(), truth.predicted)
    # The entropy is a sum of terms up to log C: where it is nearly 0 its error is still that of numbers near 1.
    torch.testing.assert_close(got.entropy.cpu().double(), truth.entropy, atol=3e-6, rtol=1e-5)
    for name in AngularScores._fields[:-2]:
        within_budget(getattr(got, name).cpu(), getattr(plain, name).cpu(), getattr(truth, name), 32.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_angles_alone_are_the_same_angles(device: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    features, weight, labels, bias = draw(shape, dtype, device)
    features[0] = 3 * weight[labels[0]]
    whole = angular_scores(features, weight, labels, bias, spread=True)
    alone = angular_scores(features, weight, labels, bias, logits=False, spread=True)
    for name in AngularScores._fields[:4]:
        torch.testing.assert_close(getattr(alone, name), getattr(whole, name), atol=2e-6, rtol=2e-6)
    assert not torch.stack(alone[4:-1]).any()
    assert (alone.predicted == -1).all()


def test_the_plain_version_in_float64_is_the_loop() -> None:
    features, weight, labels, bias = draw((9, 6, 5), torch.float64, "cpu")
    got = reference(features, weight, labels, bias.double())
    for name, want in loop(features, weight, labels, bias)._asdict().items():
        torch.testing.assert_close(getattr(got, name).double(), want)


def nearly_parallel(device: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    features, weight = torch.randn(8, 16, generator=generator), torch.randn(5, 16, generator=generator)
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 2, 4])
    nudge = torch.randn(16, generator=generator)
    features[0] = weight[0] + 1e-4 * nudge  # close to its label
    features[1] = -weight[1] + 1e-3 * nudge  # opposite to it
    features[2] = 3 * weight[4] + 1e-4 * nudge  # close to another
    features[3] = -weight[0]  # opposite to another
    features[4] = 2 * weight[0]
    features[5] = 0
    weight[3] = 0
    return features.to(device, dtype), weight.to(device, dtype), labels.to(device)


def test_angles_near_zero_and_pi_are_measured_not_guessed(device: str) -> None:
    features, weight, labels = nearly_parallel(device)
    truth = loop(features.cpu(), weight.cpu(), labels.cpu(), None)
    with torch.no_grad():
        got = angular_scores(features, weight, labels)
    for name in ("label_angle", "nearest_other_angle"):
        torch.testing.assert_close(getattr(got, name).cpu().double(), getattr(truth, name), atol=5e-7, rtol=1e-3)
    torch.testing.assert_close(got.angle_sum.cpu().double(), truth.angle_sum, atol=5e-6, rtol=2e-6)


def test_an_arccos_of_the_product_fails_that_law() -> None:
    features, weight, labels = nearly_parallel("cpu")
    truth = loop(features, weight, labels, None)
    cosine = torch.nn.functional.cosine_similarity(features, weight[labels])
    with pytest.raises(AssertionError):
        torch.testing.assert_close(cosine.clamp(-1, 1).acos().double(), truth.label_angle, atol=5e-7, rtol=1e-3)


def out_of_range(device: str, dtype: torch.dtype, weights: bool) -> tuple[Tensor, ...]:
    features, weight, labels, bias = draw((8, 24, 19), dtype, device)
    # The interpreter misreads bfloat16 below its smallest ordinary number.
    least = 1e-39 if dtype == torch.float32 else 1e-34
    for row, size in enumerate((1e25, 1e-25, 3e37, least, 1e13, 1e-13)):
        features[row] *= size
    features[6], weight[5] = 0, 0
    features[7, 0] = 1e18
    if weights:
        weight[2] *= 1e-22
        weight[3] *= 1e30
    return features, weight, labels, bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("version", [functools.partial(angular_scores, spread=True), reference])
def test_norms_beyond_the_range_of_squares_give_every_number_all_the_same(
    device: str, version: Callable[..., Any], weights: bool, dtype: torch.dtype
) -> None:
    features, weight, labels, bias = out_of_range(device, dtype, weights)
    got = version(features, weight, labels, bias)
    truth = reference(features.double(), weight.double(), labels)
    torch.testing.assert_close(got.feature_norm.double(), truth.feature_norm)
    for name in AngularScores._fields[1:4]:
        torch.testing.assert_close(getattr(got, name).double(), getattr(truth, name), atol=2e-6, rtol=2e-6)
    # Logits that float32 cannot hold are cut off at a quarter of its largest number.
    limit = torch.finfo(torch.float32).max / 4
    logits = ((features.double() @ weight.double().T).clamp(-limit, limit) + bias.double()).clamp(-limit, limit)
    others = logits.scatter(1, labels[:, None], -math.inf)
    log_p = logits.log_softmax(1)
    other_p = log_p.exp().scatter(1, labels[:, None], 0.0)
    for name, want in {
        "label_logit": logits.gather(1, labels[:, None]).squeeze(1),
        "largest_other_logit": others.amax(1),
        "log_sum_exp": logits.logsumexp(1),
        "other_probability": other_p.sum(1),
        "other_squares": other_p.square().sum(1),
        "entropy": -(log_p.exp() * log_p).sum(1),
    }.items():
        torch.testing.assert_close(getattr(got, name).double(), want, atol=1e-4, rtol=1e-5)
    assert torch.equal(logits.gather(1, got.predicted[:, None]).squeeze(1), logits.amax(1))
    if version is not reference:
        alone = angular_scores(features, weight, labels, bias, logits=False)
        for one, other in zip(alone[:4], got[:4], strict=True):
            assert torch.equal(one, other)


def test_what_is_not_finite_shows(device: str) -> None:
    features, weight, labels, _ = draw((6, 8, 4), torch.bfloat16, device)
    features[0, 1], features[1, 2] = math.nan, math.inf
    got = angular_scores(features, weight, labels)
    assert got.angle_sum[:2].isnan().all()
    assert got.label_angle[:2].isnan().all()
    assert torch.stack(got[:-1])[:, 2:].isfinite().all()


def test_without_labels_the_predicted_class_is_the_label(device: str) -> None:
    features, weight, _, bias = draw((20, 16, 9), torch.bfloat16, device)
    got = angular_scores(features, weight, None, bias)
    again = angular_scores(features, weight, got.predicted, bias)
    for one, other in zip(got, again, strict=True):
        assert torch.equal(one, other)
    assert (got.label_logit >= got.largest_other_logit).all()


def test_rotating_and_scaling_change_no_angle(device: str) -> None:
    features, weight, labels, _ = draw((12, 16, 20), torch.float32, device)
    turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)))[0].to(device)
    before, after = angular_scores(features, weight, labels), angular_scores(7 * features @ turn, weight @ turn, labels)
    torch.testing.assert_close(after.angle_sum, before.angle_sum)
    torch.testing.assert_close(after.label_angle, before.label_angle, atol=1e-5, rtol=1e-5)


def test_float32_never_runs_in_tf32_unless_the_user_allows_it(device: str) -> None:
    features, weight, labels, _ = draw((16, 512, 32), torch.float32, device)
    truth = reference(features.double(), weight.double(), labels)
    got = angular_scores(features, weight, labels)
    # TF32 keeps 10 bits: its error here is about 1e-4 of the logits.
    assert ((got.label_logit.double() - truth.label_logit).norm() / truth.label_logit.norm()) < 2e-6


@pytest.mark.parametrize(
    ("stages", "spread", "hopper"),
    [(4, False, False), (3, True, False), (2, False, False), (4, False, True), (3, True, True)],
)
def test_the_large_tiles_of_many_classes_give_the_same_numbers(
    device: str, stages: int, spread: bool, hopper: bool, within_budget: Callable[..., None]
) -> None:
    fused = pytest.importorskip("hardsight.kernels.fused.angular_scores")
    norms = pytest.importorskip("hardsight.kernels.fused.angular_norms")
    tilings = pytest.importorskip("hardsight.kernels.fused.angular_norms")
    if hopper and (device != "cuda" or not tilings.serves_hopper(torch.device(device))):
        pytest.skip("no Hopper device, or another Triton than the kernel was tried with")
    shape = (3000, 512, 5001) if device == "cuda" else (130, 72, 270)
    features, weight, labels, bias = draw(shape, torch.bfloat16, device)
    features[3], weight[7], features[5] = 0, 0, -2 * weight[9]
    tiling = tilings.Tiling(128, 256, 64, 8, stages, hopper)
    measured = norms.measure(features, weight, tiling)
    numbers, predicted = fused.scan(features, weight, labels, bias, (True, spread), "ieee", measured)
    truth = reference(features.double(), weight.double(), labels, bias.double())
    plain = reference(features, weight, labels, bias)
    # Two logits may be equal to float32's rounding: then either class is right.
    logits = features.double() @ weight.double().T + bias.double()
    assert (logits.gather(1, predicted[:, None])[:, 0] > logits.amax(1) - 1e-4).all()
    assert measured.weight_inverse.isfinite().all()
    for got, name in zip(numbers, AngularScores._fields[: -1 if spread else 8], strict=False):
        within_budget(got.cpu(), getattr(plain, name).cpu(), getattr(truth, name).cpu(), 32.0)
    alone, _ = fused.scan(features, weight, labels, bias, (False, False), "ieee", measured)
    assert torch.equal(alone[:4], numbers[:4])


def test_tiles_of_nearly_right_angles_and_tiles_of_any_are_added_up_alike(
    device: str, within_budget: Callable[..., None]
) -> None:
    # In 400 dimensions every |cosine| of random vectors is below a half; class 70 alone leans on one sample, so that
    # its tile of classes is folded in full and the others by the short polynomial.
    features, weight, labels, bias = draw((70, 400, 150), torch.bfloat16, device)
    weight[70] += 2 * features[1]
    labels[1], labels[2] = 3, 149
    cosines = torch.nn.functional.cosine_similarity(features.double()[:, None], weight.double()[None], dim=2)
    assert cosines[1, 70] > 0.8
    cosines[1, 70] = 0
    assert cosines.abs().max() < 0.4
    truth = reference(features.double(), weight.double(), labels, bias.double())
    got = angular_scores(features, weight, labels, bias, spread=True)
    plain = reference(features, weight, labels, bias)
    for name in AngularScores._fields[:-2]:
        within_budget(getattr(got, name).cpu(), getattr(plain, name).cpu(), getattr(truth, name).cpu(), 32.0)
    lack = 150 * math.pi / 2 - truth.angle_sum
    # The short polynomial where it does not hold would be off by a hundredth.
    torch.testing.assert_close(150 * math.pi / 2 - got.angle_sum.double(), lack, atol=3e-5, rtol=1e-5)


def left_out(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """In 400 dimensions, so that no |cosine| of random vectors is above a half; what is special is set by hand."""
    features, weight, labels, _ = draw((70, 400, 150), torch.bfloat16, device)
    weight[20] = 0
    labels[:2] = 20  # the label has no direction
    features[2] = -weight[labels[2]]  # opposite to its label
    features[3] = 2 * weight[labels[3]]
    direction = features[4] / features[4].float().norm()
    weight -= (1 + (features[4] @ weight.T).float().abs() / 20)[:, None].to(weight.dtype) * direction
    weight[20] = 0
    labels[4] = 20  # every other class is on the far side
    return features, weight, labels


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("spread", [False, True])
def test_what_is_left_out_of_the_others_leaves_no_trace(
    device: str, bias: bool, spread: bool, within_budget: Callable[..., None]
) -> None:
    features, weight, labels = left_out(device)
    truth = reference(features.double(), weight.double(), labels)
    assert truth.nearest_other_angle[4] > math.pi / 2
    offsets = torch.linspace(-1, 1, len(weight), device=device) if bias else None
    truth = reference(features.double(), weight.double(), labels, None if offsets is None else offsets.double())
    got = angular_scores(features, weight, labels, offsets, spread=spread)
    plain = reference(features, weight, labels, offsets)
    for name in AngularScores._fields[: -2 if spread else 8]:
        within_budget(getattr(got, name).cpu(), getattr(plain, name).cpu(), getattr(truth, name).cpu(), 32.0)
    alone = angular_scores(features, weight, labels, logits=False)
    for one, other in zip(alone[:4], got[:4], strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("classes", [2, 16, 64, 150])
def test_logits_alone_equal_the_loop(device: str, classes: int) -> None:
    features, weight, labels, _ = draw((37, 40, classes), torch.float32, device)
    truth = loop(features.cpu(), weight.cpu(), labels.cpu(), None)
    got = angular_scores(features, weight, labels)
    assert torch.equal(got.predicted.cpu().double(), truth.predicted)
    for name in AngularScores._fields[:8]:
        torch.testing.assert_close(getattr(got, name).cpu().double(), getattr(truth, name), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("classes", [16, 150])
def test_of_equal_largest_logits_the_first_class_is_predicted(device: str, classes: int) -> None:
    # Whole numbers, so that products are exact; this class and all after it are equal, and larger than those before.
    features, weight = torch.tensor([[1.0, 0.0]], device=device), torch.ones(classes, 2, device=device)
    for first in (1, 8, classes - 3):
        weight[:first, 0], weight[first:, 0] = 1, 2
        labels = torch.zeros(1, dtype=torch.int64, device=device)
        want = torch.full_like(labels, first)
        assert torch.equal(angular_scores(features, weight, labels).predicted, want)
        # The labelled class is kept apart: of the others the first is first all the same.
        labels += first
        got = angular_scores(features, weight, labels)
        assert torch.equal(got.predicted, want)
        assert (got.largest_other_logit == 2).all()


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_short_and_long_samples_have_the_same_angles(device: str, size: float) -> None:
    features, weight, labels, _ = draw((40, 400, 150), torch.float32, device)
    before, after = angular_scores(features, weight, labels), angular_scores(size * features, weight, labels)
    for one, other in zip(before[1:4], after[1:4], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


@pytest.mark.gpu
def test_memory_stays_below_64_mib_at_many_classes() -> None:
    features, weight, labels, _ = draw((512, 64, 300_000), torch.bfloat16, "cuda")
    angular_scores(features, weight, labels)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    angular_scores(features, weight, labels)
    assert torch.cuda.max_memory_allocated() - before < 64 * 2**20
