"""Variance of gradients: input gradients by finite differences, the spread by a slow loop."""

import pytest
import torch
from torch import nn

from hardsight.dynamics import GradientVariance, input_gradients, variance_of_gradients


def small_model(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 2, 3, generator=generator, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 1, 2])


def test_gradients_equal_finite_differences(batch):
    inputs, labels = batch
    model = small_model(0).eval()
    gradients = input_gradients(model, inputs, labels)
    step = 1e-6
    for sample in range(7):
        for place in range(6):
            ahead, back = inputs.clone(), inputs.clone()
            ahead[sample].view(-1)[place] += step
            back[sample].view(-1)[place] -= step
            change = (model(ahead) - model(back))[sample, labels[sample]] / (2 * step)
            assert gradients[sample].reshape(-1)[place].item() == pytest.approx(change.item(), abs=1e-8)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_vog_equals_the_slow_loop(batch):
    inputs, labels = batch
    model = small_model(9).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    states = [small_model(seed).state_dict() for seed in range(4)]
    ours = variance_of_gradients(model, states, inputs, labels, within_class=False)
    gradients = []
    for state in states:
        other = small_model(0).eval()
        other.load_state_dict(state)
        gradients.append(input_gradients(other, inputs, labels))
    for sample in range(7):
        deviations = []
        for place in range(6):
            values = [g[sample].reshape(-1)[place].item() for g in gradients]
            mean = sum(values) / 4
            deviations.append((sum((v - mean) ** 2 for v in values) / 4) ** 0.5)
        assert ours[sample].item() == pytest.approx(sum(deviations) / 6, rel=1e-9)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    within = variance_of_gradients(model, states, inputs, labels)
    first = ours[:3]
    torch.testing.assert_close(within[:3], (first - first.mean()) / first.std(correction=0))
    assert within[6] == 0  # alone in its class


def test_equal_checkpoints_have_no_variance(batch):
    inputs, labels = batch
    state = small_model(1).state_dict()
    scores = variance_of_gradients(small_model(0), [state, state], inputs, labels, within_class=False)
    torch.testing.assert_close(scores, torch.zeros(7, dtype=torch.float64))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_small_half_precision_gradients_keep_their_variance(kind):
    """The square of 1e-4 is 0 in float16: every sample would score 0."""
    generator = torch.Generator().manual_seed(0)
    half, wide = GradientVariance(), GradientVariance()
    for _ in range(4):
        gradients = (1e-4 * torch.randn(5, 8, generator=generator)).to(kind)
        half.update(gradients)
        wide.update(gradients.double())
    torch.testing.assert_close(half.scores().double(), wide.scores(), rtol=1e-5, atol=0)
    assert (half.scores() > 0).all()


def test_one_checkpoint_and_other_shapes_are_refused(batch):
    inputs, labels = batch
    with pytest.raises(ValueError, match="at least 2 checkpoints; got 1"):
        variance_of_gradients(small_model(0), [small_model(1).state_dict()], inputs, labels)
    gathered = GradientVariance()
    gathered.update(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"gradients.*shape.*got \["):
        gathered.update(torch.zeros(3, 4))


def test_a_layer_that_was_frozen_in_evaluation_mode_stays_so(batch):
    model, (inputs, labels) = nn.Sequential(small_model(0), nn.Dropout(0.5)), batch
    model.train()
    model[1].eval()
    states = [model.state_dict(), model.state_dict()]
    variance_of_gradients(model, states, inputs, labels)
    assert model[0].training
    assert not model[1].training
