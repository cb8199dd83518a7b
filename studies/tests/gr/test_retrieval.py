"""Retrieval across cameras: equal to a slow reference, with every rule of MARS's protocol in a hand-made case."""

import math

import pytest
import torch
from hardsight_studies.gr.retrieval import Tracklets, average_tracklets, retrieve
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


def slow(query: Tracklets, gallery: Tracklets, precision: str) -> tuple[list[float], list[float]]:
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
                average += (here if precision == "steps" else (here + before) / 2) / len(good)
            before = found / place
        averages.append(average if good else math.nan)
        firsts.append(first)
    return averages, firsts


@pytest.mark.parametrize("precision", ["steps", "trapezoid"])
@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_equals_the_slow_reference(precision: str, at_once: int) -> None:
    # Junk and distractors among the queries too: nobody is found for junk.
    query, gallery = random_tracklets(23, 0, -1), random_tracklets(61, 1, -1)
    found = retrieve(query, gallery, precision=precision, queries_at_once=at_once)
    averages, firsts = slow(query, gallery, precision)
    torch.testing.assert_close(
        found.average_precisions, torch.tensor(averages).double(), equal_nan=True, atol=1e-7, rtol=0
    )
    known = [place for place, average in zip(firsts, averages, strict=True) if not math.isnan(average)]
    assert found.cmc == {k: pytest.approx(sum(place <= k for place in known) / len(known)) for k in (1, 5, 10, 20)}
    assert found.mean_average_precision == pytest.approx(sum(a for a in averages if not math.isnan(a)) / len(known))
    assert found.unmatched == len(averages) - len(known)


def line(*angles: float) -> Tensor:
    return torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles], dtype=torch.float64)


def test_hand_computed() -> None:
    """Ranking: same camera (out), junk (out), distractor, match, other, match: precisions 1/2 and 2/4."""
    query = tracklets(line(0.0), [7], [1])
    gallery = tracklets(line(0.1, 0.2, 0.3, 0.4, 0.5, 0.6), [7, -1, 0, 7, 3, 7], [1, 2, 2, 2, 2, 3])
    found = retrieve(query, gallery, ranks=(1, 2))
    assert found.mean_average_precision == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert found.cmc == {1: 0.0, 2: 1.0}
    # Trapezoid: (0 + 1/2) / 2 and (1/3 + 2/4) / 2.
    trapezoid = retrieve(query, gallery, precision="trapezoid").mean_average_precision
    assert trapezoid == pytest.approx((1 / 4 + 5 / 12) / 2)
    # Who leaves junk or the query's own camera in gets another number.
    naive = [0, 1, 2, 3, 4, 5]
    hits = [place + 1 for place, g in enumerate(naive) if gallery.identities[g] == 7]
    assert sum((n + 1) / place for n, place in enumerate(hits)) / len(hits) != pytest.approx(0.5)


def test_laws() -> None:
    query, gallery = random_tracklets(15, 3, 1), random_tracklets(40, 4, -1)
    before = retrieve(query, gallery)
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
    assert retrieve(*rotated).mean_average_precision == pytest.approx(retrieve(*apart).mean_average_precision)
    assert 0 <= before.mean_average_precision <= 1
    # More junk changes nothing; a perfect gallery is found perfectly.
    junk = Tracklets(*(torch.cat([ours, more]) for ours, more in zip(apart[1], _junk(5), strict=True)))
    assert retrieve(apart[0], junk).mean_average_precision == retrieve(*apart).mean_average_precision
    people = tracklets(line(0.0, 1.0), [1, 2], [1, 1])
    assert retrieve(people, people._replace(cameras=torch.tensor([2, 2]))).mean_average_precision == 1


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


def test_bad_input_is_refused() -> None:
    query, gallery = random_tracklets(3, 0, 1), random_tracklets(9, 1, -1)
    with pytest.raises(ValueError, match="whom another camera saw in the gallery; got none"):
        retrieve(query, gallery._replace(identities=torch.full((9,), 99)))
    with pytest.raises(ValueError, match="at least one tracklet each"):
        retrieve(Tracklets(*(part[:0] for part in query)), gallery)
