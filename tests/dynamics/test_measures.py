"""What one step says of a sample: against slow loops, in every precision, at both ends of easy and hard."""

import math

import pytest
import torch

from hardsight.dynamics.measures import MEASURES, Cosines, measure
from hardsight.geometry import norms
from hardsight.hardness import angular_margin, angular_visual_hardness


def batch(count: int = 40, classes: int = 6, dim: int = 9, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, dim, generator=generator) * 3
    weight, bias = torch.randn(classes, dim, generator=generator), torch.randn(classes, generator=generator)
    return features, weight, bias, torch.randint(classes, (count,), generator=generator)


def columns(logits, labels, cosines=None, wanted=MEASURES) -> dict[str, torch.Tensor]:
    return {
        name: column.squeeze(1)
        for name, column in zip(wanted, measure(logits, labels, wanted, cosines)[0], strict=True)
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_measures_equal_the_slow_loop(slow_measures, dtype):
    features, weight, bias, labels = batch()
    logits = (features @ weight.T + bias).to(dtype)
    found = columns(logits, labels, Cosines(norms(features), norms(weight), bias))
    for i in range(len(labels)):
        # Of the same logits: a half-precision logit is what the loop gets too.
        row = slow_measures(logits[i].double(), int(labels[i]), norms(features)[i], norms(weight), bias)
        for name in MEASURES:
            assert found[name][i].item() == pytest.approx(row[name], rel=2e-5, abs=2e-5), name


def test_angles_are_those_of_the_vectors():
    features, weight, bias, labels = batch()
    found = columns(features @ weight.T + bias, labels, Cosines(norms(features), norms(weight), bias))
    torch.testing.assert_close(found["avh"], angular_visual_hardness(features, weight, labels), atol=1e-5, rtol=0)
    torch.testing.assert_close(found["angular_margin"], angular_margin(features, weight, labels), atol=1e-5, rtol=0)


def test_a_bias_forgotten_is_noticed():
    # The law above is one about the bias too: without it the angles are others.
    features, weight, bias, labels = batch()
    found = columns(features @ weight.T + bias, labels, Cosines(norms(features), norms(weight), None))
    assert (found["avh"] - angular_visual_hardness(features, weight, labels)).abs().max() > 1e-3


def test_several_steps_at_once_have_their_own_weights():
    logits, labels, lengths, rows, biases = [], [], [], [], []
    apart: dict[str, list[torch.Tensor]] = {name: [] for name in MEASURES}
    for seed in range(3):
        features, weight, bias, step_labels = batch(seed=seed)
        logits.append(features @ weight.T + bias)
        labels.append(step_labels)
        lengths.append(norms(features))
        rows.append(norms(weight))
        biases.append(bias)
        for name, column in columns(logits[-1], step_labels, Cosines(lengths[-1], rows[-1], bias)).items():
            apart[name].append(column)
    cosines = Cosines(torch.cat(lengths), torch.stack(rows), torch.stack(biases))
    for name, column in columns(torch.cat(logits), torch.cat(labels), cosines).items():
        torch.testing.assert_close(column, torch.cat(apart[name]), rtol=1e-6, atol=1e-6)


def test_easy_samples_keep_their_digits():
    # The others' probability is 3e-18: 1 - p would be exactly 0, and so would the error vector's length.
    found = columns(torch.tensor([[40.0, 0.0, -1.0]]), torch.tensor([0]), wanted=("loss", "el2n"))
    rest = [math.exp(-40), math.exp(-41)]
    assert found["loss"].item() == pytest.approx(sum(rest), rel=1e-5)
    assert found["el2n"].item() == pytest.approx(math.hypot(sum(rest), *rest), rel=1e-5)


def test_zero_and_parallel_vectors_have_their_conventions():
    logits, labels = torch.tensor([[0.5, -0.5], [2.0, 2.0]]), torch.tensor([0, 1])
    # A zero feature is at pi/2 from all; features parallel to all weights are at the chance level.
    cosines = Cosines(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.5, -0.5]))
    found = columns(logits, labels, cosines._replace(bias=None))
    assert found["avh"].tolist() == [0.5, 0.5]
    assert found["angular_margin"].tolist() == [0.0, 0.0]
    assert columns(logits, labels, cosines)["avh"][0].item() == 0.5


def test_logits_are_overwritten_only_on_request():
    features, weight, bias, labels = batch()
    logits = features @ weight.T + bias
    before, cosines = logits.clone(), Cosines(norms(features), norms(weight), bias)
    expected = measure(logits, labels, MEASURES, cosines)
    assert torch.equal(logits, before)
    found = measure(logits, labels, MEASURES, cosines, consume=True, scratch=torch.empty_like(logits))
    for one, other in zip(found.values, expected.values, strict=True):
        assert torch.equal(one, other)
