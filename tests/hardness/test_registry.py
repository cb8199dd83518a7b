"""Laws that hold for every registered score of a model; a member nobody classified fails."""

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from hardsight.hardness import (
    SCORES,
    Score,
    angular_visual_hardness,
    get_score,
    model_scores,
    register,
    score,
)
from hardsight.hardness.scoring import choose_scores

# The expected row of each score of a model: the value of `example()`'s first sample, and which of these laws hold.
# F: unchanged by the scale of the features; L: unchanged by a shift of all logits; J: judged by the label, so at its
# easy end where a sample lies on its class's weights. A score without a row fails `test_every_score_has_a_row`.
EXPECTED = {
    "avh": (0.1399, "FJ"),
    "avc": (0.2900, "FJ"),
    "angular_margin": (0.0234, "FJ"),
    "confidence": (0.5124, "LJ"),
    "margin": (0.1298, "LJ"),
    "entropy": (0.8493, "L"),
    "rank": (1.0, "LJ"),
    "loss": (0.6687, "LJ"),
    "el2n": (0.6643, "LJ"),
    "grand": (2.0943, "LJ"),
    "norm": (2.9901, ""),
    "class_norm": (0.9170, "F"),
    "prototype_angle": (1.4209, "F"),
}
SCORES_OF_A_MODEL = model_scores()
ALL_AT_ONCE = [one for one in SCORES.values() if {"features", "weight", "logits", "labels"} >= set(one.needs)]


def under(law: str) -> list[str]:
    """Scores of a model that obey this law."""
    return [one.name for one in ALL_AT_ONCE if law in EXPECTED.get(one.name, (0.0, ""))[1]]


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


def test_every_score_has_a_row() -> None:
    assert {one.name for one in ALL_AT_ONCE} == EXPECTED.keys()


@pytest.mark.parametrize("one", ALL_AT_ONCE, ids=lambda one: one.name)
def test_the_value_is_that_of_its_row(one: Score) -> None:
    expected, _ = EXPECTED[one.name]
    assert by_definition(one, example())[0].item() == pytest.approx(expected, abs=5e-5)


def test_the_registry_is_complete_on_import() -> None:
    """Nothing that is imported later adds a score, which a process that has imported less would not know."""
    script = (
        "from hardsight.hardness import SCORES; before = list(SCORES); import hardsight.dynamics, hardsight.cleaning, "
        "hardsight.training; assert list(SCORES) == before; print(len([one for one in before if one == 'aum']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr


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


@pytest.mark.parametrize("one", ALL_AT_ONCE, ids=lambda one: one.name)
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


@pytest.mark.parametrize("name", under("F"))
def test_scale_of_the_features_does_not_matter(name: str) -> None:
    given = example()
    scaled = {**given, "features": given["features"] * 17.0}
    torch.testing.assert_close(by_definition(get_score(name), scaled), by_definition(get_score(name), given))


@pytest.mark.parametrize("name", under("L"))
def test_a_shift_of_all_logits_does_not_matter(name: str) -> None:
    given = example()
    shifted = {**given, "bias": given["bias"] + 3.0}
    torch.testing.assert_close(by_chunks(get_score(name), shifted), by_chunks(get_score(name), given))


@pytest.mark.parametrize("name", under("J"))
def test_a_sample_on_its_class_is_easier_than_under_a_wrong_label(name: str) -> None:
    one, weight = get_score(name), 4 * torch.eye(5, dtype=torch.float64)
    right = torch.arange(5)
    given = {"features": weight, "weight": weight, "bias": torch.zeros(5, dtype=torch.float64), "labels": right}
    wrong = {**given, "labels": (right + 1) % 5}
    assert (one.hardness(by_chunks(one, given)) < one.hardness(by_chunks(one, wrong))).all()


@pytest.mark.parametrize("name", [one.name for one in ALL_AT_ONCE if "J" not in EXPECTED.get(one.name, (0.0, "J"))[1]])
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


@pytest.mark.parametrize("name", [one.name for one in ALL_AT_ONCE if "logits" in one.needs])
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
        register("avh", "twice", source="nowhere", larger_is_harder=True)
    assert get_score("avh").definition is angular_visual_hardness
    with pytest.raises(ValueError, match="did you mean 'entropy'"):
        get_score("entropie")
    with pytest.raises(ValueError, match=r"scores.*avh.*got 'zzz'"):
        get_score("zzz")
    with pytest.raises(ValueError, match=r"scores.*'aum'.*Recorder"):
        choose_scores(["aum"])


def test_entropy_is_bounded_by_the_log_of_the_classes() -> None:
    assert get_score("entropy").bounds(10) == (0.0, math.log(10))


@pytest.mark.parametrize("one", ALL_AT_ONCE, ids=lambda one: one.name)
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
