"""The training dynamics of every sample: a recorder, its scores, and adapters for training frameworks.

The adapters are `hardsight.dynamics.lightning`, `.huggingface` and `.metrics`; each imports its framework, and only
when it is imported itself.
"""

from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.detector import NoiseDetector, confidence_curves, lead, noise_rate, train_detector
from hardsight.dynamics.recorder import Recorder
from hardsight.hardness.dynamics import detector_score, dynamics_scores
from hardsight.hardness.mixture import small_loss_mixture
from hardsight.hardness.several_passes import (
    GradientVariance,
    input_gradients,
    local_sensitivity,
    variance_of_gradients,
)

__all__ = [
    "Aggregates",
    "GradientVariance",
    "NoiseDetector",
    "Recorder",
    "confidence_curves",
    "detector_score",
    "dynamics_scores",
    "input_gradients",
    "lead",
    "local_sensitivity",
    "noise_rate",
    "small_loss_mixture",
    "train_detector",
    "variance_of_gradients",
]
