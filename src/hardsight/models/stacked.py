"""AlexNet (Krizhevsky, 2014: one column) and VGG-19 (Simonyan & Zisserman, 2015), named as in torchvision."""

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, Head, image_size, initialize_he


class StackedClassifier(Classifier):
    """Convolutions, pooling, then a stack of linear layers whose last is the head.

    With the large stem two layers of 4096 units come before the head, and the second gives the features; the small
    one, for 32x32 images, has none, and each of the last maps, made one pixel, is a feature.
    """

    features: nn.Module
    avgpool: nn.Module
    classifier: nn.Sequential

    @property
    def head(self) -> nn.Module:
        """The last layer of `classifier`."""
        return self.classifier[-1]

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """What enters the last layer of `classifier`."""
        activations: Tensor = self.avgpool(self.features(inputs)).flatten(1)
        for layer in list(self.classifier)[:-1]:
            activations = layer(activations)
        return activations


class AlexNet(StackedClassifier):
    """Five convolutions, 256 maps. PyTorch's own initialisation, as in torchvision."""

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
        dropout = _dropout(dropout, small)
        self.input_shape = (in_channels, size, size)
        self.feature_dim = 256 if small else 4096
        pool = (2, 2) if small else (3, 2)
        first = nn.Conv2d(in_channels, 64, 11, stride=4, padding=5 if small else 2)
        layers: list[nn.Module] = [first, nn.ReLU(), nn.MaxPool2d(*pool)]
        layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(*pool)]
        for incoming, outgoing in ((192, 384), (384, 256), (256, 256)):
            layers += [nn.Conv2d(incoming, outgoing, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(*pool))
        self.avgpool = nn.AdaptiveAvgPool2d(1 if small else 6)
        hidden: list[nn.Module] = []
        # The small stem draws them too, so that a seed goes on giving its head the same weights.
        for width in (256 * 6 * 6, 4096):
            hidden += [nn.Dropout(dropout), nn.Linear(width, 4096), nn.ReLU()]
        self.classifier = nn.Sequential(*([] if small else hidden), head(self.feature_dim, num_classes))


# Channels and number of 3x3 convolutions of each group; a pooling follows every group.
_GROUPS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


class VGG19(StackedClassifier):
    """Sixteen 3x3 convolutions, 512 maps.

    He's weights for the convolutions (fan out); normal weights of standard deviation 0.01 for the hidden layers.
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
        layers: list[nn.Module] = []
        for width, count in _GROUPS:
            for _ in range(count):
                convolution, in_channels = nn.Conv2d(in_channels, width, 3, padding=1), width
                layers += [convolution, *([nn.BatchNorm2d(width)] if batch_norm else []), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1 if small else 7)
        dropout = _dropout(dropout, small)
        hidden: list[nn.Module] = []
        for width in () if small else (512 * 7 * 7, 4096):
            linear = nn.Linear(width, 4096)
            nn.init.normal_(linear.weight, 0, 0.01)
            nn.init.zeros_(linear.bias)
            hidden += [linear, nn.ReLU(), nn.Dropout(dropout)]
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


def _dropout(dropout: float | None, small: bool) -> float:
    """The share dropped in the hidden layers, half where it is left out; the small stem has no such layers."""
    if small and dropout:
        raise ValueError(f"dropout must be left out with the small stem, which has no hidden layers; got {dropout!r}")
    return 0.5 if dropout is None else dropout
