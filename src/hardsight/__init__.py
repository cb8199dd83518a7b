"""How hard is each of your samples, and what should training do about it?

The whole public API. All of it is imported when it is first used: a command's help does not wait for torch.

| name | what it does |
|---|---|
| `audit(table)`, `audit(labels=..., features=...)` | which labels are probably wrong; to look at, edit and save |
| `explore(folder)` | a page to look at samples and decide about them, in your browser |
| `score_model(model, loader)` | scores of every sample, as a table: `avh`, `confidence`, `el2n`, ... |
| `score(features, weight, labels)` | the same from features and the weights of the last layer |
| `score_tokens(model, input_ids)` | scores of every token that a language model reads |
| `find_label_issues(table)` | which labels are probably wrong, how many, and what they should be |
| `Recorder(num_samples)` | what every sample did while you train: forgotten, learned late, never agreed |
| `fit_head(features, labels)` | linear heads on features, each sample judged by one that never saw it |
| `observe(model)` | features, logits and weights of the last layer in a forward that runs anyway |
| `angular_visual_hardness`, `angular_visual_confidence`, `model_confidence`, `angle_between` | single scores |
| `AngularLinear(dim, classes)` | a last layer on angles: cross-entropy on it is the AVH loss |
| `SelfTraining(selector)` | adapts a classifier to a domain without labels |
| `losses`, `training`, `models`, `datasets` | what a training is made of |
| `cleaning`, `report` | audits, samplers and label correction; pages made from records |
| `noise`, `degradation` | wrong labels and worse pictures, made on purpose |
| `language` | tokens as samples: scores, recording and weights for language models |
| `alignment`, `explain`, `domains`, `kernels` | people, pictures, other domains, fused GPU operations |
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardsight import (
        alignment,
        cleaning,
        datasets,
        degradation,
        domains,
        explain,
        kernels,
        language,
        losses,
        models,
        noise,
        report,
        training,
    )
    from hardsight.cleaning import find_label_issues
    from hardsight.cleaning.auditing import audit
    from hardsight.domains import SelfTraining
    from hardsight.dynamics import Recorder
    from hardsight.engines import score_model
    from hardsight.explorer import explore
    from hardsight.geometry import angle_between
    from hardsight.hardness import angular_visual_confidence, angular_visual_hardness, model_confidence, score
    from hardsight.heads import fit_head, observe
    from hardsight.language import score_tokens
    from hardsight.losses import AngularLinear

__all__ = [
    "AngularLinear", "Recorder", "SelfTraining", "alignment", "angle_between", "angular_visual_confidence",
    "angular_visual_hardness", "audit", "cleaning", "datasets", "degradation", "domains", "explain", "explore",
    "find_label_issues", "fit_head", "kernels", "language", "losses", "model_confidence", "models", "noise", "observe",
    "report", "score", "score_model", "score_tokens", "training",
]  # fmt: skip

_HOMES = {
    "AngularLinear": "losses",
    "Recorder": "dynamics",
    "SelfTraining": "domains",
    "angle_between": "geometry",
    "angular_visual_confidence": "hardness",
    "angular_visual_hardness": "hardness",
    "audit": "cleaning",
    "explore": "explorer",
    "find_label_issues": "cleaning",
    "fit_head": "heads",
    "model_confidence": "hardness",
    "observe": "heads",
    "score": "hardness",
    "score_model": "engines",
    "score_tokens": "language",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"hardsight.{_HOMES[name]}"), name)
    if name in __all__ or name in _HOMES.values():
        return importlib.import_module(f"hardsight.{name}")
    raise AttributeError(f"module 'hardsight' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
