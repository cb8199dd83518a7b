"""Hardness of every sample: pure score functions, their registry, and scoring in chunks.

`SCORES` is complete once this package is imported: every module that registers scores is imported here.
"""

from hardsight.hardness.columns import ClassSummary
from hardsight.hardness.definitions import (
    angular_margin,
    angular_visual_confidence,
    angular_visual_hardness,
    class_normalised_norm,
    cross_entropy,
    el2n,
    entropy,
    feature_norm,
    label_rank,
    label_visual_confidence,
    last_layer_grand,
    logit_margin,
    model_confidence,
    prototype_angle,
)
from hardsight.hardness.dynamics import dynamics_scores  # noqa: F401 (the module registers scores)
from hardsight.hardness.registry import SCORES, Score, get_score, model_scores, register
from hardsight.hardness.scoring import DEFAULT_SCORES, score
from hardsight.hardness.several_passes import variance_of_gradients  # noqa: F401 (likewise)
from hardsight.hardness.summary import summarise
from hardsight.hardness.uncertainty import (
    OPEN_SET_SCORES,
    calibration_error,
    fit_temperature,
    open_set_scores,
    uncertainties,
)

__all__ = [
    "DEFAULT_SCORES", "OPEN_SET_SCORES", "SCORES", "ClassSummary", "Score", "angular_margin",
    "angular_visual_confidence", "angular_visual_hardness", "calibration_error", "class_normalised_norm",
    "cross_entropy", "el2n", "entropy", "feature_norm", "fit_temperature", "get_score", "label_rank",
    "label_visual_confidence", "last_layer_grand", "logit_margin", "model_confidence", "model_scores",
    "open_set_scores", "prototype_angle", "register", "score", "summarise", "uncertainties",
]  # fmt: skip
