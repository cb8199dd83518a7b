"""Retrieval across cameras: equal to a slow reference, with every rule of MARS's protocol in a hand-made case."""

import math

import pytest
import torch
from hardsight_studies.gr.mars import Tracklets, average_tracklets, retrieve, search
from torch import Tensor


def tracklets(features: Tensor, identities: list[int], cameras: list[int]) -> Tracklets:
    unit = features / features.norm(dim=1, keepdim=True)
    return Tracklets(torch.arange(len(features)), torch.tensor(identities), torch.tensor(cameras), unit)


def random_tracklets(count: int, seed: int, lowest: int) -> Tracklets:
    generator = torch.Generator().manual_seed(seed)
    # Whole numbers, not of length 1: many products are equal, and equal to the last bit.
    features = torch.randint(-1, 2, (count, 4), generator=generator).double()
    identities = torch.randint(lowest, 5, (count,), generator=generator)
    cameras = torch.randint(1, 4, (count,), generator=generator)
    return Tracklets(torch.arange(count), identities, cameras, features)


def slow(query: Tracklets, gallery: Tracklets) -> tuple[list[float], list[float]]:
    """One query after the other, as the evaluation code of Market-1501 walks down the ranking."""
    averages, firsts = [], []
    for q in range(len(query.numbers)):
        similar = (query.features[q] @ gallery.features.T).tolist()
        ranking = sorted(range(len(similar)), key=lambda g: (-similar[g], g))
        good = [
            g
            for g in ranking
            if gallery.identities[g] == query.identities[q] != -1 and gallery.cameras[g] != query.cameras[q]
        ]
        found, place, average, before, first = 0, 0, 0.0, 1.0, math.inf
        for g in ranking:
            same_camera = gallery.identities[g] == query.identities[q] and gallery.cameras[g] == query.cameras[q]
            if gallery.identities[g] == -1 or same_camera:
                continue
            place += 1
            if g in good:
                found += 1
                first = min(first, place)
                here = found / place
                average += (here + before) / 2 / len(good)
            before = found / place
        averages.append(average if good else math.nan)
        firsts.append(first)
    return averages, firsts


def test_equals_the_slow_reference() -> None:
    # Junk and distractors among the queries too: nobody is found for junk. More queries than are ranked at once.
    query, gallery = random_tracklets(300, 0, -1), random_tracklets(61, 1, -1)
    averages, firsts = slow(query, gallery)
    found = retrieve(query, gallery)
    torch.testing.assert_close(found[0], torch.tensor(averages).double(), equal_nan=True, atol=1e-7, rtol=0)
    assert found[1].tolist() == firsts


def line(*angles: float) -> Tensor:
    return torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles], dtype=torch.float64)


def test_hand_computed() -> None:
    """Ranking: same camera (out), junk (out), distractor, match, other, match: precisions 1/2 and 2/4.

    With those one place before, (0 + 1/2) / 2 and (1/3 + 2/4) / 2.
    """
    query = tracklets(line(0.0), [7], [1])
    gallery = tracklets(line(0.1, 0.2, 0.3, 0.4, 0.5, 0.6), [7, -1, 0, 7, 3, 7], [1, 2, 2, 2, 2, 3])
    averages, first = retrieve(query, gallery)
    assert averages.tolist() == pytest.approx([(1 / 4 + 5 / 12) / 2])
    assert first.tolist() == [2]


def test_laws() -> None:
    query, gallery = random_tracklets(15, 3, 1), random_tracklets(40, 4, -1)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    # Rounding breaks ties another way: a set without ties.
    apart = [
        part._replace(
            features=torch.randn(
                len(part.numbers), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
            )
        )
        for seed, part in enumerate((query, gallery))
    ]
    rotated = [part._replace(features=part.features @ turn) for part in apart]
    expected = retrieve(*apart)
    torch.testing.assert_close(retrieve(*rotated), expected, equal_nan=True)
    # More junk changes nothing; a perfect gallery is found perfectly.
    junk = Tracklets(*(torch.cat([ours, more]) for ours, more in zip(apart[1], _junk(5), strict=True)))
    torch.testing.assert_close(retrieve(apart[0], junk), expected, equal_nan=True)
    people = tracklets(line(0.0, 1.0), [1, 2], [1, 1])
    assert retrieve(people, people._replace(cameras=torch.tensor([2, 2])))[0].tolist() == [1, 1]


def _junk(count: int) -> Tracklets:
    return Tracklets(
        torch.arange(count), torch.full((count,), -1), torch.ones(count, dtype=torch.int64),
        torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9)),
    )  # fmt: skip


def test_tracklets_are_means_of_length_one() -> None:
    features = torch.tensor([[2.0, 0.0], [0.0, 5.0], [4.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    made = average_tracklets(
        features, torch.tensor([4, 9, 4, 2]), torch.tensor([7, 3, 7, -1]), torch.tensor([1, 2, 1, 6])
    )
    assert made.numbers.tolist() == [2, 4, 9]
    assert made.identities.tolist() == [-1, 7, 3]
    assert made.cameras.tolist() == [6, 1, 2]
    assert made.features.tolist() == [[0, 0], [1, 0], [0, 1]]
    with pytest.raises(ValueError, match="tracklets must have one camera each; 4 has several"):
        average_tracklets(features, torch.tensor([4, 9, 4, 2]), torch.tensor([7, 3, 7, 1]), torch.tensor([1, 2, 3, 6]))


def test_queries_of_whom_nobody_is_in_the_gallery_are_rejected() -> None:
    gallery = random_tracklets(9, 1, -1)
    with pytest.raises(ValueError, match="whom another camera saw in the gallery; got none"):
        search(gallery._replace(cameras=torch.ones(9, dtype=torch.int64)), gallery.numbers[:3])
