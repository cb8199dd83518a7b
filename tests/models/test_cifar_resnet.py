"""The residual block against a slow one, and its shortcut without parameters."""

import pytest
import torch

from hardsight.models.branched import BasicBlock, CifarResNet


def slow_shortcut(inputs: torch.Tensor, outgoing: int) -> torch.Tensor:
    """Option A by loops: every second pixel, the channels in the middle of zeros."""
    batch, channels, height, width = inputs.shape
    result = inputs.new_zeros(batch, outgoing, (height + 1) // 2, (width + 1) // 2)
    first = (outgoing - channels) // 2
    for channel in range(channels):
        for row in range(0, height, 2):
            for column in range(0, width, 2):
                result[:, first + channel, row // 2, column // 2] = inputs[:, channel, row, column]
    return result


@pytest.mark.parametrize("size", [4, 5])
def test_a_block_that_halves_adds_the_padded_input(size: int) -> None:
    torch.manual_seed(0)
    block = BasicBlock(4, 8, 2).double().eval()
    inputs = torch.randn(2, 4, size, size, dtype=torch.float64)
    branch = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(inputs)))))
    torch.testing.assert_close(block(inputs), torch.relu(branch + slow_shortcut(inputs, 8)))


def test_a_silent_branch_leaves_the_input() -> None:
    block = BasicBlock(3, 3, 1).eval()
    torch.nn.init.zeros_(block.conv2.weight)
    inputs = torch.rand(2, 3, 5, 5)
    assert torch.equal(block(inputs), inputs)


def test_depth_counts_convolutions_and_the_head() -> None:
    for depth in (20, 32, 44, 56):
        with torch.device("meta"):
            modules = list(CifarResNet(depth).modules())
        assert sum(isinstance(module, torch.nn.Conv2d | torch.nn.Linear) for module in modules) == depth


def test_convolutions_start_with_the_variance_of_he() -> None:
    torch.manual_seed(0)
    weight = CifarResNet(20).layer3[1].conv1.weight
    assert weight.var().item() == pytest.approx(2 / (64 * 9), rel=0.03)


def test_dropout_acts_on_the_features_in_training_alone() -> None:
    torch.manual_seed(0)
    model, images = CifarResNet(20, dropout=0.5), torch.randn(4, 3, 8, 8)
    dropped = model.forward_features(images)
    kept = (dropped != 0).double().mean()
    assert 0.2 < kept < 0.7
    model.eval()
    plain = CifarResNet(20).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.forward_features(images), plain.forward_features(images))
