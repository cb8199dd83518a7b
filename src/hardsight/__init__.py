"""How hard is each of your samples, and what should training do about it?"""

from hardsight.engines import score_model
from hardsight.geometry import angle_between
from hardsight.hardness import angular_visual_confidence, angular_visual_hardness, model_confidence, score
from hardsight.heads import observe

__all__ = [
    "angle_between",
    "angular_visual_confidence",
    "angular_visual_hardness",
    "model_confidence",
    "observe",
    "score",
    "score_model",
]
