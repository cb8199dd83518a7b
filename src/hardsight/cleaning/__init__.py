"""Cleaning: which labels are wrong, what to do about them, and which samples to train on next."""

from hardsight.cleaning.actions import ACTIONS, Action, Applied, apply_actions, read_actions, write_actions
from hardsight.cleaning.balanced import ClassBalancedSampler
from hardsight.cleaning.columns import hardness_for
from hardsight.cleaning.combined import RANK_COMBINATIONS, combined_scores, nearest_in_angle, posterior_doubt
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
