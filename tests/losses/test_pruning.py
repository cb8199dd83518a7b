"""Truncated GCE: its two branches, and the alternation over a table of samples."""

import math

import pytest
import torch
from torch import Tensor

from hardsight.losses import TruncatedGCELoss, gce_loss, truncated_gce_loss

BOUND = (1 - 0.5**0.7) / 0.7


@pytest.fixture
def logits() -> Tensor:
    """Probabilities of the first class: 0.9, 0.6, 0.4, 0.1."""
    p = torch.tensor([0.9, 0.6, 0.4, 0.1], dtype=torch.float64)
    return torch.stack([p.log(), (1 - p).log()], dim=-1)


@pytest.fixture
def labels() -> Tensor:
    return torch.zeros(4, dtype=torch.long)


def test_equation_5(logits: Tensor, labels: Tensor) -> None:
    expected = [(1 - p**0.7) / 0.7 if p > 0.5 else BOUND for p in (0.9, 0.6, 0.4, 0.1)]
    leaf = logits.clone().requires_grad_()
    losses = truncated_gce_loss(leaf, labels, reduction="none")
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))
    losses.sum().backward()
    assert (leaf.grad[2:] == 0).all()  # dropped
    assert (leaf.grad[:2] != 0).all()


def test_the_alternation(logits: Tensor, labels: Tensor) -> None:
    """All are followed before the first pruning; then the table decides, not the present probability."""
    loss = TruncatedGCELoss(num_samples=6, reduction="none").double()
    ids = torch.tensor([4, 0, 2, 5])
    torch.testing.assert_close(loss(logits, labels, ids=ids), gce_loss(logits, labels, reduction="none"))
    loss.prune(ids, logits, labels)
    torch.testing.assert_close(loss(logits, labels, ids=ids), gce_loss(logits, labels, reduction="none"))
    assert loss.end_pruning().item() == pytest.approx(4 / 6)
    assert loss.kept.tolist() == [True, True, False, True, True, False]
    better = logits.flip(0)
    expected = torch.where(loss.kept[ids], gce_loss(better, labels, reduction="none"), BOUND)
    torch.testing.assert_close(loss(better, labels, ids=ids), expected)
    loss.prune(ids, better, labels)  # a sample that was dropped may come back
    loss.end_pruning()
    assert loss.kept.tolist() == [False, True, True, True, False, True]


def test_a_sample_whose_label_is_ignored_stays_as_it_was(logits: Tensor, labels: Tensor) -> None:
    loss = TruncatedGCELoss(num_samples=4)
    loss.prune(torch.arange(4), logits, labels)
    loss.end_pruning()
    assert loss.kept.tolist() == [True, True, False, False]
    loss.prune(torch.arange(4), logits.flip(0), torch.tensor([-100, 0, -100, 0]))
    assert loss.end_pruning() == 0.5
    assert loss.kept.tolist() == [True, False, False, True]


def test_the_table_is_in_the_state(logits: Tensor, labels: Tensor) -> None:
    loss, other = TruncatedGCELoss(num_samples=4), TruncatedGCELoss(num_samples=4)
    ids = torch.arange(4)
    loss.prune(ids, logits, labels)
    loss.end_pruning()
    other.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other(logits, labels, ids=ids), loss(logits, labels, ids=ids))


def test_pruning_minimises_over_the_flags(logits: Tensor, labels: Tensor) -> None:
    """Each flag is the cheaper of loss and bound: no other choice of flags has a smaller sum."""
    kept = gce_loss(logits, labels, reduction="none") <= BOUND
    best = truncated_gce_loss(logits, labels, kept=kept, reduction="sum")
    for number in range(16):
        flags = torch.tensor([bool(number >> bit & 1) for bit in range(4)])
        assert truncated_gce_loss(logits, labels, kept=flags, reduction="sum") >= best - 1e-12


def test_rejects_in_one_sentence(logits: Tensor, labels: Tensor) -> None:
    with pytest.raises(ValueError, match="ids must name the samples"):
        TruncatedGCELoss(num_samples=4)(logits, labels)
    with pytest.raises(ValueError, match="kept must hold a flag for each of the 4 samples; got 1"):
        truncated_gce_loss(logits, labels, kept=torch.tensor([True]))
    with pytest.raises(ValueError, match="num_samples must be given"):
        TruncatedGCELoss().prune(torch.arange(4), logits, labels)
    with pytest.raises(ValueError, match=r"k must lie in \(0, 1\]; got 0.0"):
        TruncatedGCELoss(k=0.0)
    assert math.isfinite(TruncatedGCELoss(k=1.0)(logits, labels))
