"""ResNet-50 (He et al., 2016), under the parameter names of torchvision."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, Head
from hardsight.models.layers import check_stem, initialize_he

_EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions added to their input, which a 1x1 convolution fits where the shapes differ.

    The stride is that of the 3x3 convolution, as in torchvision; the paper puts it on the first.
    """

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__()
        outgoing = width * _EXPANSION
        self.conv1 = nn.Conv2d(incoming, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outgoing, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outgoing)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or incoming != outgoing:
            self.downsample = nn.Sequential(
                nn.Conv2d(incoming, outgoing, 1, stride, bias=False), nn.BatchNorm2d(outgoing)
            )

    def forward(self, inputs: Float[Tensor, "batch a height width"]) -> Float[Tensor, "batch b h w"]:
        outputs = torch.relu(self.bn1(self.conv1(inputs)))
        outputs = torch.relu(self.bn2(self.conv2(outputs)))
        return torch.relu(self.bn3(self.conv3(outputs)) + self.downsample(inputs))


class ResNet50(Classifier):
    """Sixteen bottlenecks in four groups, averaged to 2048 features.

    The large stem is a 7x7 convolution of stride 2 and a pooling; the small one, for 32x32 images, a 3x3
    convolution. He's weights (fan out).
    """

    feature_dim = 2048

    def __init__(
        self, num_classes: int = 1000, in_channels: int = 3, head: Head = nn.Linear, *, stem: str = "large"
    ) -> None:
        super().__init__()
        check_stem(stem)
        small = stem == "small"
        size = 32 if small else 224
        self.input_shape = (in_channels, size, size)
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(in_channels, 64, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _group(64, 64, 3, 1)
        self.layer2 = _group(256, 128, 4, 2)
        self.layer3 = _group(512, 256, 6, 2)
        self.layer4 = _group(1024, 512, 3, 2)
        self.fc = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_out")

    @property
    def head(self) -> nn.Module:
        """The last layer, `fc`."""
        return self.fc

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The last group's maps, each averaged."""
        maps = self.maxpool(torch.relu(self.bn1(self.conv1(inputs))))
        return self.layer4(self.layer3(self.layer2(self.layer1(maps)))).mean((2, 3))


def _group(incoming: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(incoming, width, stride)
    return nn.Sequential(first, *(Bottleneck(width * _EXPANSION, width, 1) for _ in range(blocks - 1)))
