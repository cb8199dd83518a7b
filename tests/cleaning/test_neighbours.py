"""Nearest neighbours by angle against loops in float64, by tiles and by an index, and duplicates among them."""

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hardsight.cleaning import neighbours
from hardsight.cleaning.neighbours import angles_to, nearest_in_angle, neighbour_disagreement


def make(samples: int = 60, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Features around their class's direction, and labels of which a fifth is wrong."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(classes, (samples,), generator=generator)
    features = torch.eye(classes)[truth] + 0.4 * torch.randn(samples, classes, generator=generator)
    flipped = torch.rand(samples, generator=generator) < 0.2
    return features, torch.where(flipped, (truth + 1) % classes, truth)


def nearest_by_loop(features: Tensor, count: int) -> list[list[int]]:
    rows = features.double()
    found = []
    for one in range(len(rows)):
        angles = [
            (float(torch.acos((rows[one] @ rows[other] / rows[one].norm() / rows[other].norm()).clamp(-1, 1))), other)
            for other in range(len(rows))
            if other != one
        ]
        found.append([other for _, other in sorted(angles)[:count]])
    return found


def test_the_nearest_are_those_of_the_smallest_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = make()
    expected = torch.tensor(nearest_by_loop(features, 7))
    assert torch.equal(nearest_in_angle(features, 7), expected)
    # Tiles of one row each.
    monkeypatch.setattr(neighbours, "_TILE", 1)
    assert torch.equal(nearest_in_angle(features, 7), expected)


# Tiles are 33 MB; with their memory taken again for each, and never used again, these calls needed 0.4 GB and more.
TILES = """
import resource, torch
from hardsight.cleaning.neighbours import nearest_in_angle

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
torch.set_num_threads(1)
features = torch.randn(12_000, 8, generator=torch.Generator().manual_seed(0))
before = peak()
for _ in range(3):
    nearest_in_angle(features, 50)
print((peak() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units")
def test_tiles_share_their_memory() -> None:
    told = subprocess.run([sys.executable, "-c", TILES], check=True, capture_output=True, text=True)
    assert int(told.stdout) < 200


def test_features_that_are_being_learned_have_neighbours() -> None:
    features, _ = make()
    assert torch.equal(nearest_in_angle(features.clone().requires_grad_(), 7), nearest_in_angle(features, 7))


def is_unchanged_by_length_and_rotation(nearest: Callable[[Tensor, int], Tensor]) -> bool:
    features, _ = make()
    generator = torch.Generator().manual_seed(1)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    lengths = 0.1 + 9 * torch.rand(len(features), 1, generator=generator)
    return torch.equal(nearest(features, 5), nearest(lengths * features @ rotation, 5))


def nearest_in_distance(features: Tensor, count: int) -> Tensor:
    distances = torch.cdist(features, features).fill_diagonal_(torch.inf)
    return distances.topk(count, largest=False).indices


def test_neighbours_are_by_direction_alone() -> None:
    assert is_unchanged_by_length_and_rotation(nearest_in_angle)
    assert not is_unchanged_by_length_and_rotation(nearest_in_distance)


@pytest.mark.parametrize("count", [0, 60, 99])
def test_a_number_of_neighbours_that_is_not_there_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"neighbours must lie in \[1, 59\], the other samples; got {count}"):
        nearest_in_angle(make()[0], count)


def test_zero_features_have_neighbours_too() -> None:
    features = torch.zeros(5, 3)
    features[0, 0] = 1.0
    near = nearest_in_angle(features, 4)
    assert all(one not in near[one].tolist() for one in range(5))


def test_disagreement_by_loop() -> None:
    features, labels = make()
    near = nearest_in_angle(features, 9)
    expected = [
        sum(int(labels[other]) != int(labels[one]) for other in near[one].tolist()) / 9 for one in range(len(labels))
    ]
    torch.testing.assert_close(neighbour_disagreement(labels, near), torch.tensor(expected))


def test_float64_tells_neighbours_apart_that_are_nearly_parallel() -> None:
    features = 1 + 1e-4 * torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units = features / features.norm(dim=1, keepdim=True)
    # Between unit vectors the distance grows with the angle, and needs no cosine.
    distances = (units.unsqueeze(0) - units.unsqueeze(1)).norm(dim=2).fill_diagonal_(9.0)
    assert torch.equal(nearest_in_angle(features, 5), distances.topk(5, largest=False).indices)


def test_angles_to_neighbours_are_exact_where_they_are_small() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 1e-4], [0.0, 2.0]])
    found = angles_to(features, torch.tensor([[1, 2], [0, 2], [0, 1]]))
    quarter = np.pi / 2
    expected = torch.tensor([[1e-4, quarter], [1e-4, quarter - 1e-4], [quarter, quarter - 1e-4]])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


class FakeIndex:
    """Searches exactly among as many points as `efSearch` says, from the front: too few until it is widened."""

    widths: tuple[int, ...] = ()

    def __init__(self, dim: int, links: int, metric: int) -> None:
        self.hnsw = SimpleNamespace(efConstruction=0, efSearch=0)

    def add(self, points: np.ndarray) -> None:
        self.points = points

    def search(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        FakeIndex.widths += (self.hnsw.efSearch,)
        cosines = rows @ self.points[: self.hnsw.efSearch].T
        places = np.full((len(rows), count), -1)
        order = np.argsort(-cosines, axis=1)[:, :count]
        places[:, : order.shape[1]] = order
        return np.take_along_axis(cosines, order, 1), places


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = SimpleNamespace(
        IndexHNSWFlat=FakeIndex, METRIC_INNER_PRODUCT=0, omp_set_num_threads=lambda count: None
    )
    monkeypatch.setitem(sys.modules, "faiss", module)
    monkeypatch.setattr(neighbours, "MOST_EXACT", 10)
    FakeIndex.widths = ()


@pytest.mark.usefixtures("index")
def test_an_index_is_searched_wider_until_it_finds_the_true_neighbours() -> None:
    features, _ = make()
    expected = nearest_by_loop(features, 5)
    found = nearest_in_angle(features, 5)
    hits = np.mean([len(set(one) & set(other)) for one, other in zip(found.tolist(), expected, strict=True)]) / 5
    assert hits >= 0.98
    assert FakeIndex.widths[0] < FakeIndex.widths[-1]
    assert all(one not in found[one].tolist() for one in range(60))


@pytest.mark.usefixtures("index")
def test_an_index_gives_neighbours_of_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = make()
    groups = torch.arange(60) // 20
    found = nearest_in_angle(features, 5, groups)
    assert (groups[found] != groups[:, None]).all()
    monkeypatch.setattr(neighbours, "MOST_EXACT", 100)
    exact = nearest_in_angle(features, 5, groups)
    assert (found == exact).float().mean() > 0.9


def test_without_an_index_many_samples_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST_EXACT", 10)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"10 .* 60.*faiss-cpu"):
        nearest_in_angle(make()[0], 5)


def test_a_real_index_finds_nearly_all_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    features = torch.randn(3000, 16, generator=torch.Generator().manual_seed(0))
    exact = nearest_in_angle(features, 10)
    monkeypatch.setattr(neighbours, "MOST_EXACT", 10)
    found = nearest_in_angle(features, 10)
    assert (found.unsqueeze(2) == exact.unsqueeze(1)).any(2).float().mean() >= 0.98
