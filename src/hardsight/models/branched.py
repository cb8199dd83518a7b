"""Networks with shortcuts or branches: residual ones, DenseNet-121 and GoogLeNet; the large as torchvision names them.

Their stem is that of the papers, for images of about 224 pixels, or a small one for 32x32 images.
"""

from collections import OrderedDict
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from hardsight.models.classifier import AveragingClassifier, Common, Images, asked, image_size, initialize_he


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
    """He et al. (2016): `depth` = 6n + 2 layers in groups of 16, 32 and 64 channels, averaged to 64 features.

    `dropout`: the share of features dropped in training (none by He et al.; GR's Table 8 drops 20 %).
    The parameters have the names of the public CIFAR-10 weights (see `load_cifar10_resnet`).
    """

    feature_dim = 64

    def __init__(self, depth: int, *, dropout: float = 0.0, **common: Unpack[Common]) -> None:
        super().__init__(dropout)
        in_channels, head = asked(common, 10, 3)
        if depth not in (20, 32, 44, 56):
            raise ValueError(f"depth must be one of 20, 32, 44, 56; got {depth!r}")
        blocks = (depth - 2) // 6
        self.input_shape = (in_channels, 32, 32)
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _group(BasicBlock, 16, 16, blocks)
        self.layer2 = _group(BasicBlock, 16, 32, blocks, 2)
        self.layer3 = _group(BasicBlock, 32, 64, blocks, 2)
        self.linear = head(self.feature_dim)
        initialize_he(self, "fan_in")

    def maps(self, inputs: Images) -> Float[Tensor, "batch dim h w"]:
        maps: Tensor = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(inputs))))))
        return maps


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
    """Sixteen bottlenecks in four groups, averaged to 2048 features; the small stem is a 3x3 convolution.

    He's weights (fan out).
    """

    feature_dim = 2048
    head_name = "fc"

    def __init__(self, *, stem: str = "large", **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 1000, 3)
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
        self.fc = head(self.feature_dim)
        initialize_he(self, "fan_out")

    def maps(self, inputs: Images) -> Float[Tensor, "batch dim h w"]:
        pooled = self.maxpool(F.relu(self.bn1(self.conv1(inputs))))
        maps: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(pooled))))
        return maps


def _group(
    block: type[BasicBlock] | type[Bottleneck], incoming: int, width: int, blocks: int, stride: int = 1
) -> nn.Sequential:
    """So many blocks, the first of which has the stride."""
    rest = (block(width * block.expansion, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(incoming, width, stride), *rest)


_GROWTH, _DENSE_BLOCKS = 32, (6, 12, 24, 16)


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
    """Four dense blocks (Huang et al., 2017) of 6, 12, 24 and 16 layers, averaged to 1024 features.

    The small stem is a bare 3x3 convolution: the first dense layer normalizes. He's weights (fan in).
    """

    feature_dim = 1024
    head_name = "classifier"

    def __init__(self, *, stem: str = "large", **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 1000, 3)
        size = image_size(stem)
        self.input_shape = (in_channels, size, size)
        small = stem == "small"
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        first: dict[str, nn.Module] = {"conv0": nn.Conv2d(in_channels, 64, kernel, stride, padding, bias=False)}
        if not small:
            first |= {"norm0": nn.BatchNorm2d(64), "relu0": nn.ReLU(), "pool0": nn.MaxPool2d(3, 2, padding=1)}
        self.features = nn.Sequential(OrderedDict(first))
        channels = 64
        for number, count in enumerate(_DENSE_BLOCKS, start=1):
            block = {f"denselayer{at + 1}": DenseLayer(channels + at * _GROWTH) for at in range(count)}
            self.features.add_module(f"denseblock{number}", nn.Sequential(OrderedDict(block)))
            channels += count * _GROWTH
            if number < len(_DENSE_BLOCKS):
                halved = nn.Conv2d(channels, channels // 2, 1, bias=False)
                layers = OrderedDict(norm=nn.BatchNorm2d(channels), relu=nn.ReLU(), conv=halved, pool=nn.AvgPool2d(2))
                self.features.add_module(f"transition{number}", nn.Sequential(layers))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = head(self.feature_dim)
        initialize_he(self, "fan_in")

    def maps(self, inputs: Images) -> Float[Tensor, "batch dim h w"]:
        return torch.relu(self.features(inputs))


# Channels of Table 1: incoming, 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, pooled.
_INCEPTIONS = {
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
    """Nine inception blocks (Szegedy et al., 2015), averaged to 1024 features; the paper drops 40 % in training.

    The small stem is a single 3x3 convolution of 192 channels. Batch normalization does the work of the auxiliary
    classifiers, which are left out. Parameter names are torchvision's, whose "5x5" convolutions, however, are 3x3
    (`large_kernel=3`) and whose last pooling is 2x2. He's weights (fan out).
    """

    feature_dim = 1024
    head_name = "fc"

    def __init__(
        self, *, stem: str = "small", dropout: float = 0.4, large_kernel: int = 5, **common: Unpack[Common]
    ) -> None:
        super().__init__(dropout)
        in_channels, head = asked(common, 10, 3)
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
        for name, (incoming, *channels) in _INCEPTIONS.items():
            self.add_module(f"inception{name}", Inception(incoming, tuple(channels), large_kernel))
        self.fc = head(self.feature_dim)
        initialize_he(self, "fan_out")

    def maps(self, inputs: Images) -> Float[Tensor, "batch dim h w"]:
        maps: Tensor = self.conv1(inputs)
        if self.stem == "large":
            maps = self.pool(self.conv3(self.conv2(self.pool(maps))))
        for name in _INCEPTIONS:
            if name in ("4a", "5a"):
                maps = self.pool(maps)
            maps = getattr(self, f"inception{name}")(maps)
        return maps
