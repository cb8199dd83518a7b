"""The few layers that several networks share."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn


def normalized_convolution(
    incoming: int, outgoing: int, kernel: int, *, stride: int = 1, padding: int | None = None, leak: float = 0.0
) -> list[nn.Module]:
    """Convolution, batch normalization, ReLU (leaky when `leak` is given). Padding keeps the size unless given.

    The convolution has no bias: the normalization would remove it, and brings its own.
    """
    padding = kernel // 2 if padding is None else padding
    activation = nn.LeakyReLU(leak) if leak else nn.ReLU()
    convolution = nn.Conv2d(incoming, outgoing, kernel, stride, padding, bias=False)
    return [convolution, nn.BatchNorm2d(outgoing), activation]


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


def check_stem(stem: str) -> None:
    """A network begins for images of about 32x32 pixels or of about 224x224: nothing else is known."""
    if stem not in ("small", "large"):
        raise ValueError(f"stem must be 'small' (about 32x32 pixels) or 'large' (about 224x224); got {stem!r}")


def hidden_dropout(dropout: float | None, small: bool) -> float:
    """The share dropped in the hidden layers, half where it is left out; the small stem has no such layers."""
    if small and dropout:
        raise ValueError(f"dropout must be left out with the small stem, which has no hidden layers; got {dropout!r}")
    return 0.5 if dropout is None else dropout
