"""The papers' networks: each ends in a linear head, and names what goes into it.

Weights are drawn from torch's global generator at construction: call `torch.manual_seed` first.
"""

from hardsight.models.classifier import Classifier, Head
from hardsight.models.digits import DigitsCNN

__all__ = ["Classifier", "DigitsCNN", "Head"]
