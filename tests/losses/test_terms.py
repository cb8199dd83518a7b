"""What a loss is a mean over, and torch's own losses on a batch in which nothing counts."""

import pytest
import torch
from torch import nn

from hardsight import losses
from hardsight.losses.terms import label_count, mean_over, value_of, value_over

WEIGHTS = torch.tensor([0.0, 2.0, 0.5])
NOTHING_COUNTS = {
    "weights of 0": (nn.CrossEntropyLoss(WEIGHTS), [0, 0]),
    "weights of 0, smoothed": (nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1), [0, 0]),
    "weights of 0, no softmax": (nn.NLLLoss(WEIGHTS), [0, -100]),
    "a label of its own to ignore": (nn.CrossEntropyLoss(ignore_index=2), [2, 2]),
}


@pytest.mark.parametrize("name", NOTHING_COUNTS)
def test_a_batch_in_which_nothing_counts_is_0_and_moves_nothing(name: str) -> None:
    loss, labels = NOTHING_COUNTS[name][0], torch.tensor(NOTHING_COUNTS[name][1])
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert float(label_count(loss, labels)) == 0
    value = value_of(loss, logits, labels)
    value.backward()
    assert float(value.detach()) == 0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros(2, 3))
    # torch's own value is what would stop a training.
    assert bool(loss(logits, labels).isnan())


@pytest.mark.parametrize("name", NOTHING_COUNTS)
def test_any_other_batch_is_as_torch_has_it(name: str) -> None:
    loss, labels = NOTHING_COUNTS[name][0], torch.tensor([1, 2, 0])
    values = [torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2)]
    value_of(loss, values[0], labels).backward()
    loss(values[1], labels).backward()
    torch.testing.assert_close(values[0].grad, values[1].grad, rtol=0, atol=0)


def test_the_value_of_a_rescaled_gradient_is_of_this_process_alone() -> None:
    for loss in (losses.GradientRescaling(), losses.AutomaticRescaling(3)):
        assert (mean_over(loss), value_over(loss)) == ("processes", "labels")
    assert value_over(losses.GradientRescaling(reduction="sum")) == "nothing"
    assert value_over(losses.AMCLoss()) == mean_over(losses.AMCLoss()) == "processes"
    assert value_over(nn.CrossEntropyLoss(reduction="sum")) == "nothing"
