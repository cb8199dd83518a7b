"""Networks that train in seconds: perceptron and LeNet, with the AVH paper's forms of two features, and digits."""

import itertools
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, EmbeddingClassifier, Head, convolutions
from hardsight.names import check_name

_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


class MLP(Classifier):
    """Fully connected layers; the last hidden one gives the features. `mlp_2d` is the paper's toy: 3 - 2 - 2.

    The paper names no activation. Tanh is the default: on two overlapping Gaussians, both rectified features of the
    toy died in 2 of 20 runs, and a zero feature has no angle. Inputs of any shape are flattened: `in_channels` counts
    their values.
    """

    def __init__(
        self,
        num_classes: int = 2,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        hidden: Sequence[int] = (64,),
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        check_name("activation", activation, _ACTIVATIONS)
        if not hidden:
            raise ValueError("hidden must name the width of at least one layer; got none")
        layers: list[nn.Module] = [nn.Flatten()]
        widths = [in_channels, *hidden]
        for incoming, outgoing in itertools.pairwise(widths):
            layers += [nn.Linear(incoming, outgoing), _ACTIVATIONS[activation]()]
        self.hidden = nn.Sequential(*layers)
        self.feature_dim = hidden[-1]
        self.input_shape = (in_channels,)
        self.linear = head(self.feature_dim, num_classes)

    def forward_features(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The activations of the last hidden layer."""
        features: Tensor = self.hidden(inputs)
        return features


class LeNet(Classifier):
    """The widespread LeNet of 20 and 50 5x5 convolutions and 500 units, then a linear map to `feature_dim` features.

    For 28x28 images. The features may point anywhere. `lenet_2d` has the two of AVH's Figure 8, which can be drawn.
    """

    def __init__(
        self, num_classes: int = 10, in_channels: int = 1, head: Head = nn.Linear, *, feature_dim: int = 64
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.input_shape = (in_channels, 28, 28)
        self.convolutions = nn.Sequential(
            nn.Conv2d(in_channels, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.hidden = nn.Sequential(nn.Linear(50 * 4 * 4, 500), nn.ReLU())
        self.embedding = nn.Linear(500, feature_dim)
        self.linear = head(feature_dim, num_classes)

    def forward_features(
        self, inputs: Float[Tensor, "batch channels 28 28"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The linear map of the 500 hidden units."""
        features: Tensor = self.embedding(self.hidden(self.convolutions(inputs).flatten(1)))
        return features


def mlp_2d(num_classes: int = 2, in_channels: int = 3, head: Head = nn.Linear, *, activation: str = "tanh") -> MLP:
    """The paper's toy: one hidden layer of two units."""
    return MLP(num_classes, in_channels, head, hidden=(2,), activation=activation)


def lenet_2d(num_classes: int = 10, in_channels: int = 1, head: Head = nn.Linear) -> LeNet:
    """`LeNet` with two features: to draw them, not to classify."""
    return LeNet(num_classes, in_channels, head, feature_dim=2)


class DigitsCNN(EmbeddingClassifier):
    """Three 3x3 convolutions with batch normalization, two poolings, 64 features: 40,506 parameters at 10 classes.

    For grey images of 8x8 pixels. The features are a linear layer's output, so that they may point anywhere.
    PyTorch's own initialisation. `dropout`: the share of the last maps dropped in training.
    """

    feature_dim = 64

    def __init__(
        self, num_classes: int = 10, in_channels: int = 1, head: Head = nn.Linear, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.input_shape = (in_channels, 8, 8)
        self.convolutions = convolutions(in_channels, 16, 32, nn.MaxPool2d(2), 64, nn.MaxPool2d(2))
        if dropout:
            self.convolutions.append(nn.Dropout(dropout))
        self.embedding = nn.Linear(64 * 2 * 2, self.feature_dim)
        self.linear = head(self.feature_dim, num_classes)
