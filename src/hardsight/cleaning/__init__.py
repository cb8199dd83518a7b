"""Cleaning: which labels are wrong, what to do about them, and which samples to train on next.

All of it is imported when it is first used: who reads decisions only does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardsight.cleaning.advice import Advice
    from hardsight.cleaning.applying import Applied, apply_actions
    from hardsight.cleaning.auditing import Audit, advise, audit
    from hardsight.cleaning.columns import hardness_by_group, hardness_for
    from hardsight.cleaning.combined import RANK_COMBINATIONS, combined_scores, posterior_doubt
    from hardsight.cleaning.confident import (
        TwoHumps,
        class_thresholds,
        confident_class,
        confident_joint,
        expected_issues,
        fit_two_humps,
    )  # fmt: skip
    from hardsight.cleaning.correction import correct_labels, correction_report, fitting
    from hardsight.cleaning.decisions import ACTIONS, Action, read_actions, write_actions
    from hardsight.cleaning.issues import LabelIssues, find_label_issues
    from hardsight.cleaning.neighbours import nearest_in_angle
    from hardsight.datasets.samplers import (
        ClassBalancedSampler,
        CurriculumSampler,
        EpochSampler,
        HardMiningSampler,
        ImportanceSampler,
        SelfPacedSampler,
    )
    from hardsight.losses.metric import Triplets, mine_triplets

__all__ = [
    "ACTIONS", "RANK_COMBINATIONS", "Action", "Advice", "Applied", "Audit", "ClassBalancedSampler",
    "CurriculumSampler", "EpochSampler", "HardMiningSampler", "ImportanceSampler",
    "LabelIssues", "SelfPacedSampler", "Triplets", "TwoHumps", "advise", "apply_actions", "audit",
    "class_thresholds", "combined_scores", "confident_class", "confident_joint", "correct_labels", "correction_report",
    "expected_issues", "find_label_issues", "fit_two_humps", "fitting", "hardness_by_group", "hardness_for",
    "mine_triplets", "nearest_in_angle", "posterior_doubt", "read_actions", "write_actions",
]  # fmt: skip

_HOMES = {
    "cleaning.advice": ("Advice",),
    "cleaning.applying": ("Applied", "apply_actions"),
    "cleaning.auditing": ("Audit", "advise", "audit"),
    "cleaning.columns": ("hardness_by_group", "hardness_for"),
    "cleaning.combined": ("RANK_COMBINATIONS", "combined_scores", "posterior_doubt"),
    "cleaning.confident": (
        "TwoHumps", "class_thresholds", "confident_class", "confident_joint", "expected_issues", "fit_two_humps",
    ),
    "cleaning.correction": ("correct_labels", "correction_report", "fitting"),
    "cleaning.decisions": ("ACTIONS", "Action", "read_actions", "write_actions"),
    "cleaning.issues": ("LabelIssues", "find_label_issues"),
    "cleaning.neighbours": ("nearest_in_angle",),
    "datasets.samplers": (
        "ClassBalancedSampler",
        "CurriculumSampler", "EpochSampler", "HardMiningSampler", "ImportanceSampler", "SelfPacedSampler",
    ),
    "losses.metric": ("Triplets", "mine_triplets"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'hardsight.cleaning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hardsight.{home}"), name)
