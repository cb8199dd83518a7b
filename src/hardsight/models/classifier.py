"""What every network of this room has in common: features, then one linear head."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

Head = Callable[[int, int], nn.Module]
"""Makes the last layer from the number of features and of classes: `nn.Linear`, or an angular one."""


class Classifier(nn.Module, ABC):
    """A network whose logits are `head(forward_features(inputs))`, and nothing else.

    `feature_dim` is the length of a feature vector, `input_shape` the shape of one input the network was made for.
    The head is the last layer and is called as a module: a hook on it sees the features go in and the logits come
    out. Weights are drawn from torch's global generator at construction, dropout and noise from that of the device.
    """

    feature_dim: int
    input_shape: tuple[int, ...]
    linear: nn.Module

    @property
    def head(self) -> nn.Module:
        """The last layer. Networks with public weights keep it under the name that those weights use."""
        return self.linear

    @abstractmethod
    def forward_features(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch dim"]:
        """The feature vectors: what the head is applied to."""

    def forward(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch classes"]:
        return self.head(self.forward_features(inputs))


class StackedClassifier(Classifier):
    """Convolutions, pooling, then a stack of linear layers whose last is the head: AlexNet, VGG."""

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
        activations = self.avgpool(self.features(inputs)).flatten(1)
        for layer in list(self.classifier)[:-1]:
            activations = layer(activations)
        return activations
