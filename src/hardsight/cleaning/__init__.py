"""Cleaning: which labels are wrong, what to do about them, and which samples to train on next.

All of it is imported when it is first used: who reads decisions only does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardsight.cleaning.action_list import ACTIONS, Action, read_actions, write_actions
    from hardsight.cleaning.applying import Applied, apply_actions
    from hardsight.cleaning.auditing import Audit, audit
    from hardsight.cleaning.balanced import ClassBalancedSampler
    from hardsight.cleaning.columns import hardness_for
    from hardsight.cleaning.combined import RANK_COMBINATIONS, combined_scores, posterior_doubt
    from hardsight.cleaning.confident import class_thresholds, confident_class, confident_joint, expected_issues
    from hardsight.cleaning.correction import (
        Correction,
        CorrectionReport,
        Fitting,
        correct_labels,
        correction_report,
        fitting,
    )
    from hardsight.cleaning.estimate import TwoHumps, fit_two_humps
    from hardsight.cleaning.groups import hardness_by_group
    from hardsight.cleaning.issues import LabelIssues, find_label_issues
    from hardsight.cleaning.neighbours import nearest_in_angle
    from hardsight.cleaning.samplers import (
        CurriculumSampler,
        EpochSampler,
        HardMiningSampler,
        ImportanceSampler,
        SelfPacedSampler,
    )
    from hardsight.cleaning.triplets import Triplets, mine_triplets

__all__ = [
    "ACTIONS",
    "RANK_COMBINATIONS",
    "Action",
    "Applied",
    "Audit",
    "ClassBalancedSampler",
    "Correction",
    "CorrectionReport",
    "CurriculumSampler",
    "EpochSampler",
    "Fitting",
    "HardMiningSampler",
    "ImportanceSampler",
    "LabelIssues",
    "SelfPacedSampler",
    "Triplets",
    "TwoHumps",
    "apply_actions",
    "audit",
    "class_thresholds",
    "combined_scores",
    "confident_class",
    "confident_joint",
    "correct_labels",
    "correction_report",
    "expected_issues",
    "find_label_issues",
    "fit_two_humps",
    "fitting",
    "hardness_by_group",
    "hardness_for",
    "mine_triplets",
    "nearest_in_angle",
    "posterior_doubt",
    "read_actions",
    "write_actions",
]

_HOMES = {
    "ACTIONS": "action_list",
    "Action": "action_list",
    "Applied": "applying",
    "Audit": "auditing",
    "ClassBalancedSampler": "balanced",
    "Correction": "correction",
    "CorrectionReport": "correction",
    "CurriculumSampler": "samplers",
    "EpochSampler": "samplers",
    "Fitting": "correction",
    "HardMiningSampler": "samplers",
    "ImportanceSampler": "samplers",
    "LabelIssues": "issues",
    "RANK_COMBINATIONS": "combined",
    "SelfPacedSampler": "samplers",
    "Triplets": "triplets",
    "TwoHumps": "estimate",
    "apply_actions": "applying",
    "audit": "auditing",
    "class_thresholds": "confident",
    "combined_scores": "combined",
    "confident_class": "confident",
    "confident_joint": "confident",
    "correct_labels": "correction",
    "correction_report": "correction",
    "expected_issues": "confident",
    "find_label_issues": "issues",
    "fit_two_humps": "estimate",
    "fitting": "correction",
    "hardness_by_group": "groups",
    "hardness_for": "columns",
    "mine_triplets": "triplets",
    "nearest_in_angle": "neighbours",
    "posterior_doubt": "combined",
    "read_actions": "action_list",
    "write_actions": "action_list",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hardsight.cleaning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hardsight.cleaning.{_HOMES[name]}"), name)
