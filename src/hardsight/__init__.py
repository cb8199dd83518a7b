"""How hard is each of your samples, and what should training do about it?

The whole public API is on this screen. What costs time to import is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hardsight.geometry import angle_between
from hardsight.hardness import angular_visual_confidence, angular_visual_hardness, model_confidence, score
from hardsight.heads import observe

if TYPE_CHECKING:
    from hardsight import (
        alignment,
        cleaning,
        datasets,
        degradation,
        domains,
        explain,
        kernels,
        losses,
        models,
        noise,
        report,
        training,
    )
    from hardsight.cleaning import find_label_issues
    from hardsight.domains import SelfTraining
    from hardsight.dynamics import Recorder
    from hardsight.engines import score_model
    from hardsight.losses import AngularLinear

_ROOMS = (
    "alignment",
    "cleaning",
    "datasets",
    "degradation",
    "domains",
    "explain",
    "kernels",
    "losses",
    "models",
    "noise",
    "report",
    "training",
)
_NAMES = {
    "AngularLinear": "losses",
    "Recorder": "dynamics",
    "SelfTraining": "domains",
    "find_label_issues": "cleaning",
    "score_model": "engines",
}

__all__ = [
    "AngularLinear",
    "Recorder",
    "SelfTraining",
    "alignment",
    "angle_between",
    "angular_visual_confidence",
    "angular_visual_hardness",
    "cleaning",
    "datasets",
    "degradation",
    "domains",
    "explain",
    "find_label_issues",
    "kernels",
    "losses",
    "model_confidence",
    "models",
    "noise",
    "observe",
    "report",
    "score",
    "score_model",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"hardsight.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"hardsight.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'hardsight' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
