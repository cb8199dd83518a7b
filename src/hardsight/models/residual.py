"""Residual networks (He et al., 2016): 20 to 56 layers for CIFAR, shortcuts without parameters; and ResNet-50."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from hardsight.models.classifier import AveragingClassifier, Head, image_size, initialize_he

DEPTHS = (20, 32, 44, 56)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions added to their input.

    Where the size halves, option A: every second pixel of the input, padded with channels of zeros on both sides.
    """

    expansion = 1

    def __init__(self, incoming: int, outgoing: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, outgoing, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outgoing)
        self.conv2 = nn.Conv2d(outgoing, outgoing, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outgoing)
        self.stride = stride
        self.padding = (outgoing - incoming) // 2

    def forward(self, inputs: Float[Tensor, "batch a height width"]) -> Float[Tensor, "batch b h w"]:
        outputs = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(inputs)))))
        if self.padding:
            inputs = F.pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(outputs + inputs)


class CifarResNet(AveragingClassifier):
    """`depth` = 6n + 2 layers in three groups of 16, 32 and 64 channels, averaged to 64 features.

    `dropout`: the share of features dropped in training (none by He et al.; GR's Table 8 drops 20 %).
    The parameters have the names of the public CIFAR-10 weights (see `load_cifar10_resnet`).
    """

    feature_dim = 64

    def __init__(
        self, depth: int, num_classes: int = 10, in_channels: int = 3, head: Head = nn.Linear, *, dropout: float = 0.0
    ) -> None:
        super().__init__(dropout)
        if depth not in DEPTHS:
            raise ValueError(f"depth must be one of {', '.join(map(str, DEPTHS))}; got {depth!r}")
        blocks = (depth - 2) // 6
        self.input_shape = (in_channels, 32, 32)
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _group(BasicBlock, 16, 16, blocks)
        self.layer2 = _group(BasicBlock, 16, 32, blocks, 2)
        self.layer3 = _group(BasicBlock, 32, 64, blocks, 2)
        self.linear = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_in")

    def maps(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim h w"]:
        return _through(F.relu(self.bn1(self.conv1(inputs))), self.layer1, self.layer2, self.layer3)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions added to their input, which a 1x1 convolution fits where the shapes differ.

    The stride is that of the 3x3 convolution, as in torchvision; the paper puts it on the first.
    """

    expansion = 4

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__()
        outgoing = width * self.expansion
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
        outputs = F.relu(self.bn1(self.conv1(inputs)))
        outputs = F.relu(self.bn2(self.conv2(outputs)))
        return F.relu(self.bn3(self.conv3(outputs)) + self.downsample(inputs))


class ResNet50(AveragingClassifier):
    """Sixteen bottlenecks in four groups, averaged to 2048 features.

    The large stem is a 7x7 convolution of stride 2 and a pooling; the small one, for 32x32 images, a 3x3
    convolution. He's weights (fan out).
    """

    feature_dim = 2048
    head_name = "fc"

    def __init__(
        self, num_classes: int = 1000, in_channels: int = 3, head: Head = nn.Linear, *, stem: str = "large"
    ) -> None:
        super().__init__()
        small, size = stem == "small", image_size(stem)
        self.input_shape = (in_channels, size, size)
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(in_channels, 64, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _group(Bottleneck, 64, 64, 3)
        self.layer2 = _group(Bottleneck, 256, 128, 4, 2)
        self.layer3 = _group(Bottleneck, 512, 256, 6, 2)
        self.layer4 = _group(Bottleneck, 1024, 512, 3, 2)
        self.fc = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_out")

    def maps(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim h w"]:
        pooled = self.maxpool(F.relu(self.bn1(self.conv1(inputs))))
        return _through(pooled, self.layer1, self.layer2, self.layer3, self.layer4)


def _group(
    block: type[BasicBlock] | type[Bottleneck], incoming: int, width: int, blocks: int, stride: int = 1
) -> nn.Sequential:
    """So many blocks, the first of which has the stride."""
    rest = (block(width * block.expansion, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(incoming, width, stride), *rest)


def _through(maps: Tensor, *groups: nn.Module) -> Tensor:
    for group in groups:
        maps = group(maps)
    return maps
