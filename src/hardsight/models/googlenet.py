"""GoogLeNet V1 (Szegedy et al., 2015), which the GR paper trains on CIFAR-10, with batch normalization.

The auxiliary classifiers are left out: batch normalization does their work, and a network here has one head.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import AveragingClassifier, Head, image_size, initialize_he

# Channels of Table 1: incoming, 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, pooled.
_TABLE = {
    "3a": (192, 64, 96, 128, 16, 32, 32),
    "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128),
    "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}


class NormalizedConvolution(nn.Module):
    """Convolution, batch normalization, ReLU, under the parameter names of torchvision."""

    def __init__(self, incoming: int, outgoing: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(incoming, outgoing, kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outgoing, eps=0.001)

    def forward(self, inputs: Float[Tensor, "batch a height width"]) -> Float[Tensor, "batch b h w"]:
        return torch.relu(self.bn(self.conv(inputs)))


class Inception(nn.Module):
    """Four branches side by side: 1x1, 3x3, 5x5 and a pooling, their channels concatenated."""

    def __init__(self, incoming: int, channels: tuple[int, ...], large_kernel: int) -> None:
        super().__init__()
        single, reduced_three, three, reduced_five, five, pooled = channels
        unit = NormalizedConvolution
        self.branch1 = unit(incoming, single, 1)
        self.branch2 = nn.Sequential(unit(incoming, reduced_three, 1), unit(reduced_three, three, 3))
        self.branch3 = nn.Sequential(unit(incoming, reduced_five, 1), unit(reduced_five, five, large_kernel))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), unit(incoming, pooled, 1))

    def forward(self, inputs: Float[Tensor, "batch a height width"]) -> Float[Tensor, "batch b height width"]:
        branches = (self.branch1, self.branch2, self.branch3, self.branch4)
        return torch.cat([branch(inputs) for branch in branches], dim=1)


class GoogLeNet(AveragingClassifier):
    """Nine inception blocks, averaged to 1024 features, of which the paper drops 40 % in training.

    The large stem is the paper's, three convolutions and two poolings; the small one, for 32x32 images, a single
    3x3 convolution of 192 channels. He's weights (fan out). Parameter names are torchvision's, whose "5x5"
    convolutions, however, are 3x3 (`large_kernel=3`) and whose last pooling is 2x2.
    """

    feature_dim = 1024
    head_name = "fc"

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        stem: str = "small",
        dropout: float = 0.4,
        large_kernel: int = 5,
    ) -> None:
        super().__init__(dropout)
        size = image_size(stem)
        self.input_shape = (in_channels, size, size)
        if stem == "small":
            self.conv1 = NormalizedConvolution(in_channels, 192, 3)
        else:
            self.conv1 = NormalizedConvolution(in_channels, 64, 7, stride=2)
            self.conv2 = NormalizedConvolution(64, 64, 1)
            self.conv3 = NormalizedConvolution(64, 192, 3)
        self.stem = stem
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        for name, (incoming, *channels) in _TABLE.items():
            self.add_module(f"inception{name}", Inception(incoming, tuple(channels), large_kernel))
        self.fc = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_out")

    def maps(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim h w"]:
        maps: Tensor = self.conv1(inputs)
        if self.stem == "large":
            maps = self.pool(self.conv3(self.conv2(self.pool(maps))))
        for name in _TABLE:
            if name in ("4a", "5a"):
                maps = self.pool(maps)
            maps = getattr(self, f"inception{name}")(maps)
        return maps
