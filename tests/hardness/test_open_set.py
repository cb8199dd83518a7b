"""Scores of the predicted class, calibration and the parts of uncertainty: laws, and cases computed by hand."""

import math

import pytest
import torch

from hardsight.hardness import (
    OPEN_SET_SCORES,
    angular_visual_hardness,
    calibration_error,
    fit_temperature,
    open_set_scores,
    uncertainties,
)


@pytest.fixture
def head() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator) for shape in ((40, 6), (5, 6), (5,)))  # type: ignore[return-value]


def test_each_score_is_what_its_name_says(head: tuple[torch.Tensor, ...]) -> None:
    features, weight, bias = head
    found = open_set_scores(features, weight, bias)
    assert tuple(found) == OPEN_SET_SCORES
    logits = features.double() @ weight.double().T + bias.double()
    predicted = logits.argmax(1)
    torch.testing.assert_close(found["softmax"], -logits.softmax(1).amax(1).log())
    torch.testing.assert_close(found["energy"], -logits.exp().sum(1).log())
    torch.testing.assert_close(found["norm"], -features.double().square().sum(1).sqrt())
    expected = angular_visual_hardness(features.double(), weight.double(), predicted)
    torch.testing.assert_close(found["avh"], expected)
    assert bool((found["angular_margin"] <= 0).all())


def test_angles_do_not_see_the_length_and_the_energy_does(head: tuple[torch.Tensor, ...]) -> None:
    features, weight, _ = head
    one, other = open_set_scores(features, weight), open_set_scores(3 * features, weight)
    torch.testing.assert_close(one["avh"], other["avh"])
    torch.testing.assert_close(one["angular_margin"], other["angular_margin"])
    assert not torch.allclose(one["energy"], other["energy"])


def test_a_probability_rounded_to_one_still_has_an_order() -> None:
    found = open_set_scores(torch.tensor([[60.0, 0.0], [80.0, 0.0]]), torch.eye(2))["softmax"]
    assert float(found[0]) > float(found[1]) > 0


def test_bad_temperature_and_one_class_are_named() -> None:
    with pytest.raises(ValueError, match=r"temperature.*positive.*0"):
        open_set_scores(torch.ones(2, 3), torch.ones(2, 3), temperature=0)
    with pytest.raises(ValueError, match=r"weight.*2 classes.*1"):
        open_set_scores(torch.ones(2, 3), torch.ones(1, 3))


def test_calibration_error_by_hand() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    labels = torch.tensor([0, 1, 0, 0])
    # Two bins: .9 and .9 with one right, .6 and .6 with one right.
    assert math.isclose(calibration_error(probabilities, labels, bins=10), (0.8 + 0.2) / 4, abs_tol=1e-6)
    with pytest.raises(ValueError, match="bins"):
        calibration_error(probabilities, labels, bins=0)


def test_the_temperature_that_made_overconfident_logits_is_found_again() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, 4, generator=generator, dtype=torch.float64) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    found = fit_temperature(5 * logits, labels)
    assert math.isclose(found, 5, rel_tol=0.05)
    before, after = (calibration_error((5 * logits / one).softmax(1), labels) for one in (1, found))
    assert after < 0.02 < before


def test_the_parts_of_uncertainty_sum_up_and_agreement_has_no_epistemic_part() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(7, 3, generator=generator).softmax(1)
    parts = uncertainties(torch.stack([one, one]))
    torch.testing.assert_close(parts["epistemic"], torch.zeros(7, dtype=torch.float64), atol=1e-7, rtol=0)
    members = torch.randn(4, 7, 3, generator=generator).softmax(2)
    parts = uncertainties(members)
    torch.testing.assert_close(parts["total"], parts["aleatoric"] + parts["epistemic"])
    assert bool((parts["epistemic"] > 0).all())
    with pytest.raises(ValueError, match=r"probabilities.*sum to 1"):
        uncertainties(2 * members)
