"""Hardness of every sample: pure score functions, a registry, and scoring in chunks."""

from hardsight.hardness import catalogue  # noqa: F401 (registers the scores)
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
    label_visual_confidence,
    last_layer_grand,
    logit_margin,
    model_confidence,
    prototype_angle,
)
from hardsight.hardness.registry import SCORES, Score, get_score, model_scores, register
from hardsight.hardness.scoring import DEFAULT_SCORES, score

__all__ = [
    "DEFAULT_SCORES",
    "SCORES",
    "ClassSummary",
    "Score",
    "angular_margin",
    "angular_visual_confidence",
    "angular_visual_hardness",
    "class_normalised_norm",
    "cross_entropy",
    "el2n",
    "entropy",
    "feature_norm",
    "get_score",
    "label_visual_confidence",
    "last_layer_grand",
    "logit_margin",
    "model_confidence",
    "model_scores",
    "prototype_angle",
    "register",
    "score",
]
