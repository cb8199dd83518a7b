"""Cleaning: which labels are wrong, what to do about them, and which samples to train on next."""

from hardsight.cleaning.confident import class_thresholds, confident_class, confident_joint, expected_issues
from hardsight.cleaning.estimate import TwoHumps, fit_two_humps
from hardsight.cleaning.issues import LabelIssues, find_label_issues

__all__ = [
    "LabelIssues",
    "TwoHumps",
    "class_thresholds",
    "confident_class",
    "confident_joint",
    "expected_issues",
    "find_label_issues",
    "fit_two_humps",
]
