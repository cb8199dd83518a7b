"""DenseNet-121 (Huang et al., 2017), under the parameter names of torchvision."""

from collections import OrderedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import AveragingClassifier, Head, image_size, initialize_he

_GROWTH = 32
_BLOCKS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    """Normalized and rectified 1x1 and 3x3 convolutions that add `_GROWTH` channels to those that came in."""

    def __init__(self, incoming: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(incoming)
        self.conv1 = nn.Conv2d(incoming, 4 * _GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * _GROWTH)
        self.conv2 = nn.Conv2d(4 * _GROWTH, _GROWTH, 3, padding=1, bias=False)

    def forward(self, inputs: Float[Tensor, "batch a height width"]) -> Float[Tensor, "batch b height width"]:
        bottleneck = self.conv1(torch.relu(self.norm1(inputs)))
        return torch.cat([inputs, self.conv2(torch.relu(self.norm2(bottleneck)))], dim=1)


class DenseNet121(AveragingClassifier):
    """Four dense blocks of 6, 12, 24 and 16 layers, averaged to 1024 features.

    The large stem is a normalized 7x7 convolution of stride 2 and a pooling; the small one, for 32x32 images, a bare
    3x3 convolution: the first dense layer normalizes. He's weights (fan in).
    """

    feature_dim = 1024
    head_name = "classifier"

    def __init__(
        self, num_classes: int = 1000, in_channels: int = 3, head: Head = nn.Linear, *, stem: str = "large"
    ) -> None:
        super().__init__()
        size = image_size(stem)
        self.input_shape = (in_channels, size, size)
        small = stem == "small"
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        first: dict[str, nn.Module] = {"conv0": nn.Conv2d(in_channels, 64, kernel, stride, padding, bias=False)}
        if not small:
            first |= {"norm0": nn.BatchNorm2d(64), "relu0": nn.ReLU(), "pool0": nn.MaxPool2d(3, 2, padding=1)}
        self.features = nn.Sequential(OrderedDict(first))
        channels = 64
        for number, layers in enumerate(_BLOCKS, start=1):
            block = nn.Sequential()
            for layer in range(1, layers + 1):
                block.add_module(f"denselayer{layer}", DenseLayer(channels))
                channels += _GROWTH
            self.features.add_module(f"denseblock{number}", block)
            if number < len(_BLOCKS):
                self.features.add_module(f"transition{number}", _transition(channels))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_in")

    def maps(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim h w"]:
        return torch.relu(self.features(inputs))


def _transition(incoming: int) -> nn.Sequential:
    convolution = nn.Conv2d(incoming, incoming // 2, 1, bias=False)
    return nn.Sequential(
        OrderedDict(norm=nn.BatchNorm2d(incoming), relu=nn.ReLU(), conv=convolution, pool=nn.AvgPool2d(2))
    )
