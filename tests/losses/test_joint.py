"""Joint optimisation: the three terms against a loop, and the table of labels."""

import math

import pytest
import torch
from torch import Tensor

from hardsight.losses import JointOptimisation, joint_optimisation_loss


def loop(logits: Tensor, target: Tensor, prior: list[float], alpha: float, beta: float) -> float:
    p = logits.softmax(-1).tolist()
    count, classes = len(p), len(p[0])
    divergence = sum(
        y * (math.log(y) - math.log(s))
        for rows in zip(p, target.tolist(), strict=True)
        for s, y in zip(*rows, strict=True)
        if y
    )
    entropy = -sum(s * math.log(s) for row in p for s in row)
    mean = [sum(row[c] for row in p) / count for c in range(classes)]
    balance = sum(q * math.log(q / m) for q, m in zip(prior, mean, strict=True))
    return divergence / count + alpha * balance + beta * entropy / count


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return 2 * torch.randn(6, 3, generator=generator, dtype=torch.float64)


def test_equals_a_slow_loop(logits: Tensor, generator: torch.Generator) -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    one_hot = torch.nn.functional.one_hot(labels, 3).double()
    soft = torch.randn(6, 3, generator=generator, dtype=torch.float64).softmax(-1)
    prior = [0.5, 0.3, 0.2]
    for target in (one_hot, soft):
        result = joint_optimisation_loss(logits, target, alpha=0.7, beta=0.4, prior=torch.tensor(prior).double())
        assert result.item() == pytest.approx(loop(logits, target, prior, 0.7, 0.4), rel=1e-6)
    index = joint_optimisation_loss(logits, labels)
    assert index.item() == pytest.approx(loop(logits, one_hot, [1 / 3] * 3, 1.2, 0.8))


def test_zero_at_confident_balanced_agreement() -> None:
    """Predictions that are certain, right and balanced cost nothing; the same on one class alone cost the prior."""
    logits = 1e3 * torch.eye(3, dtype=torch.float64)
    assert joint_optimisation_loss(logits, torch.arange(3)).item() == pytest.approx(0, abs=1e-9)
    collapsed = joint_optimisation_loss(logits[:1].repeat(3, 1), torch.zeros(3, dtype=torch.long))
    assert 1 < collapsed.item() < math.inf


@pytest.mark.parametrize("gap", [30.0, 200.0, 1e4])
def test_a_class_nobody_believes_in_still_pulls(gap: float) -> None:
    """Collapsed on one class, the mean of another underflows in float32: that is when the second term is needed."""
    found = []
    for kind in (torch.float32, torch.float64):
        logits = (gap * torch.tensor([[1.0, 0.0, 0.1]])).repeat(4, 1).to(kind)
        logits[:, 2] += torch.arange(4)
        logits.requires_grad_()
        value = joint_optimisation_loss(logits, torch.zeros(4, dtype=torch.long), beta=0.0)
        value.backward()
        found.append((value.detach().double(), logits.grad.double()))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
    weight = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    apart = logits.detach().clone()
    apart[2] = torch.tensor([0.0, gap, 0.0], dtype=torch.float64)
    apart.requires_grad_()
    joint_optimisation_loss(apart, torch.zeros(4, dtype=torch.long), sample_weight=weight).backward()
    assert apart.grad.isfinite().all()
    assert (apart.grad[2] == 0).all()


def test_the_table_follows_the_mean_of_the_last_epochs(logits: Tensor) -> None:
    loss = JointOptimisation(8, 3, window=2, reduction="none").double()
    ids, labels = torch.tensor([7, 1, 3, 0, 2, 5]), torch.tensor([0, 1, 2, 0, 1, 2])
    given = joint_optimisation_loss(logits, labels, reduction="none")
    torch.testing.assert_close(loss(logits, labels, ids=ids), given)
    for epoch in range(3):
        loss.record(ids, logits * epoch)
        loss.end_epoch(update=epoch == 2)
        if epoch < 2:
            torch.testing.assert_close(loss(logits, labels, ids=ids), given)
    mean = (logits.softmax(-1) + (2 * logits).softmax(-1)) / 2
    torch.testing.assert_close(loss.labels[ids], mean, rtol=1e-6, atol=1e-6)
    expected = joint_optimisation_loss(logits, loss.labels[ids], reduction="none")
    torch.testing.assert_close(loss(logits, labels, ids=ids), expected)
    # Sample 4 was never recorded: its given label still counts.
    mixed = loss(logits, labels, ids=torch.tensor([7, 1, 4, 0, 2, 5]))
    assert not torch.allclose(mixed[2], expected[2])


def test_hard_labels_are_the_argmax(logits: Tensor) -> None:
    loss = JointOptimisation(6, 3, hard=True).double()
    loss.record(torch.arange(6), logits)
    loss.end_epoch()
    assert loss.labels.argmax(-1).tolist() == logits.argmax(-1).tolist()
    assert (loss.labels.sum(-1) == 1).all()


def test_the_table_is_in_the_state(logits: Tensor) -> None:
    loss, other = JointOptimisation(6, 3, window=2).double(), JointOptimisation(6, 3, window=2).double()
    ids, labels = torch.arange(6), torch.tensor([0, 1, 2, 0, 1, 2])
    loss.record(ids, logits)
    loss.end_epoch()
    other.load_state_dict(loss.state_dict())
    for member in (loss, other):
        member.record(ids, 3 * logits)
        member.end_epoch()
    torch.testing.assert_close(other(logits, labels, ids=ids), loss(logits, labels, ids=ids))


def test_a_class_that_is_ruled_out_everywhere_has_a_finite_price() -> None:
    logits = torch.tensor([[0.0, 1.0, -math.inf], [2.0, 0.0, -math.inf]], requires_grad=True)
    loss = joint_optimisation_loss(logits, torch.tensor([0, 1]))
    loss.backward()
    # A third of -log of the smallest number, about 29, times alpha.
    assert 30 < loss.item() < 40
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_a_prior_is_copied_and_carries_no_gradient() -> None:
    prior = torch.full((3,), 1 / 3, requires_grad=True)
    kept = JointOptimisation(4, 3, prior=prior).prior
    assert not kept.requires_grad
    with torch.no_grad():
        prior.zero_()
    assert kept.tolist() == pytest.approx([1 / 3] * 3)


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"alpha must be at least 0 and finite; got -1.0"):
        JointOptimisation(4, 3, alpha=-1.0)
    with pytest.raises(ValueError, match="window must be at least 1"):
        JointOptimisation(4, 3, window=0)
    for prior in ([0.5, 0.5], [0.5, 0.7, -0.2], [1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="prior must be 3 probabilities that sum to 1; got"):
            JointOptimisation(4, 3, prior=torch.tensor(prior))
        with pytest.raises(ValueError, match="prior must be 3 probabilities that sum to 1; got"):
            joint_optimisation_loss(torch.zeros(2, 3), torch.tensor([0, 1]), prior=torch.tensor(prior))
