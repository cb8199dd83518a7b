"""The papers' networks: each ends in a linear head, and names what goes into it.

Every network is a `Classifier`: `forward_features(inputs)` gives the features, `head` turns them into logits,
`feature_dim` and `input_shape` are the sizes. Weights are drawn from torch's global generator at construction:
call `torch.manual_seed` first.
"""

from hardsight.models.classifier import Classifier, Head
from hardsight.models.registry import create, names, options
from hardsight.models.weights import first_mismatch, load_cifar10_resnet

__all__ = ["Classifier", "Head", "create", "first_mismatch", "load_cifar10_resnet", "names", "options"]
