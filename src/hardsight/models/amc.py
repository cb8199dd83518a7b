"""The two networks of the AMC-Loss paper (its Table 2), after Laine & Aila's 13-layer network.

What the table leaves open is settled by the authors' public code: batch normalization between the convolution and
the leaky ReLU, Glorot-uniform weights, no biases but the head's. (Their training script has a smaller network than
the table: 64, 128 and 256 channels and a single 1x1 convolution. Here the table counts.)
"""

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, Head
from hardsight.models.layers import GaussianNoise, normalized_convolution

_LEAK = 0.1


class CNN13(Classifier):
    """Nine convolutions for 32x32 images, averaged to 128 features: 3,121,802 parameters at 10 classes.

    Gaussian noise of standard deviation `noise` is added to the images in training, so they must be scaled to a
    comparable range.
    """

    feature_dim = 128

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        noise: float = 0.15,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.input_shape = (in_channels, 32, 32)
        self.convolutions = nn.Sequential(
            GaussianNoise(noise),
            *_convolution(in_channels, 128),
            *_convolution(128, 128),
            *_convolution(128, 128),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            *_convolution(128, 256),
            *_convolution(256, 256),
            *_convolution(256, 256),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            *_convolution(256, 512, padding=0),
            *_convolution(512, 256, kernel=1),
            *_convolution(256, self.feature_dim, kernel=1),
        )
        self.linear = head(self.feature_dim, num_classes)
        _initialize_glorot(self)

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The last convolution's maps (6x6 for 32x32 images), each averaged."""
        return self.convolutions(inputs).mean((2, 3))


class CNN28(Classifier):
    """Five convolutions for 28x28 images, averaged to `feature_dim` features (the paper: 2, 3 or 128).

    The table's last convolution has 64 channels, yet 2, 3 or 128 features enter the head: a further 1x1 convolution
    is meant. Here it is linear, without normalization and ReLU, so that few features may still point anywhere.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        head: Head = nn.Linear,
        *,
        feature_dim: int = 128,
        noise: float = 0.15,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.input_shape = (in_channels, 28, 28)
        self.convolutions = nn.Sequential(
            GaussianNoise(noise),
            *_convolution(in_channels, 64),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            *_convolution(64, 64),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            *_convolution(64, 128, padding=0),
            *_convolution(128, 64, kernel=1),
            nn.Conv2d(64, feature_dim, 1, bias=False),
        )
        self.linear = head(feature_dim, num_classes)
        _initialize_glorot(self)

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The last convolution's maps (5x5 for 28x28 images), each averaged."""
        return self.convolutions(inputs).mean((2, 3))


def _convolution(incoming: int, outgoing: int, *, kernel: int = 3, padding: int | None = None) -> list[nn.Module]:
    return normalized_convolution(incoming, outgoing, kernel, padding=padding, leak=_LEAK)


def _initialize_glorot(model: Classifier) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.xavier_uniform_(module.weight)
    if isinstance(model.head, nn.Linear):
        nn.init.xavier_uniform_(model.head.weight)
        if model.head.bias is not None:
            nn.init.zeros_(model.head.bias)
