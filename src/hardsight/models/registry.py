"""The networks by name, for configurations and command lines."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from hardsight.models.branched import CifarResNet, DenseNet121, GoogLeNet, ResNet50
from hardsight.models.classifier import Classifier, Head
from hardsight.models.plain import CNN13, CNN28, MLP, VGG19, AlexNet, DigitsCNN, LeNet, PlainCNN
from hardsight.names import check_name
from hardsight.validation import check_count

_NETWORKS: dict[str, Callable[..., Classifier]] = {
    "alexnet": AlexNet,
    "cnn9": partial(PlainCNN, image_size=32, stem_stride=0),
    "cnn10": PlainCNN,
    "cnn13": CNN13,
    "cnn28": CNN28,
    "densenet121": DenseNet121,
    "digits_cnn": DigitsCNN,
    "googlenet": GoogLeNet,
    "lenet": LeNet,
    "lenet_2d": partial(LeNet, feature_dim=2),
    "mlp": MLP,
    "mlp_2d": partial(MLP, hidden=(2,)),
    "resnet20": partial(CifarResNet, 20),
    "resnet32": partial(CifarResNet, 32),
    "resnet44": partial(CifarResNet, 44),
    "resnet56": partial(CifarResNet, 56),
    "resnet50": ResNet50,
    "vgg19": VGG19,
    "vgg19_bn": partial(VGG19, batch_norm=True),
}
_COMMON = ("num_classes", "in_channels", "head")


def names() -> tuple[str, ...]:
    """Every name that `create` knows."""
    return tuple(_NETWORKS)


def options(name: str) -> dict[str, Any]:
    """What `create` accepts for this network beyond classes, channels and head, with the defaults."""
    check_name("name", name, _NETWORKS, "networks")
    parameters = inspect.signature(_NETWORKS[name]).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD}


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
    known = (*options(name), *_COMMON)
    for key in network_options:
        check_name(f"options of {name}", key, known, "options")
    sizes = (("num_classes", num_classes, "the head's outputs"), ("in_channels", in_channels, "those of the images"))
    for key, count, meaning in sizes:
        if count is not None:
            check_count(key, count, meaning)
            network_options[key] = count
    return _NETWORKS[name](head=head, **network_options)
