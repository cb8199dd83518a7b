"""The confident joint: a loop reference in float64, calibration, degenerate classes, refusals, cleanlab beside it."""

import math

import numpy as np
import pytest
import torch

from hardsight.cleaning import class_thresholds, confident_class, confident_joint, expected_issues


def joint_by_loops(probabilities: list[list[float]], labels: list[int]) -> list[list[float]]:
    classes = len(probabilities[0])
    thresholds = []
    for j in range(classes):
        own = [row[j] for row, label in zip(probabilities, labels, strict=True) if label == j]
        thresholds.append(math.fsum(own) / len(own) if own else 1.0)
    counts = [[0.0] * classes for _ in range(classes)]
    for row, label in zip(probabilities, labels, strict=True):
        confident = [j for j in range(classes) if row[j] >= thresholds[j] - 1e-9]
        if confident:
            counts[label][max(confident, key=lambda j: row[j])] += 1
    for i, row in enumerate(counts):
        members = sum(label == i for label in labels)
        if sum(row) == 0:
            row[i] = 1.0
        total = sum(row)
        counts[i] = [members * cell / total for cell in row]
    return counts


def random_beliefs(samples: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.where(
        torch.rand(samples, generator=generator) < 0.7,
        logits.argmax(1),
        torch.randint(classes, (samples,), generator=generator),
    )
    return logits.softmax(1), labels


@pytest.mark.parametrize(("samples", "classes", "seed"), [(1, 2, 0), (7, 3, 1), (60, 5, 2), (200, 11, 3)])
def test_equals_the_loops(samples: int, classes: int, seed: int) -> None:
    probabilities, labels = random_beliefs(samples, classes, seed)
    expected = torch.tensor(joint_by_loops(probabilities.tolist(), labels.tolist()), dtype=torch.float64)
    torch.testing.assert_close(confident_joint(probabilities, labels), expected)


def is_calibrated(joint: torch.Tensor, labels: torch.Tensor) -> bool:
    counts = torch.bincount(labels, minlength=len(joint)).double()
    return bool((joint >= 0).all()) and torch.allclose(joint.sum(1), counts)


def test_rows_sum_to_the_label_counts_and_the_law_rejects_raw_counts() -> None:
    probabilities, labels = random_beliefs(300, 6, 4)
    assert is_calibrated(confident_joint(probabilities, labels), labels)
    truth = confident_class(probabilities, labels)
    raw = torch.zeros(6, 6, dtype=torch.float64)
    for label, guess in zip(labels.tolist(), truth.tolist(), strict=True):
        if guess >= 0:
            raw[label, guess] += 1
    assert not is_calibrated(raw, labels)


def test_renaming_the_classes_renames_the_joint() -> None:
    probabilities, labels = random_beliefs(250, 5, 6)
    order = torch.tensor([3, 0, 4, 1, 2])
    renamed = confident_joint(probabilities[:, order], order.argsort()[labels])
    torch.testing.assert_close(renamed, confident_joint(probabilities, labels)[order][:, order])


def test_hand_computed_case() -> None:
    # Thresholds: class 0 (0.9 + 0.8 + 0.1) / 3 = 0.6, class 1 (0.7 + 0.9) / 2 = 0.8. The third sample is labelled 0 and
    # confidently 1; the fourth is confident of nothing.
    probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.1, 0.9]])
    labels = torch.tensor([0, 0, 0, 1, 1])
    torch.testing.assert_close(class_thresholds(probabilities, labels), torch.tensor([0.6, 0.8], dtype=torch.float64))
    unused = torch.cat([probabilities, torch.zeros(len(labels), 1, dtype=probabilities.dtype)], 1)
    # Nothing is labelled as the third class, so nothing short of certainty is confident of it.
    assert class_thresholds(unused, labels)[2] == 1
    assert confident_class(probabilities, labels).tolist() == [0, 0, 1, -1, 1]
    expected = torch.tensor([[2.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(confident_joint(probabilities, labels), expected)
    assert expected_issues(expected) == 1.0


def test_finds_the_noise_rate(noisy: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    probabilities, labels, truth = noisy
    joint = confident_joint(torch.from_numpy(probabilities), torch.from_numpy(labels))
    assert expected_issues(joint) == pytest.approx(int((labels != truth).sum()), rel=0.15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_beliefs_reach_their_own_mean(dtype: torch.dtype) -> None:
    probabilities = torch.full((3000, 3), 1 / 3, dtype=dtype)
    labels = torch.arange(3000) % 3
    assert bool((confident_class(probabilities, labels) >= 0).all())


def test_empty_class_and_class_without_confidence() -> None:
    probabilities = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.6, 0.4, 0.0]], dtype=torch.float64)
    joint = confident_joint(probabilities, torch.tensor([0, 0, 1]))
    assert joint[2].tolist() == [0.0, 0.0, 0.0]
    assert joint.sum() == 3


@pytest.mark.parametrize(
    ("probabilities", "labels", "sentence"),
    [
        (torch.tensor([[2.0, -1.0]]), torch.tensor([0]), "must lie in"),
        (torch.tensor([[0.2, 0.2]]), torch.tensor([0]), "sum to 1"),
        (torch.tensor([[float("nan"), 1.0]]), torch.tensor([0]), "finite"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "empty"),
        (torch.tensor([[0.5, 0.5]]), torch.tensor([2]), "labels must lie"),
        (torch.tensor([[1.0]]), torch.tensor([0]), "at least 2 classes"),
    ],
)
def test_refusals(probabilities: torch.Tensor, labels: torch.Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        confident_joint(probabilities, labels)


def test_of_equally_probable_classes_the_label_counts() -> None:
    """A model that tells nothing apart contradicts no label."""
    labels = torch.tensor([0, 1, 2, 3, 3])
    uniform = torch.full((5, 4), 0.25)
    assert torch.equal(confident_class(uniform, labels), labels)
    assert expected_issues(confident_joint(uniform, labels)) == 0
    halves = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]).double()
    assert confident_class(halves, torch.tensor([1, 0])).tolist() == [1, 0]


@pytest.mark.parametrize("never", [0.0, 1e-30])
def test_no_sample_is_confident_of_a_class_it_gives_no_probability(never: float) -> None:
    """A class whose labels nobody believes has a threshold of 0, which a probability of 0 would reach."""
    rows = [[0.9, 0.1], [0.95, 0.05], [0.1, 0.9], [0.05, 0.95], [0.6, 0.4], [0.9, 0.1]]
    probabilities = torch.tensor([[*row, never] for row in rows], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 0, 2])
    # The third and the fifth reach neither 0.817 nor 0.925.
    assert confident_class(probabilities, labels).tolist() == [0, 0, -1, 1, -1, 0]
    assert confident_joint(probabilities, labels)[:, 2].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_thresholds_below_the_roundings_of_half_precision_still_tell(dtype: torch.dtype) -> None:
    # With a thousand classes a mean of 0.0005 is a threshold; a slack of 0.001 or 0.008 lets everything past it.
    probabilities = torch.full((4, 1000), 1 / 1000, dtype=torch.float64)
    probabilities[:, 7] = torch.tensor([0.0006, 0.0006, 0.0001, 0.0001], dtype=torch.float64)
    labels = torch.tensor([7, 7, 8, 8])
    exact, half = (confident_class(one, labels) for one in (probabilities, probabilities.to(dtype)))
    assert exact.tolist() == half.tolist()
    few = torch.tensor([[0.006, 0.994], [0.002, 0.998], [0.0025, 0.9975]], dtype=torch.float64)
    assert confident_class(few.to(dtype), torch.tensor([0, 0, 0])).tolist() == [0, -1, -1]
