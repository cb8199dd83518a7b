"""Cleaning: which labels are wrong, what to do about them, and which samples to train on next.

All of it is imported when it is first used: who reads decisions only does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardsight.cleaning.action_list import ACTIONS, Action, read_actions, write_actions
    from hardsight.cleaning.advice import Advice, MeasuredLoss
    from hardsight.cleaning.applying import Applied, apply_actions
    from hardsight.cleaning.auditing import Audit, advise, audit
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
    from hardsight.datasets.balanced import ClassBalancedSampler
    from hardsight.datasets.samplers import (
        CurriculumSampler,
        EpochSampler,
        HardMiningSampler,
        ImportanceSampler,
        SelfPacedSampler,
    )
    from hardsight.losses.triplets import Triplets, mine_triplets

__all__ = [
    "ACTIONS",
    "RANK_COMBINATIONS",
    "Action",
    "Advice",
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
    "MeasuredLoss",
    "SelfPacedSampler",
    "Triplets",
    "TwoHumps",
    "advise",
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
    "ACTIONS": "hardsight.cleaning.action_list",
    "Action": "hardsight.cleaning.action_list",
    "Advice": "hardsight.cleaning.advice",
    "Applied": "hardsight.cleaning.applying",
    "Audit": "hardsight.cleaning.auditing",
    "ClassBalancedSampler": "hardsight.datasets.balanced",
    "Correction": "hardsight.cleaning.correction",
    "CorrectionReport": "hardsight.cleaning.correction",
    "CurriculumSampler": "hardsight.datasets.samplers",
    "EpochSampler": "hardsight.datasets.samplers",
    "Fitting": "hardsight.cleaning.correction",
    "HardMiningSampler": "hardsight.datasets.samplers",
    "ImportanceSampler": "hardsight.datasets.samplers",
    "LabelIssues": "hardsight.cleaning.issues",
    "MeasuredLoss": "hardsight.cleaning.advice",
    "RANK_COMBINATIONS": "hardsight.cleaning.combined",
    "SelfPacedSampler": "hardsight.datasets.samplers",
    "Triplets": "hardsight.losses.triplets",
    "TwoHumps": "hardsight.cleaning.estimate",
    "advise": "hardsight.cleaning.auditing",
    "apply_actions": "hardsight.cleaning.applying",
    "audit": "hardsight.cleaning.auditing",
    "class_thresholds": "hardsight.cleaning.confident",
    "combined_scores": "hardsight.cleaning.combined",
    "confident_class": "hardsight.cleaning.confident",
    "confident_joint": "hardsight.cleaning.confident",
    "correct_labels": "hardsight.cleaning.correction",
    "correction_report": "hardsight.cleaning.correction",
    "expected_issues": "hardsight.cleaning.confident",
    "find_label_issues": "hardsight.cleaning.issues",
    "fit_two_humps": "hardsight.cleaning.estimate",
    "fitting": "hardsight.cleaning.correction",
    "hardness_by_group": "hardsight.cleaning.groups",
    "hardness_for": "hardsight.cleaning.columns",
    "mine_triplets": "hardsight.losses.triplets",
    "nearest_in_angle": "hardsight.cleaning.neighbours",
    "posterior_doubt": "hardsight.cleaning.combined",
    "read_actions": "hardsight.cleaning.action_list",
    "write_actions": "hardsight.cleaning.action_list",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hardsight.cleaning' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
