"""Label correction: the paper's identity and table rows, counts by loops, and what it refuses."""

import math

import pytest
import torch

from hardsight.cleaning import correct_labels, correction_report, fitting


def scene(seed: int = 0, samples: int = 400, classes: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(classes, (samples,), generator=generator)
    flip = torch.rand(samples, generator=generator) < 0.3
    labels = torch.where(flip, (truth + 1) % classes, truth)
    wrong = torch.rand(samples, generator=generator) < 0.2
    predicted = torch.where(wrong, torch.randint(classes, (samples,), generator=generator), truth)
    return predicted, labels, truth


def test_every_label_becomes_the_prediction_and_the_given_ones_stay() -> None:
    predicted, labels, _ = scene()
    before = labels.clone()
    assert torch.equal(correct_labels(labels, predicted), predicted)
    assert torch.equal(labels, before)


def test_only_sure_and_suspected_labels_change() -> None:
    labels, predicted = torch.tensor([0, 0, 0, 0]), torch.tensor([1, 1, 1, 0])
    confidence, among = torch.tensor([0.9, 0.4, 0.9, 0.9]), torch.tensor([True, True, False, True])
    sure = correct_labels(labels, predicted, confidence=confidence, minimum_confidence=0.5)
    assert sure.tolist() == [1, 0, 1, 0]
    both = correct_labels(labels, predicted, confidence=confidence, minimum_confidence=0.5, among=among)
    assert both.tolist() == [1, 0, 0, 0]
    assert among.tolist() == [True, True, False, True]


def test_fitting_and_report_by_loops() -> None:
    predicted, labels, truth = scene(3)
    rows = list(zip(predicted.tolist(), labels.tolist(), truth.tolist(), strict=True))
    found = fitting(predicted, labels, truth)
    clean = [p == y for p, y, t in rows if y == t]
    noisy = [p == y for p, y, t in rows if y != t]
    assert found["clean_fitting"] == pytest.approx(sum(clean) / len(clean))
    assert found["noisy_fitting"] == pytest.approx(sum(noisy) / len(noisy))
    assert found["intact_accuracy"] == pytest.approx(sum(p == t for p, _, t in rows) / len(rows))
    report = correction_report(labels, predicted, truth)
    assert report["repaired"] == sum(y != t and p == t for p, y, t in rows)
    assert report["damaged"] == sum(y == t and p != t for p, y, t in rows)
    assert report["still_wrong"] == sum(y != t and p not in (t, y) for p, y, t in rows)
    assert report["wrong_after"] == report["wrong_before"] - report["repaired"] + report["damaged"]


def follows_the_identity(rate: float, noisy_accuracy: float, clean: float, noisy: float, slack: float) -> bool:
    return abs((1 - rate) * clean + rate * noisy - noisy_accuracy) <= slack


def test_identity_of_the_shares() -> None:
    for seed in range(5):
        found = fitting(*scene(seed))
        shares = (found["noise_rate"], found["noisy_accuracy"], found["clean_fitting"], found["noisy_fitting"])
        assert follows_the_identity(*shares, slack=1e-12)
        # Confusing agreement with the true labels for agreement with the given ones breaks it.
        assert not follows_the_identity(shares[0], found["intact_accuracy"], *shares[2:], slack=1e-12)


@pytest.mark.parametrize(
    ("rate", "noisy_accuracy", "clean", "noisy"), [(0.2, 81.5, 98.8, 11.7), (0.4, 60.3, 94.8, 7.5)]
)
def test_the_papers_rows_follow_the_identity(rate: float, noisy_accuracy: float, clean: float, noisy: float) -> None:
    # GR rows of Table 11; the realised noise rate differs from the nominal one by chance.
    assert follows_the_identity(rate, noisy_accuracy, clean, noisy, slack=0.5)


def test_nothing_wrong_has_no_noisy_fitting() -> None:
    labels = torch.tensor([0, 1])
    found = fitting(labels, labels, labels)
    assert math.isnan(found["noisy_fitting"])
    assert found["clean_fitting"] == 1.0


def test_refusals() -> None:
    labels = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"minimum_confidence must lie in \[0, 1\]"):
        correct_labels(labels, labels, minimum_confidence=1.5)
    with pytest.raises(ValueError, match="confidence must be given"):
        correct_labels(labels, labels, minimum_confidence=0.5)


def test_the_minimum_confidence_itself_is_enough() -> None:
    labels, predicted = torch.tensor([0, 0]), torch.tensor([1, 1])
    corrected = correct_labels(labels, predicted, confidence=torch.tensor([0.5, 0.49]), minimum_confidence=0.5)
    assert corrected.tolist() == [1, 0]


def test_what_stands_for_no_class_is_neither_given_nor_counted() -> None:
    """-1 is what `confident_class` says where it says nothing, -100 is PyTorch's label of no class."""
    known, unknown = torch.tensor([0, 1, 1]), torch.tensor([0, -1, -100])
    with pytest.raises(
        ValueError, match=r"predicted must be 0 or larger, .*; got -1, which stands for none \(2 of 3\): leave"
    ):
        correct_labels(known, unknown)
    assert correct_labels(known, unknown, among=unknown >= 0).tolist() == [0, 1, 1]
    for labels, truth, name in ((unknown, known, "labels"), (known, unknown, "true_labels")):
        with pytest.raises(ValueError, match=f"^{name} must be 0 or larger, the number of a class"):
            fitting(known, labels, truth)
        with pytest.raises(ValueError, match=f"^{name} must be 0 or larger, the number of a class"):
            correction_report(labels, known, truth)
    with pytest.raises(ValueError, match=r"^corrected must be 0 or larger"):
        correction_report(known, unknown, known)
