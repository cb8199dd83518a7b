"""The papers' networks: each ends in a linear head, and names what goes into it.

Every network is a `Classifier`: `forward_features(inputs)` gives the features, `head` turns them into logits,
`feature_dim` and `input_shape` are the sizes. Weights are drawn from torch's global generator at construction:
call `torch.manual_seed` first.
"""

from hardsight.models.classifier import Classifier, Head
from hardsight.models.densenet import DenseNet121
from hardsight.models.googlenet import GoogLeNet
from hardsight.models.papers import CNN13, CNN28, PlainCNN, cnn9, cnn10
from hardsight.models.registry import create, names, options
from hardsight.models.residual import CifarResNet, ResNet50
from hardsight.models.small import MLP, DigitsCNN, LeNet, lenet_2d, mlp_2d
from hardsight.models.stacked import VGG19, AlexNet, vgg19_bn
from hardsight.models.weights import first_mismatch, load_cifar10_resnet

__all__ = [
    "CNN13",
    "CNN28",
    "MLP",
    "VGG19",
    "AlexNet",
    "CifarResNet",
    "Classifier",
    "DenseNet121",
    "DigitsCNN",
    "GoogLeNet",
    "Head",
    "LeNet",
    "PlainCNN",
    "ResNet50",
    "cnn9",
    "cnn10",
    "create",
    "first_mismatch",
    "lenet_2d",
    "load_cifar10_resnet",
    "mlp_2d",
    "names",
    "options",
    "vgg19_bn",
]
