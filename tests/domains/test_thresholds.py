"""Thresholds by rank: by hand, at the edge of binary fractions, and where bits order otherwise than numbers."""

import pytest
import torch

from hardsight.domains.selection import check_portion, rank_thresholds


def test_thresholds_by_hand() -> None:
    confidence = torch.tensor([0.9, 0.5, 0.7, 0.6, 0.8, 0.4])
    predicted = torch.tensor([0, 0, 0, 0, 2, 2])
    found = rank_thresholds(confidence, predicted, 4, 0.5)
    assert found.values.tolist() == pytest.approx([0.7, 1.0, 0.8, 1.0])
    assert found.ranks.tolist() == [2, 0, 1, 0]
    assert rank_thresholds(confidence, predicted, 4, 1.0).values.tolist() == pytest.approx([0.5, 1.0, 0.4, 1.0])


@pytest.mark.parametrize(("count", "portion", "rank"), [(100, 0.29, 29), (20, 0.35, 7), (10, 0.2 + 0.05 + 0.05, 3)])
def test_a_rank_is_not_lost_to_binary_fractions(count: int, portion: float, rank: int) -> None:
    confidence = torch.linspace(1, 0.5, count)
    found = rank_thresholds(confidence, torch.zeros(count, dtype=torch.int64), 1, portion)
    assert found.ranks.item() == rank
    assert found.values.item() == confidence[rank - 1]


def test_bits_order_as_the_confidences_do() -> None:
    """Zeros of both signs, the smallest number there is, and neighbours of one: sorted as numbers, tied where equal."""
    least, below_one = 2.0**-149, torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)).item()
    confidence = torch.tensor([-0.0, below_one, 0.0, 1.0, least, 0.5])
    ranked = torch.tensor(sorted(confidence.tolist(), reverse=True))
    for rank in range(1, 7):
        found = rank_thresholds(confidence, torch.zeros(6, dtype=torch.int64), 1, rank / 6)
        assert (found.ranks.item(), found.values.item()) == (rank, ranked[rank - 1].item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_confidences_of_any_precision(dtype: torch.dtype) -> None:
    confidence = torch.tensor([0.75], dtype=dtype)
    assert rank_thresholds(confidence, torch.tensor([0]), 1, 1.0).values.tolist() == [0.75]


@pytest.mark.parametrize("portion", [0.0, -0.1, 1.01, float("nan")])
def test_a_portion_is_refused_under_the_name_it_was_given_by(portion: float) -> None:
    with pytest.raises(ValueError, match=r"portion_cap must lie in \(0, 1\], the share of target samples .* got"):
        check_portion(portion, "portion_cap")
