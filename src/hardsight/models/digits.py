"""A network for the 8x8 digits that come with scikit-learn: it trains in seconds on one core."""

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, Head
from hardsight.models.layers import normalized_convolution


class DigitsCNN(Classifier):
    """Three 3x3 convolutions with batch normalization, two poolings, 64 features: 40,506 parameters at 10 classes.

    For grey images of 8x8 pixels. The features are a linear layer's output, so that they may point anywhere.
    PyTorch's own initialisation.
    """

    feature_dim = 64

    def __init__(self, num_classes: int = 10, in_channels: int = 1, head: Head = nn.Linear) -> None:
        super().__init__()
        self.input_shape = (in_channels, 8, 8)
        self.convolutions = nn.Sequential(
            *normalized_convolution(in_channels, 16, 3),
            *normalized_convolution(16, 32, 3),
            nn.MaxPool2d(2),
            *normalized_convolution(32, 64, 3),
            nn.MaxPool2d(2),
        )
        self.embedding = nn.Linear(64 * 2 * 2, self.feature_dim)
        self.linear = head(self.feature_dim, num_classes)

    def forward_features(self, inputs: Float[Tensor, "batch channels 8 8"]) -> Float[Tensor, "batch 64"]:
        """The last convolution's 2x2 maps, mapped linearly to 64 features."""
        return self.embedding(self.convolutions(inputs).flatten(1))
