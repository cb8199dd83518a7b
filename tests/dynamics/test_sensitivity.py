"""Local sensitivity: the divergence by slow loops, what must not change it, and a model that is really augmented."""

import decimal
import math

import pytest
import torch
from torch import Tensor

from hardsight.dynamics import local_sensitivity
from hardsight.hardness import get_score


def looks(samples: int = 9, classes: int = 4, copies: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    return logits, logits + torch.randn(copies, samples, classes, generator=generator, dtype=torch.float64)


def divergence_slowly(logits: Tensor, augmented: Tensor) -> list[list[float]]:
    """One list a sample, one number a copy."""
    found = []
    for sample in range(len(logits)):
        own = logits[sample].softmax(0).tolist()
        found.append(
            [
                sum(p * math.log(p / q) for p, q in zip(own, copy[sample].softmax(0).tolist(), strict=True))
                for copy in augmented
            ]
        )
    return found


def test_it_equals_the_slow_loop() -> None:
    logits, augmented = looks()
    slow = divergence_slowly(logits, augmented)
    mean = torch.tensor([sum(row) / len(row) for row in slow], dtype=torch.float64)
    torch.testing.assert_close(local_sensitivity(logits, augmented), mean)


def test_a_case_by_hand() -> None:
    # p = (1/2, 1/2), q = (1/4, 3/4): log 2 / 2 + log(2/3) / 2.
    logits, copy = torch.zeros(1, 2), torch.tensor([[[0.0, math.log(3.0)]]])
    expected = torch.tensor([(math.log(2) + math.log(2 / 3)) / 2])
    torch.testing.assert_close(local_sensitivity(logits, copy), expected)


def test_the_direction_counts_and_the_other_way_round_is_rejected() -> None:
    logits, augmented = looks(copies=1)
    backwards = local_sensitivity(augmented[0], logits.unsqueeze(0))
    assert not torch.allclose(local_sensitivity(logits, augmented), backwards)


def test_shifts_of_all_logits_change_nothing_and_the_same_look_gives_zero() -> None:
    logits, augmented = looks()
    torch.testing.assert_close(local_sensitivity(logits + 7, augmented - 3), local_sensitivity(logits, augmented))
    assert torch.equal(local_sensitivity(logits, logits.unsqueeze(0) + 5).round(decimals=12), torch.zeros(9).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sure_predictions_stay_finite_and_not_negative(dtype: torch.dtype) -> None:
    logits = torch.tensor([[6e4, 0.0, 0.0], [0.0, 0.0, 0.0], [1e-3, 0.0, 0.0]]).to(dtype)
    augmented = torch.stack([logits, logits.flip(1)])
    values = local_sensitivity(logits, augmented)
    assert bool(values.isfinite().all())
    assert bool((values >= 0).all())
    assert values[0] > 1e4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sure_predictions_keep_their_order(dtype: torch.dtype) -> None:
    """Against sixty digits: the terms of both signs cancel to 1e-8 and less, where float32 would leave its rounding."""
    gaps, moved = [4.0, 18.0, 20.0, 25.0, 60.0], [3.5, 17.5, 19.0, 25.5, 59.0]
    with decimal.localcontext(prec=60):
        expected = []
        for gap, other in zip(map(decimal.Decimal, gaps), map(decimal.Decimal, moved), strict=True):
            p, q = 1 / (1 + (-gap).exp()), 1 / (1 + (-other).exp())
            expected.append(float(p * (p / q).ln() + (1 - p) * ((1 - p) / (1 - q)).ln()))
    logits, copy = (torch.tensor([[gap, 0.0] for gap in look], dtype=dtype) for look in (gaps, moved))
    found = local_sensitivity(logits, copy.unsqueeze(0))
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), rtol=1e-5, atol=0)


def test_no_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one copy"):
        local_sensitivity(torch.zeros(2, 3), torch.zeros(0, 2, 3))


def test_it_is_registered() -> None:
    assert get_score("allsh").definition is local_sensitivity
    assert get_score("allsh").larger_is_harder
