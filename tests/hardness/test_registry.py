"""Laws that hold for every registered score of a model; a member nobody classified fails."""

import math

import pytest
import torch
from torch import Tensor

from hardsight.hardness import SCORES, Score, get_score, model_scores, score
from hardsight.hardness.registry import register
from hardsight.hardness.scoring import choose_scores

# Which laws hold for which score. A new score must be put here, or `test_every_score_is_classified` fails.
UNCHANGED_BY_FEATURE_SCALE = {"avh", "avc", "angular_margin", "class_norm"}
UNCHANGED_BY_LOGIT_SHIFT = {"confidence", "margin", "entropy", "loss", "el2n", "grand"}
GROWS_WITH_FEATURES = {"norm"}
# On a sample put right onto its class's weights these are at their easy end.
JUDGED_BY_LABEL = {"avh", "avc", "angular_margin", "confidence", "margin", "loss", "el2n", "grand"}

SCORES_OF_A_MODEL = model_scores()


def example(samples: int = 40, dim: int = 6, classes: int = 5, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    features = torch.randn(samples, dim, generator=generator, dtype=dtype)
    weight = torch.randn(classes, dim, generator=generator, dtype=dtype)
    bias = torch.randn(classes, generator=generator, dtype=dtype)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    return {"features": features, "weight": weight, "bias": bias, "labels": labels}


def by_definition(one: Score, given: dict[str, Tensor]) -> Tensor:
    given = {**given, "logits": given["features"] @ given["weight"].T + given["bias"]}
    return one.definition(*(given[name] for name in one.needs))


def by_chunks(one: Score, given: dict[str, Tensor], chunk: int | None = None) -> Tensor:
    return score(given["features"], given["weight"], given["labels"], given["bias"], (one.name,), chunk=chunk)[one.name]


def test_every_score_is_classified() -> None:
    classified = UNCHANGED_BY_FEATURE_SCALE | UNCHANGED_BY_LOGIT_SHIFT | GROWS_WITH_FEATURES
    assert {one.name for one in SCORES_OF_A_MODEL} == classified


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
def test_chunked_scoring_equals_the_definition(one: Score) -> None:
    given = example()
    for chunk in (None, 1, 7):
        torch.testing.assert_close(by_chunks(one, given, chunk), by_definition(one, given), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_as_good_as_its_inputs(one: Score, dtype: torch.dtype) -> None:
    given = example(dtype=dtype)
    exact = {name: value.double() if value.is_floating_point() else value for name, value in given.items()}
    torch.testing.assert_close(by_chunks(one, given).double(), by_chunks(one, exact), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
def test_values_stay_in_their_range(one: Score) -> None:
    for scale in (1e-3, 1.0, 1e3):
        given = example(samples=200)
        given["features"] = given["features"] * scale
        values, (low, high) = by_chunks(one, given), one.bounds(5)
        assert ((values >= low - 1e-12) & (values <= high + 1e-12)).all()


@pytest.mark.parametrize("one", [*SCORES_OF_A_MODEL, get_score("prototype_angle")], ids=lambda one: one.name)
def test_finite_ends_of_a_range_are_reached(one: Score) -> None:
    # Two opposite classes, and features along the label, against it and without direction.
    given = {
        "features": torch.tensor([[2000.0, 0.0], [-1000.0, 0.0], [0.0, 0.0]], dtype=torch.float64),
        "weight": torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64),
        "bias": torch.zeros(2, dtype=torch.float64),
        "labels": torch.zeros(3, dtype=torch.long),
    }
    values, (low, high) = by_definition(one, given), one.bounds(2)
    assert values.min().item() == pytest.approx(low, abs=1e-12) or math.isinf(low)
    assert values.max().item() == pytest.approx(high, abs=1e-12) or math.isinf(high)


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
def test_samples_do_not_depend_on_their_order(one: Score) -> None:
    given = example()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    shuffled = {**given, "features": given["features"][order], "labels": given["labels"][order]}
    torch.testing.assert_close(by_chunks(one, shuffled), by_chunks(one, given)[order])


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
def test_renaming_the_classes_changes_nothing(one: Score) -> None:
    given = example()
    order = torch.randperm(5, generator=torch.Generator().manual_seed(1))
    renamed = {**given, "weight": given["weight"][order], "bias": given["bias"][order]}
    renamed["labels"] = order.argsort()[given["labels"]]
    torch.testing.assert_close(by_chunks(one, renamed), by_chunks(one, given))


@pytest.mark.parametrize("name", sorted(UNCHANGED_BY_FEATURE_SCALE))
def test_scale_of_the_features_does_not_matter(name: str) -> None:
    given = example()
    scaled = {**given, "features": given["features"] * 17.0}
    torch.testing.assert_close(by_chunks(get_score(name), scaled), by_chunks(get_score(name), given))


@pytest.mark.parametrize("name", sorted(UNCHANGED_BY_LOGIT_SHIFT))
def test_a_shift_of_all_logits_does_not_matter(name: str) -> None:
    given = example()
    shifted = {**given, "bias": given["bias"] + 3.0}
    torch.testing.assert_close(by_chunks(get_score(name), shifted), by_chunks(get_score(name), given))


@pytest.mark.parametrize("name", sorted(JUDGED_BY_LABEL))
def test_a_sample_on_its_class_is_easier_than_under_a_wrong_label(name: str) -> None:
    one, weight = get_score(name), 4 * torch.eye(5, dtype=torch.float64)
    right = torch.arange(5)
    given = {"features": weight, "weight": weight, "bias": torch.zeros(5, dtype=torch.float64), "labels": right}
    wrong = {**given, "labels": (right + 1) % 5}
    assert (one.hardness(by_chunks(one, given)) < one.hardness(by_chunks(one, wrong))).all()


@pytest.mark.parametrize("name", ["norm", "class_norm", "entropy", "prototype_angle"])
def test_what_knows_no_label_is_easier_far_out_on_its_class(name: str) -> None:
    """Long features, near the others of their class, give a sure softmax."""
    one, weight = get_score(name), torch.eye(3, dtype=torch.float64)
    features = torch.cat([9 * weight, weight + 0.4 * weight.roll(1, 0)])
    given = {"features": features, "weight": weight, "bias": torch.zeros(3, dtype=torch.float64)}
    given |= {"labels": torch.arange(3).repeat(2)}
    easy, hard = one.hardness(by_definition(one, given)).split(3)
    assert bool((easy < hard).all())


def test_the_direction_law_rejects_a_score_with_its_sign_turned() -> None:
    one = get_score("avh")
    turned = Score(**{**one.__dict__, "name": "turned", "larger_is_harder": False})
    weight = 4 * torch.eye(5, dtype=torch.float64)
    right, wrong = (score(weight, weight, labels)["avh"] for labels in (torch.arange(5), torch.arange(5).roll(1)))
    assert not (turned.hardness(right) < turned.hardness(wrong)).any()


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-6, 1.0, 1e4, 3e38])
def test_degenerate_vectors_give_finite_numbers(one: Score, dtype: torch.dtype, scale: float) -> None:
    largest = torch.finfo(dtype).max
    base = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rows = [base * scale, torch.zeros(1, 4, dtype=torch.float64), -base[:1] * scale]
    features = torch.cat(rows).clamp(-largest, largest).to(dtype)
    weight = torch.cat([base, 2 * base[:1], torch.zeros(1, 4, dtype=torch.float64)]).to(dtype)
    given = {"features": features, "weight": weight, "bias": torch.zeros(5, dtype=dtype)}
    for label in range(5):
        values = by_chunks(one, {**given, "labels": torch.full((5,), label)})
        low, high = one.bounds(5)
        assert values.isfinite().all()
        assert ((values >= low - 1e-5) & (values <= high + 1e-5)).all()


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
def test_labels_may_be_integers_of_any_width(one: Score) -> None:
    given = example()
    narrow = {**given, "labels": given["labels"].int()}
    assert torch.equal(by_definition(one, narrow), by_definition(one, given))
    assert torch.equal(by_chunks(one, narrow), by_chunks(one, given))


@pytest.mark.parametrize("one", SCORES_OF_A_MODEL, ids=lambda one: one.name)
@pytest.mark.parametrize("coarse", ["features", "weight"])
def test_of_two_precisions_the_finer_counts(one: Score, coarse: str) -> None:
    given = example()
    mixed = {**given, coarse: given[coarse].float()}
    same = {**given, coarse: given[coarse].float().double()}
    torch.testing.assert_close(by_chunks(one, mixed, 7), by_chunks(one, same), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["confidence", "margin", "entropy", "loss", "el2n", "grand"])
def test_the_largest_logits_give_finite_numbers(name: str) -> None:
    logits = torch.tensor([[3e38, -3e38, 0.0], [-3e38, 3e38, 1.0]])
    given = {"features": torch.full((2, 4), 3e38), "logits": logits, "labels": torch.zeros(2, dtype=torch.long)}
    one = get_score(name)
    values, (low, high) = one.definition(*(given[need] for need in one.needs)), one.bounds(3)
    assert values.isfinite().all()
    assert ((values >= low) & (values <= high + 1e-6)).all()


def test_every_score_says_what_it_is() -> None:
    for one in SCORES.values():
        said = one.describe(10)
        assert said["direction"] in ("larger is harder", "larger is easier")
        assert said["title"]
        assert said["source"]


def test_names_are_unique_and_unknown_ones_get_a_hint() -> None:
    with pytest.raises(ValueError, match="'avh' is registered already"):
        register(get_score("avh"))
    with pytest.raises(ValueError, match="did you mean 'entropy'"):
        get_score("entropie")
    with pytest.raises(ValueError, match="scores must be one of "):
        get_score("zzz")
    with pytest.raises(ValueError, match=r"got 'zzz'; scores of a training run come from a Recorder$"):
        choose_scores(["zzz"])


def test_entropy_is_bounded_by_the_log_of_the_classes() -> None:
    assert get_score("entropy").bounds(10) == (0.0, math.log(10))


@pytest.mark.parametrize("one", [*SCORES_OF_A_MODEL, get_score("prototype_angle")], ids=lambda one: one.name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_definition_of_half_precision_is_rounded_once(one: Score, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    # Vectors that nearly agree: of angles or norms that are rounded before they are compared nothing is left.
    features, weight = (1 + 0.05 * torch.randn(rows, 64, generator=generator) for rows in (60, 5))
    logits, labels = 5 * torch.randn(60, 5, generator=generator), torch.randint(0, 5, (60,), generator=generator)
    halves = {"features": features.to(dtype), "weight": weight.to(dtype), "logits": logits.to(dtype)}
    exact = {name: values.double() for name, values in halves.items()}
    found, expected = (
        one.definition(*(({**of, "labels": labels})[name] for name in one.needs)) for of in (halves, exact)
    )
    assert found.dtype == dtype
    # Half a unit in the last place, and what float32 costs.
    torch.testing.assert_close(found.double(), expected, rtol=0.52 * torch.finfo(dtype).eps, atol=5e-5)
