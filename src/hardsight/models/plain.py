"""Networks without branches and shortcuts: perceptron, LeNet, digits, those of AMC and AVH, AlexNet and VGG-19.

AMC's (its Table 2) follow Laine & Aila's 13-layer network. What the table leaves open is settled by the authors' public
code: batch normalization between the convolution and the leaky ReLU, Glorot-uniform weights, no biases but the head's.
(Their training script has a smaller network than the table, which counts here.) AlexNet (Krizhevsky, 2014: one column)
and VGG-19 (Simonyan & Zisserman, 2015) are named as in torchvision.
"""

import itertools
from collections.abc import Sequence
from typing import Unpack

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import (
    AveragingClassifier,
    Classifier,
    Common,
    EmbeddingClassifier,
    GaussianNoise,
    Images,
    asked,
    convolutions,
    image_size,
    initialize_he,
)
from hardsight.names import check_name

_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}
_LEAK = 0.1


class MLP(Classifier):
    """Fully connected layers; the last hidden one gives the features. AVH's toy is 3 - 2 - 2: `hidden=(2,)`.

    The paper names no activation. Tanh is the default: on two overlapping Gaussians, both rectified features of the
    toy died in 2 of 20 runs, and a zero feature has no angle. Inputs of any shape are flattened: `in_channels` counts
    their values.
    """

    def __init__(self, *, hidden: Sequence[int] = (64,), activation: str = "tanh", **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 2, 3)
        check_name("activation", activation, _ACTIVATIONS)
        if not hidden:
            raise ValueError("hidden must name the width of at least one layer; got none")
        layers: list[nn.Module] = [nn.Flatten()]
        for incoming, outgoing in itertools.pairwise([in_channels, *hidden]):
            layers += [nn.Linear(incoming, outgoing), _ACTIVATIONS[activation]()]
        self.hidden = nn.Sequential(*layers)
        self.feature_dim, self.input_shape = hidden[-1], (in_channels,)
        self.linear = head(self.feature_dim)

    def forward_features(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch {self.feature_dim}"]:
        features: Tensor = self.hidden(inputs)
        return features


class LeNet(EmbeddingClassifier):
    """The widespread LeNet of 20 and 50 5x5 convolutions and 500 units, then a linear map to `feature_dim` features.

    For 28x28 images. The features may point anywhere; two, as in AVH's Figure 8, are to be drawn, not to classify.
    """

    def __init__(self, *, feature_dim: int = 64, **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 10, 1)
        self.feature_dim, self.input_shape = feature_dim, (in_channels, 28, 28)
        self.convolutions = nn.Sequential(
            nn.Conv2d(in_channels, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.embedding = nn.Sequential(nn.Linear(50 * 4 * 4, 500), nn.ReLU(), nn.Linear(500, feature_dim))
        self.linear = head(feature_dim)


class DigitsCNN(EmbeddingClassifier):
    """Three 3x3 convolutions with batch normalization, two poolings, 64 features: 40,506 parameters at 10 classes.

    For grey images of 8x8 pixels. The features are a linear layer's output, so that they may point anywhere.
    PyTorch's own initialisation. `dropout`: the share of the last maps dropped in training.
    """

    feature_dim = 64

    def __init__(self, *, dropout: float = 0.0, **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 10, 1)
        self.input_shape = (in_channels, 8, 8)
        self.convolutions = convolutions(in_channels, 16, 32, nn.MaxPool2d(2), 64, nn.MaxPool2d(2))
        if dropout:
            self.convolutions.append(nn.Dropout(dropout))
        self.embedding = nn.Linear(64 * 2 * 2, self.feature_dim)
        self.linear = head(self.feature_dim)


class CNN13(AveragingClassifier):
    """Nine convolutions for 32x32 images, averaged to 128 features: 3,121,802 parameters at 10 classes.

    Gaussian noise of standard deviation `noise` is added to the images in training, so they must be scaled to a
    comparable range.
    """

    feature_dim = 128

    def __init__(self, *, noise: float = 0.15, dropout: float = 0.5, **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 10, 3)
        self.input_shape = (in_channels, 32, 32)
        self.convolutions = convolutions(
            in_channels,
            GaussianNoise(noise),
            *(128, 128, 128, nn.MaxPool2d(2), nn.Dropout(dropout)),
            *(256, 256, 256, nn.MaxPool2d(2), nn.Dropout(dropout)),
            *((512, 3, 0), (256, 1, 0), (self.feature_dim, 1, 0)),
            leak=_LEAK,
        )
        self.linear = head(self.feature_dim)
        _initialize_glorot(self)


class CNN28(AveragingClassifier):
    """Five convolutions for 28x28 images, averaged to `feature_dim` features (the paper: 2, 3 or 128).

    The table's last convolution has 64 channels, yet 2, 3 or 128 features enter the head: a further 1x1 convolution
    is meant. Here it is linear, without normalization and ReLU, so that few features may still point anywhere.
    """

    def __init__(
        self, *, feature_dim: int = 128, noise: float = 0.15, dropout: float = 0.5, **common: Unpack[Common]
    ) -> None:
        super().__init__()
        in_channels, head = asked(common, 10, 1)
        self.feature_dim, self.input_shape = feature_dim, (in_channels, 28, 28)
        group = (64, nn.MaxPool2d(2), nn.Dropout(dropout))
        last = nn.Conv2d(64, feature_dim, 1, bias=False)
        self.convolutions = convolutions(
            in_channels, GaussianNoise(noise), *group, *group, (128, 3, 0), (64, 1, 0), last, leak=_LEAK
        )
        self.linear = head(feature_dim)
        _initialize_glorot(self)


def _initialize_glorot(model: Classifier) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d) or (module is model.head and isinstance(module, nn.Linear)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class PlainCNN(EmbeddingClassifier):
    """Three groups of three 3x3 convolutions (64, 128, 256 channels), each pooled, then 512 fully connected features.

    CNN-10 of AVH's Appendix F, whose domain generalization trains it: a 7x7 convolution of 64 channels and a pooling
    come first. The appendix prints no stride for it: 1 unless `stem_stride` says otherwise; with 0 there is none, which
    makes CNN-9, for small images. The features are normalized but not rectified, and the weights are He's, as in the
    public code of Liu et al. (2017), whose network this resembles.
    """

    feature_dim = 512

    def __init__(self, *, image_size: int = 224, stem_stride: int = 1, **common: Unpack[Common]) -> None:
        super().__init__()
        in_channels, head = asked(common, 7, 3)
        self.input_shape, size = (in_channels, image_size, image_size), image_size
        plan: list[int | tuple[int, ...] | nn.Module] = []
        if stem_stride:
            plan += [(64, 7, 3, stem_stride), nn.MaxPool2d(2)]
            size = -(-image_size // stem_stride) // 2
        for width in (64, 128, 256):
            plan += [width, width, width, nn.MaxPool2d(2)]
            size //= 2
        if size < 1:
            raise ValueError(f"image_size must leave a pixel after the poolings; got {image_size}")
        self.convolutions = convolutions(in_channels, *plan)
        connected = nn.Linear(256 * size * size, self.feature_dim, bias=False)
        self.embedding = nn.Sequential(connected, nn.BatchNorm1d(self.feature_dim))
        self.linear = head(self.feature_dim)
        initialize_he(self, "fan_in")
        nn.init.kaiming_normal_(connected.weight, nonlinearity="relu")


class StackedClassifier(Classifier):
    """Convolutions, pooling, then a stack of linear layers whose last is the head.

    With the large stem two layers of 4096 units come before the head, and the second gives the features; the small
    one, for 32x32 images, has none, and each of the last maps, made one pixel, is a feature.
    """

    features: nn.Module
    avgpool: nn.Module
    classifier: nn.Sequential

    def __init__(self, in_channels: int, maps: int, stem: str, dropout: float | None) -> None:
        super().__init__()
        self.small, size = stem == "small", image_size(stem)
        self.input_shape, self.feature_dim = (in_channels, size, size), maps if self.small else 4096
        if self.small and dropout:
            raise ValueError(
                f"dropout must be left out with the small stem, which has no hidden layers; got {dropout!r}"
            )
        self.share = 0.5 if dropout is None else dropout

    @property
    def head(self) -> nn.Module:
        """The last layer of `classifier`."""
        return self.classifier[-1]

    def forward_features(self, inputs: Images) -> Float[Tensor, "batch {self.feature_dim}"]:
        activations: Tensor = self.avgpool(self.features(inputs)).flatten(1)
        for layer in list(self.classifier)[:-1]:
            activations = layer(activations)
        return activations


class AlexNet(StackedClassifier):
    """Five convolutions, 256 maps. PyTorch's own initialisation, as in torchvision."""

    def __init__(self, *, stem: str = "large", dropout: float | None = None, **common: Unpack[Common]) -> None:
        in_channels, head = asked(common, 1000, 3)
        super().__init__(in_channels, 256, stem, dropout)
        pool = (2, 2) if self.small else (3, 2)
        first = nn.Conv2d(in_channels, 64, 11, stride=4, padding=5 if self.small else 2)
        layers: list[nn.Module] = [first, nn.ReLU(), nn.MaxPool2d(*pool)]
        layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(*pool)]
        for incoming, outgoing in ((192, 384), (384, 256), (256, 256)):
            layers += [nn.Conv2d(incoming, outgoing, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(*pool))
        self.avgpool = nn.AdaptiveAvgPool2d(1 if self.small else 6)
        hidden: list[nn.Module] = []
        # The small stem draws them too, so that a seed goes on giving its head the same weights.
        for width in (256 * 6 * 6, 4096):
            hidden += [nn.Dropout(self.share), nn.Linear(width, 4096), nn.ReLU()]
        self.classifier = nn.Sequential(*([] if self.small else hidden), head(self.feature_dim))


# Channels and number of 3x3 convolutions of each group; a pooling follows every group.
_GROUPS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


class VGG19(StackedClassifier):
    """Sixteen 3x3 convolutions, 512 maps; for CIFAR usually with a batch normalization after each.

    He's weights for the convolutions (fan out); normal weights of standard deviation 0.01 for the hidden layers.
    """

    def __init__(
        self, *, stem: str = "large", batch_norm: bool = False, dropout: float | None = None, **common: Unpack[Common]
    ) -> None:
        in_channels, head = asked(common, 1000, 3)
        super().__init__(in_channels, 512, stem, dropout)
        layers: list[nn.Module] = []
        for width, count in _GROUPS:
            for _ in range(count):
                convolution, in_channels = nn.Conv2d(in_channels, width, 3, padding=1), width
                layers += [convolution, *([nn.BatchNorm2d(width)] if batch_norm else []), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1 if self.small else 7)
        hidden: list[nn.Module] = []
        for width in () if self.small else (512 * 7 * 7, 4096):
            linear = nn.Linear(width, 4096)
            nn.init.normal_(linear.weight, 0, 0.01)
            nn.init.zeros_(linear.bias)
            hidden += [linear, nn.ReLU(), nn.Dropout(self.share)]
        initialize_he(self, "fan_out")
        self.classifier = nn.Sequential(*hidden, head(self.feature_dim))
