"""What training reveals of every sample: a recorder, the scores made from it, adapters for training frameworks.

The adapters are `hardsight.dynamics.lightning`, `.huggingface` and `.metrics`; each imports its framework, and only
when it is imported itself.
"""

from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.catalogue import DynamicsScore, dynamics_scores
from hardsight.dynamics.detector import NoiseDetector, confidence_curves, detector_score, train_detector
from hardsight.dynamics.gradients import GradientVariance, input_gradients, variance_of_gradients
from hardsight.dynamics.mixture import small_loss_mixture
from hardsight.dynamics.noise_rate import lead, noise_rate
from hardsight.dynamics.recorder import Recorder
from hardsight.dynamics.sensitivity import local_sensitivity, sensitivity_to

__all__ = [
    "Aggregates",
    "DynamicsScore",
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
    "sensitivity_to",
    "small_loss_mixture",
    "train_detector",
    "variance_of_gradients",
]
