"""The estimated share of wrong labels: a slow loop, its laws, and noise of a known rate."""

import math

import pytest
import torch
from torch import Tensor

from hardsight.dynamics.detector import lead, noise_rate


def slow(predicted: Tensor, confidence: Tensor, labels: Tensor, surest: float) -> float:
    """Class by class, sample by sample; at the edge every way of breaking the tie counts alike."""
    total = 0.0
    for label in set(predicted.tolist()):
        rows = [row for row in range(len(labels)) if predicted[row] == label]
        count = math.ceil(surest * len(rows))
        edge = sorted((float(confidence[row]) for row in rows), reverse=True)[count - 1]
        above = [row for row in rows if float(confidence[row]) > edge]
        at = [row for row in rows if float(confidence[row]) == edge]
        wrong = sum(int(labels[row]) != label for row in above)
        wrong += (count - len(above)) * sum(int(labels[row]) != label for row in at) / len(at)
        total += len(rows) * wrong / count
    return total / len(labels)


@pytest.fixture
def looked() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randint(5, (97,), generator=generator)
    labels = torch.where(torch.rand(97, generator=generator) < 0.6, predicted, (predicted + 2) % 5)
    # Few values: many ties.
    return predicted, torch.randint(4, (97,), generator=generator).float(), labels


@pytest.mark.parametrize("surest", [0.05, 0.2, 0.5, 1.0])
def test_equals_a_slow_loop(looked: tuple[Tensor, Tensor, Tensor], surest: float) -> None:
    assert noise_rate(*looked, surest=surest) == pytest.approx(slow(*looked, surest))


def test_order_and_scale_do_not_matter(looked: tuple[Tensor, Tensor, Tensor]) -> None:
    predicted, confidence, labels = looked
    expected = noise_rate(predicted, confidence, labels)
    order = torch.randperm(97, generator=torch.Generator().manual_seed(1))
    assert noise_rate(predicted[order], confidence[order], labels[order]) == pytest.approx(expected)
    assert noise_rate(predicted, confidence.exp(), labels) == pytest.approx(expected)
    # A tie broken by the order, as a plain topk does, fails this law.
    broken = [
        sum(float((labels[o][predicted[o] == c][:1] != c).float().mean()) for c in range(5))
        for o in (torch.arange(97), order)
    ]
    assert broken[0] != broken[1]


def test_ends_of_the_range(looked: tuple[Tensor, Tensor, Tensor]) -> None:
    predicted, confidence, _ = looked
    assert noise_rate(predicted, confidence, predicted) == 0
    assert noise_rate(predicted, confidence, predicted + 1) == 1


def test_an_unknown_label_contradicts_nothing(looked: tuple[Tensor, Tensor, Tensor]) -> None:
    predicted, confidence, labels = looked
    known = torch.arange(97) % 3 > 0
    marked = torch.where(known, labels, -100)
    assert noise_rate(predicted, confidence, marked) == noise_rate(predicted[known], confidence[known], labels[known])
    with pytest.raises(ValueError, match=r"labels of 0 or more among them"):
        noise_rate(predicted, confidence, torch.full_like(labels, -100))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_finds_the_rate_of_a_network_that_is_right_where_it_is_sure(rate: float) -> None:
    """Accuracy rises from 0.6 to 1 with the confidence: the agreement over all samples would be far off."""
    generator = torch.Generator().manual_seed(2)
    truth = torch.randint(10, (20_000,), generator=generator)
    sure = torch.rand(20_000, generator=generator)
    right = torch.rand(20_000, generator=generator) < 0.6 + 0.4 * sure.sqrt()
    predicted = torch.where(right, truth, (truth + 1) % 10)
    wrong = torch.rand(20_000, generator=generator) < rate
    labels = torch.where(wrong, (truth + torch.randint(1, 10, (20_000,), generator=generator)) % 10, truth)
    assert noise_rate(predicted, sure, labels) == pytest.approx(rate, abs=0.04)
    if rate < 0.5:
        assert noise_rate(predicted, sure, labels, surest=1.0) > rate + 0.04


def test_lead_is_the_log_odds_and_keeps_the_order_of_the_sure() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [100.0, 0.0, 0.0], [200.0, 0.0, 0.0]], dtype=torch.float64)
    p = logits[0].softmax(0)[0]
    assert float(lead(logits)[0]) == pytest.approx(float((p / (1 - p)).log()))
    assert lead(logits)[2] > lead(logits)[1]
    assert logits.softmax(1).max(1).values[2] == logits.softmax(1).max(1).values[1]


def test_bad_input_is_refused(looked: tuple[Tensor, Tensor, Tensor]) -> None:
    predicted, confidence, labels = looked
    with pytest.raises(ValueError, match=r"surest.*\(0, 1\]"):
        noise_rate(*looked, surest=0.0)
    with pytest.raises(ValueError, match=r"confidence.*got NaN"):
        noise_rate(predicted, confidence * math.nan, labels)
    with pytest.raises(ValueError, match=r"of one length.*got \[0, 0, 0\]"):
        noise_rate(predicted[:0], confidence[:0], labels[:0])
