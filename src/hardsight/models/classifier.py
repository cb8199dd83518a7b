"""What every network here has in common: features, then one linear head; and the layers that several share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, TypedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn

Head = Callable[[int, int], nn.Module]
"""Makes the last layer from the number of features and of classes: `nn.Linear`, or an angular one."""
Images = Float[Tensor, "batch channels height width"]


class Common(TypedDict, total=False):
    """What every network takes; classes and channels left out are those of the data it was made for."""

    num_classes: int
    in_channels: int
    head: Head


def asked(common: Common, classes: int, channels: int) -> tuple[int, Callable[[int], nn.Module]]:
    """The number of channels that come in, and what makes the head from the number of features."""
    head, count = common.get("head", nn.Linear), common.get("num_classes", classes)
    return common.get("in_channels", channels), lambda features: head(features, count)


class Classifier(nn.Module, ABC):
    """A network whose logits are `head(forward_features(inputs))`, and nothing else.

    `feature_dim` is the length of a feature vector, `input_shape` the shape of one input the network was made for.
    The head is the last layer and is called as a module: a hook on it sees the features go in and the logits come
    out. Weights are drawn from torch's global generator at construction, dropout and noise from that of the device.
    """

    feature_dim: int
    input_shape: tuple[int, ...]
    # Networks with public weights keep the head under the name that those weights use.
    head_name = "linear"

    @property
    def head(self) -> nn.Module:
        """The last layer."""
        return self.get_submodule(self.head_name)

    @abstractmethod
    def forward_features(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch dim"]:
        """The feature vectors: what the head is applied to."""

    def forward(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch classes"]:
        logits: Tensor = self.head(self.forward_features(inputs))
        return logits


class AveragingClassifier(Classifier):
    """The last maps, each averaged, are the features; of these, `dropout` are dropped in training."""

    convolutions: nn.Module

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def maps(self, inputs: Images) -> Float[Tensor, "batch dim h w"]:
        """The last layer with places."""
        maps: Tensor = self.convolutions(inputs)
        return maps

    def forward_features(self, inputs: Images) -> Float[Tensor, "batch {self.feature_dim}"]:
        features: Tensor = self.dropout(self.maps(inputs).mean((2, 3)))
        return features


class EmbeddingClassifier(Classifier):
    """The last maps, side by side, become features by `embedding`. Images have the size of `input_shape`."""

    convolutions: nn.Module
    embedding: nn.Module

    def forward_features(self, inputs: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch {self.feature_dim}"]:
        features: Tensor = self.embedding(self.convolutions(inputs).flatten(1))
        return features


def convolutions(incoming: int, *plan: int | tuple[int, ...] | nn.Module, leak: float = 0.0) -> nn.Sequential:
    """Convolutions, each with batch normalization and a ReLU (leaky when `leak` is given), and other layers.

    A number is a 3x3 convolution of so many channels; (channels, kernel, padding, stride) another one. They have no
    bias: the normalization would remove it, and brings its own.
    """
    layers: list[nn.Module] = []
    for step in plan:
        if isinstance(step, nn.Module):
            layers.append(step)
            continue
        width, kernel, padding, stride = (step, 3, 1, 1) if isinstance(step, int) else (*step, 1)[:4]
        activation = nn.LeakyReLU(leak) if leak else nn.ReLU()
        convolution = nn.Conv2d(incoming, width, kernel, stride, padding, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), activation]
        incoming = width
    return nn.Sequential(*layers)


class GaussianNoise(nn.Module):
    """Adds noise of standard deviation `sigma` in training, nothing in evaluation."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, inputs: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.sigma == 0:
            return inputs
        return inputs + self.sigma * torch.randn_like(inputs)

    def extra_repr(self) -> str:
        return f"sigma={self.sigma}"


def initialize_he(model: nn.Module, mode: Literal["fan_in", "fan_out"]) -> None:
    """He et al. (2015): convolutions from a normal distribution of variance 2 / fan, their biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def image_size(stem: str) -> int:
    """The side of the images, in pixels, that a network with this stem is made for."""
    if stem not in ("small", "large"):
        raise ValueError(f"stem must be 'small' (about 32x32 pixels) or 'large' (about 224x224); got {stem!r}")
    return 32 if stem == "small" else 224
