"""Small networks whose maps are known or quick to compute."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


class SmallNet(nn.Module):
    """A convolution, batch normalization and an in-place ReLU; every place has its own weight in the head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.hidden = nn.Linear(4 * 3 * 4, 6)
        self.fc = nn.Linear(6, 5)

    def tail(self, maps: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.hidden(self.relu(self.norm(maps)).flatten(1))))

    def forward(self, images: Tensor) -> Tensor:
        return self.tail(self.conv(images))


@pytest.fixture
def small_net() -> SmallNet:
    """For images of 3 x 6 x 8, in float64; the norm has seen some data."""
    torch.manual_seed(0)
    net = SmallNet().double()
    net(torch.randn(32, 3, 6, 8, dtype=torch.float64) * 2 + 1)
    return net.eval()


@pytest.fixture
def pooled_net() -> Callable[[Tensor], nn.Sequential]:
    """Given weights [classes, channels]: the image itself is the layer "0"; channels are averaged, then the head."""

    def make(weight: Tensor) -> nn.Sequential:
        head = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
        net = nn.Sequential(nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
        with torch.no_grad():
            head.weight.copy_(weight)
            head.bias.zero_()
        return net

    return make
