"""A network for the 8x8 digits that come with scikit-learn: it trains in seconds on one core."""

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, Head


class DigitsCNN(Classifier):
    """Three 3x3 convolutions with batch normalization, two poolings, 64 features: 40,506 parameters at 10 classes.

    For grey images of 8x8 pixels. The features are a linear layer's output, so that they may point anywhere.
    PyTorch's own initialisation.
    """

    feature_dim = 64

    def __init__(self, num_classes: int = 10, in_channels: int = 1, head: Head = nn.Linear) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *_convolution(in_channels, 16),
            *_convolution(16, 32),
            nn.MaxPool2d(2),
            *_convolution(32, 64),
            nn.MaxPool2d(2),
        )
        self.embedding = nn.Linear(64 * 2 * 2, self.feature_dim)
        self.head = head(self.feature_dim, num_classes)

    def forward_features(self, inputs: Float[Tensor, "batch channels 8 8"]) -> Float[Tensor, "batch 64"]:
        """The last convolution's 2x2 maps, mapped linearly to 64 features."""
        return self.embedding(self.convolutions(inputs).flatten(1))


def _convolution(incoming: int, outgoing: int) -> list[nn.Module]:
    return [nn.Conv2d(incoming, outgoing, 3, padding=1, bias=False), nn.BatchNorm2d(outgoing), nn.ReLU()]
