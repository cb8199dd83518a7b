"""AlexNet (Krizhevsky, 2014: one column) and VGG-19 (Simonyan & Zisserman, 2015), named as in torchvision."""

from torch import nn

from hardsight.models.classifier import Head, StackedClassifier, hidden_dropout, image_size, initialize_he


class AlexNet(StackedClassifier):
    """Five convolutions; with the large stem two layers of 4096 units follow, the second giving the features.

    With the small stem, for 32x32 images, the 256 maps of the last convolution, each pooled to one pixel, are the
    features. PyTorch's own initialisation, as in torchvision.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        stem: str = "large",
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        small, size = stem == "small", image_size(stem)
        dropout = hidden_dropout(dropout, small)
        self.input_shape = (in_channels, size, size)
        self.feature_dim = 256 if small else 4096
        pool = (2, 2) if small else (3, 2)
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 64, 11, stride=4, padding=5 if small else 2),
            nn.ReLU(),
            nn.MaxPool2d(*pool),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(*pool),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(*pool),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1 if small else 6)
        hidden: list[nn.Module] = [
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
        ]
        self.classifier = nn.Sequential(*([] if small else hidden), head(self.feature_dim, num_classes))


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
        small, size = stem == "small", image_size(stem)
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
