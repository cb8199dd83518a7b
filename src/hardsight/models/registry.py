"""The networks by name, for configurations and command lines."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from hardsight.models.classifier import Classifier, Head
from hardsight.models.densenet import DenseNet121
from hardsight.models.googlenet import GoogLeNet
from hardsight.models.papers import CNN13, CNN28, cnn9, cnn10
from hardsight.models.residual import CifarResNet, ResNet50
from hardsight.models.small import MLP, DigitsCNN, LeNet, lenet_2d, mlp_2d
from hardsight.models.stacked import VGG19, AlexNet, vgg19_bn
from hardsight.names import check_name

_NETWORKS: dict[str, Callable[..., Classifier]] = {
    "alexnet": AlexNet,
    "cnn9": cnn9,
    "cnn10": cnn10,
    "cnn13": CNN13,
    "cnn28": CNN28,
    "densenet121": DenseNet121,
    "digits_cnn": DigitsCNN,
    "googlenet": GoogLeNet,
    "lenet": LeNet,
    "lenet_2d": lenet_2d,
    "mlp": MLP,
    "mlp_2d": mlp_2d,
    "resnet20": partial(CifarResNet, 20),
    "resnet32": partial(CifarResNet, 32),
    "resnet44": partial(CifarResNet, 44),
    "resnet56": partial(CifarResNet, 56),
    "resnet50": ResNet50,
    "vgg19": VGG19,
    "vgg19_bn": vgg19_bn,
}
_COMMON = ("num_classes", "in_channels", "head")


def names() -> tuple[str, ...]:
    """Every name that `create` knows."""
    return tuple(_NETWORKS)


def options(name: str) -> dict[str, Any]:
    """What `create` accepts for this network beyond classes, channels and head, with the defaults."""
    parameters = inspect.signature(_network(name)).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.name not in _COMMON}


def create(
    name: str,
    num_classes: int | None = None,
    in_channels: int | None = None,
    head: Head = nn.Linear,
    **network_options: Any,
) -> Classifier:
    """The network of that name, with fresh weights from torch's global generator: seed it first.

    Classes and channels left out are those of the data the network was made for.

    >>> create("resnet20", num_classes=100).feature_dim
    64
    >>> create("restnet20")
    Traceback (most recent call last):
    ValueError: name must be one of the 19 networks; got 'restnet20', did you mean 'resnet20'?
    """
    network = _network(name)
    for key, count in (("num_classes", num_classes), ("in_channels", in_channels)):
        if count is None:
            continue
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{key} must be a positive integer; got {count!r}")
        network_options[key] = count
    known = (*options(name), *_COMMON)
    for key in network_options:
        check_name(f"options of {name}", key, known, "options")
    return network(head=head, **network_options)


def _network(name: str) -> Callable[..., Classifier]:
    check_name("name", name, _NETWORKS, "networks")
    return _NETWORKS[name]
