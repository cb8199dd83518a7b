"""Self-paced weights and MentorNet's predefined curriculum: thresholds, stages, state."""

import pytest
import torch
from torch.nn import functional

from hardsight.losses import MentorNetPD, SelfPaced, mentornet_weights, self_paced_loss, self_paced_weights

LOSSES = torch.tensor([0.2, 0.9, 1.0, 1.5, 3.0])


def test_self_paced_weights() -> None:
    assert self_paced_weights(LOSSES, 1.0).tolist() == [1, 1, 0, 0, 0]
    torch.testing.assert_close(self_paced_weights(LOSSES, 2.0, linear=True), torch.tensor([0.9, 0.55, 0.5, 0.25, 0.0]))


def test_hard_weights_minimise_the_self_paced_objective() -> None:
    """Kumar et al.: v minimises sum v loss - threshold sum v over v in {0, 1}."""
    best = (self_paced_weights(LOSSES, 1.2) * (LOSSES - 1.2)).sum()
    for number in range(32):
        flags = torch.tensor([float(number >> bit & 1) for bit in range(5)])
        assert (flags * (LOSSES - 1.2)).sum() >= best - 1e-6


def test_self_paced_loss_is_a_mean_over_all_samples(generator: torch.Generator) -> None:
    logits = 2 * torch.randn(9, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(9) % 4
    losses = functional.cross_entropy(logits, labels, reduction="none")
    expected = sum(value for value in losses.tolist() if value < 1.3) / 9
    leaf = logits.requires_grad_()
    result = self_paced_loss(leaf, labels, threshold=1.3)
    assert result.item() == pytest.approx(expected)
    result.backward()
    assert ((leaf.grad != 0).any(-1) == (losses < 1.3)).all()


def test_advance_lets_harder_samples_in() -> None:
    loss, other = SelfPaced(1.0, 1.5, reduction="none"), SelfPaced()
    logits = torch.tensor([[0.0, 1.0]])  # cross-entropy 1.31 for the first class
    assert loss(logits, torch.tensor([0])) == 0
    loss.advance()
    assert loss(logits, torch.tensor([0])) > 1
    other.load_state_dict(loss.state_dict())
    assert other.threshold == 1.5


def test_mentornet_s_stages() -> None:
    assert mentornet_weights(LOSSES, 1.0, 0.1).tolist() == [1, 1, 1, 1, 1]
    assert mentornet_weights(LOSSES, 1.0, 0.5).tolist() == [1, 1, 1, 0, 0]
    torch.testing.assert_close(mentornet_weights(LOSSES, 1.0, 0.95), torch.tensor([1.0, 1.0, 1.0, 0.5, 0.0]))
    # Where one stage ends and the next begins: the burn-in has its last moment, the linear stage its first.
    assert mentornet_weights(LOSSES, 1.0, 0.18).tolist() == [1, 1, 1, 1, 1]
    assert mentornet_weights(LOSSES, 1.0, 0.9).tolist() == [1, 1, 1, 0.5, 0]


def test_mentornet_follows_the_percentile(generator: torch.Generator) -> None:
    loss = MentorNetPD(percentile=0.5, decay=0.9, reduction="none").double()
    loss.set_progress(0.5)
    thresholds = []
    for _ in range(3):
        logits = 2 * torch.randn(8, 4, generator=generator, dtype=torch.float64)
        labels = torch.arange(8) % 4
        labels[7] = -100
        losses = functional.cross_entropy(logits, labels, reduction="none")
        middle = losses[:7].median().item()
        thresholds.append(middle if not thresholds else 0.9 * thresholds[-1] + 0.1 * middle)
        result = loss(logits, labels)
        assert loss.threshold.item() == pytest.approx(thresholds[-1])
        expected = torch.where(losses <= thresholds[-1], losses, 0.0)
        torch.testing.assert_close(result, expected)
    loss.eval()(logits, labels)
    assert loss.threshold.item() == pytest.approx(thresholds[-1])
    other = MentorNetPD().double()
    other.load_state_dict(loss.state_dict())
    assert other.threshold == loss.threshold
    assert other.progress == 0.5
    assert other.started


@pytest.mark.parametrize("samples", [3, 0])
def test_a_batch_without_labels_leaves_the_threshold(samples: int) -> None:
    loss = MentorNetPD()
    value = loss(torch.zeros(samples, 2, requires_grad=True), torch.full((samples,), -100))
    assert value == 0
    assert not loss.started
    assert loss.threshold == 0


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="growth must be at least 1"):
        SelfPaced(growth=0.5)
    with pytest.raises(ValueError, match=r"percentile must lie in \[0, 1\]; got 75.0"):
        MentorNetPD(percentile=75.0)
    with pytest.raises(ValueError, match=r"progress must lie in \[0, 1\]; got 3.0"):
        MentorNetPD().set_progress(3.0)
