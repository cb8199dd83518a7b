"""VGG-19 (Simonyan & Zisserman, 2015), with or without batch normalization, under torchvision's parameter names."""

from torch import nn

from hardsight.models.classifier import Head, StackedClassifier
from hardsight.models.layers import check_stem, hidden_dropout, initialize_he

# Channels and number of 3x3 convolutions of each group; a pooling follows every group.
_GROUPS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


class VGG19(StackedClassifier):
    """Sixteen 3x3 convolutions; with the large stem two layers of 4096 units follow, the second giving the features.

    With the small stem, for 32x32 images, the 512 maps of the last pooling, each averaged, are the features. He's
    weights for the convolutions (fan out); normal weights of standard deviation 0.01 for the hidden layers.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        stem: str = "large",
        batch_norm: bool = False,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        check_stem(stem)
        small = stem == "small"
        size = 32 if small else 224
        self.input_shape = (in_channels, size, size)
        self.feature_dim = 512 if small else 4096
        self.features = nn.Sequential(*_convolutions(in_channels, batch_norm))
        self.avgpool = nn.AdaptiveAvgPool2d(1 if small else 7)
        dropout = hidden_dropout(dropout, small)
        hidden = [] if small else _hidden(dropout)
        initialize_he(self, "fan_out")
        self.classifier = nn.Sequential(*hidden, head(self.feature_dim, num_classes))


def vgg19_bn(
    num_classes: int = 1000,
    in_channels: int = 3,
    head: Head = nn.Linear,
    *,
    stem: str = "large",
    dropout: float | None = None,
) -> VGG19:
    """VGG-19 with a batch normalization after every convolution: the usual form for CIFAR."""
    return VGG19(num_classes, in_channels, head, stem=stem, batch_norm=True, dropout=dropout)


def _convolutions(in_channels: int, batch_norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    channels = in_channels
    for width, count in _GROUPS:
        for _ in range(count):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU())
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers


def _hidden(dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for incoming in (512 * 7 * 7, 4096):
        linear = nn.Linear(incoming, 4096)
        nn.init.normal_(linear.weight, 0, 0.01)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU(), nn.Dropout(dropout)]
    return layers
