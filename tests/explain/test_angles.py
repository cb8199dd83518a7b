"""Angles within and between classes and the angular silhouette, against loops and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples
from torch import Tensor

from hardsight.explain import angle_statistics, angular_silhouette, clusters


def angle(x: Tensor, y: Tensor) -> float:
    x, y = x.double(), y.double()
    if not x.any() or not y.any():
        return math.pi / 2
    u, v = x / x.norm(), y / y.norm()
    return 2 * math.atan2(float((u - v).norm()), float((u + v).norm()))


def case(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([7, 2, 2, 7, 9, 2, 7, 9, 9, 2, 7])
    centres = torch.randn(10, 4, generator=generator)
    features = centres[labels] + 0.7 * torch.randn(len(labels), 4, generator=generator)
    return features, labels


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many blocks":
        monkeypatch.setattr(clusters, "_BLOCK", 25)


@pytest.mark.usefixtures("blocks")
def test_statistics_equal_loops() -> None:
    features, labels = case()
    found = angle_statistics(features, labels)
    assert found.classes.tolist() == [2, 7, 9]
    for row, c in enumerate((2, 7, 9)):
        members = [at for at in range(11) if labels[at] == c]
        for column, d in enumerate((2, 7, 9)):
            pairs = [angle(features[i], features[j]) for i in members for j in range(11) if labels[j] == d and i != j]
            assert float(found.pair_mean[row, column]) == pytest.approx(np.mean(pairs), abs=1e-7)
            assert float(found.pair_deviation[row, column]) == pytest.approx(np.std(pairs), abs=1e-6)
    assert found.within == pytest.approx(float(found.pair_mean.diagonal().mean()))
    assert found.between == pytest.approx(float(found.pair_mean[[0, 0, 1], [1, 2, 2]].mean()))


@pytest.mark.usefixtures("blocks")
def test_silhouette_equals_scikit_learns_on_a_matrix_of_angles() -> None:
    features, labels = case()
    matrix = np.array(
        [[0.0 if i == j else angle(x, y) for j, y in enumerate(features)] for i, x in enumerate(features)]
    )
    expected = silhouette_samples(matrix, labels.numpy(), metric="precomputed")
    np.testing.assert_allclose(angular_silhouette(features, labels).numpy(), expected, atol=1e-7)


def test_turning_and_stretching_change_nothing() -> None:
    features, labels = case()
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(5)))[0]
    lengths = torch.logspace(-3, 3, 11)[:, None]
    changed = (features @ turn) * lengths
    torch.testing.assert_close(
        angular_silhouette(changed, labels), angular_silhouette(features, labels), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        angle_statistics(changed, labels).pair_mean, angle_statistics(features, labels).pair_mean, atol=1e-5, rtol=0
    )
    # The law rejects the Euclidean silhouette.
    euclidean = [silhouette_samples(x.numpy(), labels.numpy()) for x in (features, changed)]
    assert not np.allclose(*euclidean, atol=1e-2)


def test_a_hand_computed_case() -> None:
    degrees = torch.tensor([0.0, 10.0, 90.0, 120.0]) * math.pi / 180
    features, labels = torch.stack([degrees.cos(), degrees.sin()], 1).double(), torch.tensor([0, 0, 1, 1])
    found = angle_statistics(features, labels)
    as_degrees = found.pair_mean * 180 / math.pi
    torch.testing.assert_close(as_degrees, torch.tensor([[10.0, 100.0], [100.0, 30.0]]).double(), atol=1e-4, rtol=0)
    assert math.degrees(found.within) == pytest.approx(20, abs=1e-4)
    assert math.degrees(found.between) == pytest.approx(100, abs=1e-4)
    expected = torch.tensor([95 / 105, 85 / 95, 55 / 85, 85 / 115]).double()
    torch.testing.assert_close(angular_silhouette(features, labels), expected, atol=1e-6, rtol=0)


def test_nearly_parallel_float32_features_are_told_apart() -> None:
    """1e-4 radians apart: an arccos of a float32 product gives 0."""
    turns = torch.tensor([0.0, 1e-4, 1.0, 1.0 + 2e-4], dtype=torch.float64)
    features = torch.stack([turns.cos(), turns.sin()], 1).float()
    found = angle_statistics(features, torch.tensor([0, 0, 1, 1])).pair_mean.diagonal()
    torch.testing.assert_close(found, torch.tensor([1e-4, 2e-4], dtype=torch.float64), rtol=1e-2, atol=0)


def test_a_class_of_one_sample() -> None:
    features, labels = torch.eye(3), torch.tensor([0, 0, 1])
    found = angle_statistics(features, labels)
    assert found.pair_mean.isnan().tolist() == [[False, False], [False, True]]
    assert found.within == pytest.approx(math.pi / 2)
    assert angular_silhouette(features, labels).tolist()[2] == 0


def test_classes_of_one_sample_each_have_an_angle_between() -> None:
    found = angle_statistics(torch.eye(2), torch.tensor([3, 7]))
    assert found.between == pytest.approx(math.pi / 2)
    assert math.isnan(found.within)


def test_equal_angles_deviate_by_nothing() -> None:
    """Three samples, each at the same angle to the others: a variance that rounds below zero is zero."""
    for share in torch.linspace(0.1, 3.0, 60, dtype=torch.float64):
        found = angle_statistics(torch.cat([torch.eye(3) + share, -torch.eye(3)]), torch.tensor([0, 0, 0, 1, 1, 1]))
        assert found.pair_deviation.diagonal().max() < 1e-7


def test_degenerate_features_stay_finite() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    collapsed = angular_silhouette(torch.ones(4, 3), labels)
    assert collapsed.isfinite().all()
    torch.testing.assert_close(collapsed, torch.zeros(4, dtype=torch.float64), atol=1e-7, rtol=0)
    zeros = angle_statistics(torch.zeros(4, 3), labels)
    torch.testing.assert_close(zeros.pair_mean, torch.full((2, 2), math.pi / 2, dtype=torch.float64))
    opposite = torch.tensor([[1e-30], [1e-30], [-1e30], [-1e30]])
    assert angular_silhouette(opposite, labels).tolist() == [1.0] * 4


@pytest.mark.parametrize("measure", [angle_statistics, angular_silhouette])
def test_bad_input_in_one_sentence(measure) -> None:
    with pytest.raises(ValueError, match=r"^labels .*at least 2 .*\[1\]$"):
        measure(torch.ones(3, 2), torch.ones(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"^labels .*\b3\b.*\[2\]$"):
        measure(torch.ones(3, 2), [0, 1])
    with pytest.raises(TypeError, match=r"^labels .*integers.*torch.float32$"):
        measure(torch.ones(3, 2), torch.ones(3))
    with pytest.raises(ValueError, match="features must be finite"):
        measure(torch.full((3, 2), torch.inf), [0, 1, 1])
