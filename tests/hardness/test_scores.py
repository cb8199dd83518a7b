"""Known answers of the scores, the identities their papers print, and what is rejected."""

import math
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import hardsight as hs
from hardsight import hardness
from hardsight.hardness import summary
from hardsight.hardness.summary import Head, first_largest, summarise


def slow_avh(features: Tensor, weight: Tensor, labels: Tensor) -> list[float]:
    """Equation 1, one angle after the other."""
    values = []
    for x, label in zip(features.double(), labels.tolist(), strict=True):
        angles = [math.acos(max(-1.0, min(1.0, float(x @ w / (x.norm() * w.norm()))))) for w in weight.double()]
        values.append(angles[label] / sum(angles) if sum(angles) else 1 / len(weight))
    return values


def test_a_case_computed_by_hand() -> None:
    # Class directions at 0, 90 and 180 degrees; a feature at 30 degrees: angles 30, 60 and 150.
    weight = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]], dtype=torch.float64)
    features = torch.tensor([[math.cos(math.pi / 6), math.sin(math.pi / 6)]], dtype=torch.float64) * 5
    for label, angle in enumerate((30, 60, 150)):
        labels = torch.tensor([label])
        torch.testing.assert_close(hs.angular_visual_hardness(features, weight, labels).item(), angle / 240)
        torch.testing.assert_close(hs.angular_visual_confidence(features, weight)[0, label].item(), (180 - angle) / 300)
    margin = hardness.angular_margin(features, weight, torch.tensor([1]))
    torch.testing.assert_close(margin.item(), math.radians(30 - 60))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(2, 9), st.sampled_from([torch.float64, torch.float32]))
@settings(deadline=None, max_examples=40)
def test_avh_equals_the_slow_loop_and_sums_to_one(samples: int, dim: int, classes: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(samples * 100 + dim)
    features = torch.randn(samples, dim, generator=generator, dtype=dtype)
    weight = torch.randn(classes, dim, generator=generator, dtype=dtype)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    avh = hs.angular_visual_hardness(features, weight, labels)
    tolerance = 1e-7 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(
        avh.double(), torch.tensor(slow_avh(features, weight, labels), dtype=torch.float64), rtol=0, atol=tolerance
    )
    every = [hs.angular_visual_hardness(features, weight, torch.full((samples,), c)) for c in range(classes)]
    torch.testing.assert_close(torch.stack(every).sum(0), torch.ones(samples, dtype=dtype))
    torch.testing.assert_close(hs.angular_visual_confidence(features, weight).sum(1), torch.ones(samples, dtype=dtype))


def test_avh_is_unchanged_by_rotation_and_by_the_length_of_any_class_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(30, 8, generator=generator), torch.randn(6, 8, generator=generator)
    labels = torch.randint(0, 6, (30,), generator=generator)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0]
    expected = hs.angular_visual_hardness(features, weight, labels)
    torch.testing.assert_close(hs.angular_visual_hardness(features @ rotation, weight @ rotation, labels), expected)
    stretched = weight * torch.rand(6, 1, generator=generator).add(0.1)
    torch.testing.assert_close(hs.angular_visual_hardness(features, stretched, labels), expected)


def test_a_feature_without_direction_is_at_chance_level() -> None:
    avh = hs.angular_visual_hardness(torch.zeros(2, 3), torch.randn(4, 3), torch.tensor([0, 3]))
    torch.testing.assert_close(avh, torch.full((2,), 0.25))
    same = torch.ones(3, 2)
    torch.testing.assert_close(hs.angular_visual_hardness(same, same, torch.arange(3)), torch.full((3,), 1 / 3))


def test_closed_form_grand_is_the_norm_of_the_real_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    head = torch.nn.Linear(7, 4, dtype=torch.float64)
    features = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (5,), generator=generator)
    expected = []
    for x, label in zip(features, labels, strict=True):
        head.zero_grad()
        torch.nn.functional.cross_entropy(head(x[None]), label[None]).backward()
        expected.append(math.hypot(head.weight.grad.norm(), head.bias.grad.norm()))
    with torch.no_grad():
        got = hardness.last_layer_grand(features, head(features), labels)
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))
    with_bias = hs.score(features, head.weight, labels, head.bias, ("grand",))["grand"]
    torch.testing.assert_close(with_bias, got)
    no_bias = hs.score(features, head.weight, labels, scores=("grand", "el2n"))
    torch.testing.assert_close(no_bias["grand"], no_bias["el2n"] * features.norm(dim=1))
    logits = features @ head.weight.detach().T
    defined = hardness.last_layer_grand(features, logits, labels, bias=False)
    torch.testing.assert_close(defined, no_bias["grand"])
    assert bool((hardness.last_layer_grand(features, logits, labels) > defined).all())


def test_logits_that_overflowed_are_made_again_from_the_features() -> None:
    # A product of 1e39 is infinite in float32; scores of such logits would be no numbers.
    weight = torch.tensor([[1e19, 0.0], [0.0, 1e19]])
    features, labels = torch.tensor([[1e20, 0.0], [3.0, 4.0]]), torch.tensor([1, 1])
    logits = features @ weight.T
    assert bool(logits.isinf().any())
    parts: frozenset[Any] = frozenset({"angles", "logits", "predicted", "spread"})
    seen = summary.summarise_outputs(features, logits, summary.Head(weight, None), labels, parts, linear=True)
    assert all(bool(values.isfinite().all()) for values in seen.columns().values())
    assert seen.predicted.tolist() == [0, 1]
    torch.testing.assert_close(seen.label_angle, torch.tensor([math.pi / 2, math.atan2(3.0, 4.0)]))


def test_the_last_of_very_many_classes_is_found() -> None:
    """Places beyond 2**24 have no float32 of their own."""
    logits = torch.zeros(1, 2**24 + 2)
    logits[0, -1] = 1.0
    assert first_largest(logits).tolist() == [2**24 + 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_easy_sample_keeps_a_loss_where_the_probability_rounds_to_one(dtype: torch.dtype) -> None:
    weight, features = 6 * torch.eye(4, dtype=dtype), 6 * torch.eye(4, dtype=dtype)
    loss = hs.score(features, weight, torch.arange(4), scores=("loss",))["loss"].double()
    exact = torch.tensor(math.log1p(3 * math.exp(-36)), dtype=torch.float64)
    torch.testing.assert_close(loss, exact.expand(4), rtol=1e-5, atol=0)


def test_scores_are_exact_where_vectors_are_parallel() -> None:
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(5, 32, generator=generator)
    nudge = 1e-4 * torch.randn(5, 32, generator=generator)
    # Next to its own class, next to another class, opposite to another class, opposite to its own.
    near_other = weight.roll(1, 0) + nudge
    features = torch.cat([weight + nudge, near_other, -near_other, -(weight + nudge)])
    labels = torch.arange(5).repeat(4)
    got = hs.score(features, weight, labels, scores=("avh", "angular_margin"))
    exact = {
        "avh": hardness.angular_visual_hardness(features.double(), weight.double(), labels),
        "angular_margin": hardness.angular_margin(features.double(), weight.double(), labels),
    }
    for name, values in got.items():
        torch.testing.assert_close(values.double(), exact[name], rtol=0, atol=1e-6)


def test_without_labels_the_predicted_class_takes_their_place() -> None:
    generator = torch.Generator().manual_seed(3)
    features, weight = torch.randn(50, 6, generator=generator), torch.randn(4, 6, generator=generator)
    bias = torch.randn(4, generator=generator)
    predicted = (features @ weight.T + bias).argmax(1)
    names = ("avh", "confidence", "margin")
    unlabelled, labelled = (
        hs.score(features, weight, None, bias, names),
        hs.score(features, weight, predicted, bias, names),
    )
    for name in names:
        torch.testing.assert_close(unlabelled[name], labelled[name], rtol=0, atol=0)
    assert (unlabelled["margin"] >= 0).all()


def test_ties_are_predicted_as_the_first_class() -> None:
    summary = summarise(torch.ones(3, 2), torch.ones(4, 2), None, parts=("predicted",))
    assert summary.predicted is not None
    assert summary.predicted.tolist() == [0, 0, 0]


def test_norm_within_class_runs_from_zero_to_one() -> None:
    features = torch.tensor([[1.0], [2.0], [3.0], [10.0], [10.0]])
    values = hardness.class_normalised_norm(features, torch.tensor([0, 0, 0, 1, 1]))
    assert values.tolist() == [0.0, 0.5, 1.0, 0.0, 0.0]


GOOD: dict[str, Any] = {
    "features": torch.ones(4, 3),
    "weight": torch.ones(2, 3),
    "labels": torch.tensor([0, 1, 0, 1]),
}
NAN = torch.ones(4, 3)
NAN[2, 1] = math.nan
NAN[3] = math.inf


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        (
            {"labels": torch.tensor([0, 1, 2, -1])},
            ValueError,
            r"labels must lie in \[0, 2\).*2 do not, first labels\[2\] = 2",
        ),
        ({"labels": torch.zeros(3, dtype=torch.long)}, ValueError, r"labels.* 4 samples"),
        ({"labels": torch.zeros(4)}, TypeError, "labels must be integers"),
        ({"weight": torch.ones(2, 5)}, ValueError, r"features \[4, 3\] and weight \[2, 5\]"),
        ({"weight": torch.ones(1, 3)}, ValueError, "at least 2 classes"),
        ({"features": NAN}, ValueError, "2 of 4 rows hold NaN or infinity, first row 2"),
        ({"features": torch.ones(0, 3), "labels": torch.zeros(0, dtype=torch.long)}, ValueError, "must not be empty"),
        ({"features": torch.ones(4, 3, dtype=torch.long)}, TypeError, "floating point"),
        ({"features": torch.ones(3)}, ValueError, "must be a matrix"),
        ({"bias": torch.ones(3)}, ValueError, r"bias.*class"),
        ({"scores": ("avhh",)}, ValueError, "did you mean 'avh'"),
        ({"scores": ()}, ValueError, "at least one score"),
        (
            {"scores": ("prototype_angle",)},
            ValueError,
            r"call hardsight\.hardness\.prototype_angle",
        ),
        ({"chunk": 0}, ValueError, "chunk must be at least 1"),
    ],
)
def test_bad_input_is_rejected_in_one_sentence(changed: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence) as raised:
        hs.score(**{**GOOD, **changed})
    assert "\n" not in str(raised.value)


def test_the_definitions_reject_the_same() -> None:
    with pytest.raises(ValueError, match="labels must lie in"):
        hs.angular_visual_hardness(GOOD["features"], GOOD["weight"], torch.tensor([0, 1, 5, 0]))
    with pytest.raises(ValueError, match=r"logits.*finite"):
        hs.model_confidence(NAN, torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"features.*finite"):
        hardness.feature_norm(NAN)
    with pytest.raises(ValueError, match=r"features.*finite"):
        hardness.class_normalised_norm(NAN, GOOD["labels"])
    with pytest.raises(ValueError, match=r"features.*empty"):
        hardness.class_normalised_norm(torch.ones(0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"features.*finite"):
        hardness.last_layer_grand(NAN, GOOD["features"], GOOD["labels"])


def test_what_is_no_tensor_is_rejected_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # The annotations, which only the tests enforce, would reject it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for name, value in (("features", [[1.0]]), ("weight", [[1.0]]), ("bias", [0.0, 0.0]), ("labels", [0, 1, 0, 1])):
        with pytest.raises(TypeError, match=rf"{name}.*a torch.Tensor; got list"):
            hs.score(**{**GOOD, name: value})


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("labelled", [True, False])
def test_half_precision_on_a_gpu_is_the_same_summary(dtype: torch.dtype, labelled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(300, 64, generator=generator).to(dtype), torch.randn(50, 64, generator=generator)
    weight, bias = weight.to(dtype), torch.randn(50, generator=generator)
    labels = torch.randint(50, (300,), generator=generator) if labelled else None
    for parts in (("angles",), ("predicted", "logits"), ("predicted", "angles", "logits", "spread")):
        truth = summarise(features.double(), weight.double(), labels, bias.double(), parts=parts).columns()
        on_gpu = None if labels is None else labels.cuda()
        found = summarise(features.cuda(), weight.cuda(), on_gpu, bias.cuda(), parts=parts).columns()
        assert found.keys() == truth.keys()
        for name, values in found.items():
            torch.testing.assert_close(values.cpu().double(), truth[name].double(), atol=1e-5, rtol=1e-5)


def slow_prototype_angles(features: Tensor, labels: Tensor) -> list[float]:
    """The mean of a label's features, then one arccos after the other."""
    values = []
    for x, label in zip(features.double(), labels.tolist(), strict=True):
        mean = torch.stack([one for one, of in zip(features.double(), labels.tolist(), strict=True) if of == label])
        mean = mean.mean(0)
        values.append(math.acos(max(-1.0, min(1.0, float(x @ mean / (x.norm() * mean.norm()))))))
    return values


def prototype_example() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(4, (40,), generator=generator)
    return torch.randn(40, 6, generator=generator, dtype=torch.float64) + 2 * torch.eye(4, 6)[labels], labels


def test_prototype_angles_equal_the_slow_loop() -> None:
    features, labels = prototype_example()
    expected = torch.tensor(slow_prototype_angles(features, labels), dtype=torch.float64)
    torch.testing.assert_close(hardness.prototype_angle(features, labels), expected)
    half = hardness.prototype_angle(features.bfloat16(), labels)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), expected, rtol=2e-2, atol=2e-2)


def test_prototype_angles_see_neither_rotation_nor_a_common_scale() -> None:
    features, labels = prototype_example()
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    angles = hardness.prototype_angle(features, labels)
    torch.testing.assert_close(hardness.prototype_angle(features @ turn, labels), angles)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(hardness.prototype_angle((features * scale).float(), labels), angles.float())

    def distance(features: Tensor) -> Tensor:
        # The wrong one: the distance to the mean grows with the scale.
        means = torch.stack([features[labels == label].mean(0) for label in range(4)])
        return (features - means[labels]).norm(dim=1)

    assert not torch.allclose(distance(features), distance(3 * features))


def test_prototype_angles_of_degenerate_features() -> None:
    labels = torch.tensor([0, 0, 1, 2, 2])
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [1.0, 1.0], [-1.0, -1.0]])
    angles = hardness.prototype_angle(features, labels)
    # Each at 45 degrees to the mean of two; alone at its own mean; and two that cancel have no mean direction.
    torch.testing.assert_close(angles, torch.tensor([0.25, 0.25, 0.0, 0.5, 0.5]) * math.pi)
    assert torch.equal(
        hardness.prototype_angle(torch.zeros(3, 2), torch.tensor([0, 0, 1])), torch.full((3,), math.pi / 2)
    )


def test_prototype_angles_reject_what_has_none() -> None:
    with pytest.raises(ValueError, match=r"features.*finite"):
        hardness.prototype_angle(torch.tensor([[1.0, math.nan]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="labels must lie in"):
        hardness.prototype_angle(torch.ones(2, 3), torch.tensor([0, -1]))
    assert hardness.get_score("prototype_angle") not in hardness.model_scores()


def test_a_misspelt_score_is_taken_for_one_that_a_model_gives() -> None:
    with pytest.raises(ValueError, match="got 'avg', did you mean 'avc' or 'avh'"):
        hs.score(**GOOD, scores=("avg",))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_row_that_is_not_finite_is_named_and_large_finite_ones_are_not(dtype: torch.dtype) -> None:
    features = torch.full((40, 3), torch.finfo(dtype).max / 2, dtype=dtype)
    assert hs.score(features, torch.randn(2, 3).to(dtype), scores=("norm",))["norm"].isfinite().all()
    features[7, 1], features[9, 0] = math.inf, math.nan
    with pytest.raises(ValueError, match=r"features.*finite; 2 of 40 .*row 7$"):
        hs.score(features, torch.randn(2, 3).to(dtype))


def test_chunks_are_bounded_by_their_features_too(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight = torch.randn(3000, 16).half(), torch.randn(2, 16).half()
    whole = hs.score(features, weight)["avh"]
    seen, inner = [], summary.summarise_chunk

    def counting(features: Tensor, *rest: Any) -> Any:
        seen.append(len(features))
        return inner(features, *rest)

    monkeypatch.setattr(summary, "summarise_chunk", counting)
    monkeypatch.setattr(summary, "_FEATURE_ELEMENTS", 16 * 512)
    torch.testing.assert_close(hs.score(features, weight)["avh"], whole)
    assert seen == [512] * 5 + [440]


def test_a_weight_too_large_to_copy_gives_the_same_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    features, weight = torch.randn(40, 6, generator=generator), torch.randn(9, 6, generator=generator)
    labels = torch.randint(0, 9, (40,), generator=generator)
    weight[2], features[3], features[4] = 0.0, 0.0, 3 * weight[labels[4]]
    copied = summarise(features, weight, labels, parts=["angles"])
    monkeypatch.setattr("hardsight.hardness.summary._COPIED_ELEMENTS", 53)
    assert Head(weight, None).directions is None
    walked = summarise(features, weight, labels, parts=["angles"])
    for name in ("label_angle", "angle_sum", "nearest_other_angle"):
        torch.testing.assert_close(getattr(copied, name), getattr(walked, name))


@pytest.mark.parametrize(
    ("classes", "dim", "rows"), [(1_000, 512, 2**21 // 1_000), (21_841, 512, 512), (10**6, 512, 256), (2, 2**20, 512)]
)
def test_a_chunk_has_enough_samples_for_a_product_and_few_enough_for_memory(classes: int, dim: int, rows: int) -> None:
    assert summary._chunk_rows("cpu", classes, dim) == rows


@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float32, 1e-30), (torch.float64, 1e-170)])
def test_a_vector_whose_squares_vanish_is_no_zero_vector(dtype: torch.dtype, tiny: float) -> None:
    generator = torch.Generator().manual_seed(5)
    features, weight = (torch.randn(count, 8, generator=generator, dtype=torch.float64) for count in (6, 4))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    true = hs.score(features, weight, labels, scores=("avh",))["avh"]
    features[2], weight[1] = features[2] * tiny, weight[1] * tiny
    for names in (("avh",), ("avh", "confidence")):
        found = hs.score(features.to(dtype), weight.to(dtype), labels, scores=names)["avh"]
        torch.testing.assert_close(
            torch.as_tensor(found).double(), torch.as_tensor(true).double(), atol=1e-6, rtol=1e-5
        )


def test_entropy_is_exact_where_the_probability_rounds_to_one() -> None:
    logits = torch.tensor([[20.0, 0.0, 1.0]])
    weight = torch.eye(3)
    true = -(logits.double().softmax(1) * logits.double().log_softmax(1)).sum()
    found = hs.score(logits, weight, torch.tensor([0]), scores=("entropy",))["entropy"]
    torch.testing.assert_close(torch.as_tensor(found).double().reshape(()), true, atol=0, rtol=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-6, 1e-11])
def test_angles_are_not_read_off_logits_that_are_all_bias(length: float, sign: float) -> None:
    """Beside a bias of 1, float32 keeps of a product of 1e-6 a tenth, and of one of 1e-9 nothing."""
    generator = torch.Generator().manual_seed(0)
    features = length * torch.randn(40, 8, generator=generator)
    weight, bias = torch.randn(5, 8, generator=generator), sign * torch.rand(5, generator=generator).add(0.5)
    features[3], labels = 0.0, torch.randint(5, (40,), generator=generator)
    logits = features @ weight.T + bias
    seen = summary.summarise_outputs(
        features, logits, summary.Head(weight, bias), labels, frozenset({"angles", "logits"}), linear=True
    )
    exact = hardness.angular_visual_hardness(features.double(), weight.double(), labels)
    torch.testing.assert_close((seen.label_angle / seen.angle_sum).double(), exact, rtol=0, atol=1e-6)
    assert seen.label_logit.tolist() == logits[torch.arange(40), labels].tolist()


def test_float64_tells_easy_samples_apart_where_float32_has_no_numbers_left() -> None:
    weight = torch.eye(3, dtype=torch.float64)
    loss = hs.score(weight * torch.tensor([[90.0], [200.0], [600.0]]), weight, torch.arange(3), scores=("loss",))
    exact = torch.tensor([2 * math.exp(-margin) for margin in (90, 200, 600)], dtype=torch.float64)
    torch.testing.assert_close(loss["loss"], exact, rtol=1e-12, atol=0)


def test_prototypes_of_tiny_features_beside_a_class_of_huge_ones() -> None:
    features, labels = prototype_example()
    alone = hardness.prototype_angle(features.float(), labels)
    beside = torch.cat([1e-20 * features.float(), torch.full((1, features.shape[1]), 1e30)])
    found = hardness.prototype_angle(beside, torch.cat([labels, labels.max().reshape(1) + 1]))
    torch.testing.assert_close(found[:-1], alone, rtol=0, atol=1e-5)


def test_products_of_extreme_norms_get_their_bias_too() -> None:
    generator = torch.Generator().manual_seed(6)
    features, weight = (torch.randn(count, 8, generator=generator, dtype=torch.float64) for count in (6, 4))
    bias, labels = torch.randn(4, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    names = ("margin", "confidence", "avh")
    true = hs.score(features, weight, labels, bias, names)
    found = hs.score((1e15 * features).float(), (1e-15 * weight).float(), labels, bias.float(), names)
    for name in names:
        torch.testing.assert_close(found[name], true[name].float(), rtol=1e-4, atol=1e-5)


def test_no_bias_beside_extreme_norms_makes_a_logit_infinite() -> None:
    largest = torch.finfo(torch.float32).max
    features, weight = torch.tensor([[1e30, 0.0]]), torch.tensor([[1e30, 0.0], [-1e30, 0.0]])
    bias = torch.tensor([largest, -largest])
    found = hs.score(features, weight, torch.tensor([0]), bias, ("margin", "confidence"))
    assert (found["margin"].item(), found["confidence"].item()) == (largest / 2, 1.0)


@pytest.mark.parametrize("labelled", [True, False])
def test_of_a_head_that_is_not_linear_the_features_tell_angles_and_the_logits_the_rest(labelled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight, logits = (
        torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        for rows, columns in ((20, 8), (5, 8), (20, 5))
    )
    labels = torch.randint(5, (20,), generator=generator) if labelled else logits.argmax(1)
    parts: frozenset[Any] = frozenset({"angles", "logits", "predicted", "spread"})
    given = labels if labelled else None
    seen = summary.summarise_outputs(features, logits, Head(weight, None), given, parts, linear=False)
    assert torch.equal(seen.predicted, logits.argmax(1))
    exact = hardness.angular_visual_hardness(features, weight, labels)
    torch.testing.assert_close(seen.label_angle / seen.angle_sum, exact)
    torch.testing.assert_close(seen.log_sum_exp - seen.label_logit, hardness.cross_entropy(logits, labels))
    torch.testing.assert_close(seen.entropy, hardness.entropy(logits))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8])
def test_labels_of_any_integer_type_score_alike(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(20, 5, generator=generator), torch.randn(4, 5, generator=generator)
    labels = torch.randint(0, 4, (20,), generator=generator)
    logits, narrow = features @ weight.T, labels.to(dtype)
    names = [one.name for one in hardness.model_scores()]
    torch.testing.assert_close(
        hs.score(features, weight, narrow, scores=names), hs.score(features, weight, labels, scores=names)
    )
    for one in hardness.SCORES.values():
        given = {"features": features, "weight": weight, "logits": logits, "labels": labels}
        if "labels" in one.needs and set(one.needs) <= set(given):
            wide = one.definition(*[given[name] for name in one.needs])
            torch.testing.assert_close(
                one.definition(*[(given | {"labels": narrow})[name] for name in one.needs]), wide
            )
    with pytest.raises(ValueError, match=r"labels.*\[0, 4\).*labels\[3\] = 9"):
        hs.score(features, weight, torch.tensor([*labels[:3], 9, *labels[4:]]).to(dtype))


def test_angular_scores_under_vmap_equal_one_call_per_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 5, generator=generator)
    labels = torch.randint(0, 4, (3, 6), generator=generator)
    features = torch.randn(3, 6, 5, generator=generator)
    # Nearly parallel to their class, where an arccos would lose digits.
    features[0] = weight[labels[0]] + 1e-4 * features[0]
    for one in (hs.angular_visual_hardness, hardness.angular_margin, hardness.label_visual_confidence):
        batched = torch.func.vmap(one, in_dims=(0, None, 0))(features, weight, labels)
        single = torch.stack([one(*pair) for pair in zip(features, [weight] * 3, labels, strict=True)])
        torch.testing.assert_close(batched, single, rtol=1e-5, atol=1e-7)

    def loss(of: Tensor, label: Tensor) -> Tensor:
        return hs.angular_visual_hardness(of.unsqueeze(0), weight, label.unsqueeze(0)).sum()

    each = torch.func.vmap(torch.func.grad(loss))(features[1], labels[1])
    leaf = features[1].clone().requires_grad_()
    hs.angular_visual_hardness(leaf, weight, labels[1]).sum().backward()
    torch.testing.assert_close(each, leaf.grad)


@pytest.mark.parametrize("definition", [hardness.class_normalised_norm, hardness.prototype_angle])
def test_a_class_of_a_large_number_is_one_class(definition: Callable[..., Tensor]) -> None:
    """A table of that many classes would take gigabytes."""
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    small, large = torch.tensor([0, 1, 0, 1, 2, 2]), torch.tensor([0, 10**9, 0, 10**9, 10**12, 10**12])
    torch.testing.assert_close(definition(features, large), definition(features, small))
