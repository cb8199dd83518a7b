"""Triplets by angle: a loop reference in float64, laws, and batches that give none."""

import math

import pytest
import torch

from hardsight.cleaning import mine_triplets


def batch(seed: int = 0, samples: int = 24, classes: int = 4, dim: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return centres[labels] + 0.7 * torch.randn(samples, dim, generator=generator, dtype=torch.float64), labels


def angle(one: list[float], other: list[float]) -> float:
    product = math.fsum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in other))
    return math.acos(max(-1.0, min(1.0, product / lengths)))


def by_loops(features: torch.Tensor, labels: torch.Tensor, margin: float) -> list[tuple[int, int, int]]:
    rows, found = features.tolist(), []
    for a in range(len(rows)):
        positives = [p for p in range(len(rows)) if p != a and labels[p] == labels[a]]
        negatives = [n for n in range(len(rows)) if labels[n] != labels[a]]
        if not positives or not negatives:
            continue
        positive = max(positives, key=lambda p: angle(rows[a], rows[p]))
        reach = angle(rows[a], rows[positive])
        semi_hard = [n for n in negatives if reach < angle(rows[a], rows[n]) < reach + margin]
        found.append((a, positive, min(semi_hard or negatives, key=lambda n: angle(rows[a], rows[n]))))
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("margin", [math.inf, 0.3])
def test_equals_the_loops(seed: int, margin: float) -> None:
    features, labels = batch(seed)
    mined = mine_triplets(features, labels, margin_radians=margin)
    assert list(zip(*(part.tolist() for part in mined), strict=True)) == by_loops(features, labels, margin)


def is_rotation_and_scale_free(mine) -> bool:
    features, labels = batch(9)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    lengths = torch.rand(24, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 5 + 0.1
    moved = mine(features @ rotation * lengths, labels)
    return all(torch.equal(a, b) for a, b in zip(mine(features, labels), moved, strict=True))


def test_rotation_and_length_do_not_count_and_euclidean_mining_is_rejected() -> None:
    def euclidean(features: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        distances = torch.cdist(features, features)
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        return torch.where(same, distances, -1).argmax(1), torch.where(same, math.inf, distances).argmin(1)

    assert is_rotation_and_scale_free(mine_triplets)
    assert not is_rotation_and_scale_free(euclidean)


def test_only_the_hardest_become_anchors() -> None:
    features, labels = batch(1)
    hardness = torch.rand(24, generator=torch.Generator().manual_seed(3))
    chosen = mine_triplets(features, labels, hardness=hardness, share=0.25)
    assert set(chosen.anchors.tolist()) <= set(hardness.topk(6).indices.tolist())
    everything = mine_triplets(features, labels)
    kept = torch.isin(everything.anchors, chosen.anchors)
    assert torch.equal(everything.negatives[kept], chosen.negatives)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0]])
def test_batches_without_triplets(labels: list[int]) -> None:
    mined = mine_triplets(torch.eye(3)[: len(labels)], torch.tensor(labels))
    assert [len(part) for part in mined] == [0, 0, 0]


def test_zero_and_equal_features_still_give_triplets() -> None:
    mined = mine_triplets(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1, 1]))
    assert mined.anchors.tolist() == [0, 1, 2, 3]
    assert mined.positives.tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"margin_radians": 0.0}, "margin_radians must be positive"), ({"share": 0.0}, "share must lie")],
)
def test_refusals(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        mine_triplets(torch.eye(3), torch.tensor([0, 0, 1]), **options)
    with pytest.raises(ValueError, match="features must be finite"):
        mine_triplets(torch.full((3, 3), math.nan), torch.tensor([0, 0, 1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_mined_by_the_angles_of_its_vectors(dtype: torch.dtype) -> None:
    """Angles rounded to half precision tie, and a tie is no semi-hard negative."""
    generator = torch.Generator().manual_seed(0)
    features = (1 + 0.05 * torch.randn(64, 8, generator=generator)).to(dtype)
    labels = torch.randint(4, (64,), generator=generator)
    mined = mine_triplets(features, labels)
    assert list(zip(*(part.tolist() for part in mined), strict=True)) == by_loops(features.double(), labels, math.inf)


def test_an_anchor_without_hardness_is_refused_and_shares_are_not_rounded_up() -> None:
    features, labels = batch(samples=100)
    hardness = torch.rand(100, generator=torch.Generator().manual_seed(0))
    assert len(mine_triplets(features, labels, hardness=hardness, share=0.07).anchors) == 7
    hardness[3] = math.nan
    with pytest.raises(ValueError, match="hardness must be finite"):
        mine_triplets(features, labels, hardness=hardness, share=0.07)


def test_no_samples_make_no_triplets() -> None:
    mined = mine_triplets(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert [len(part) for part in mined] == [0, 0, 0]
