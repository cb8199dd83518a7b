"""Other domains: self-training for adaptation without labels, leave-one-domain-out generalization."""

from hardsight.domains.baselines import BASELINES, adapt_baseline, make_baseline
from hardsight.domains.generalization import generalize, leave_each_out, leave_one_domain_out
from hardsight.domains.selection import (
    SELECTORS,
    Evidence,
    Selection,
    Selector,
    evidence_of,
    get_selector,
    select,
)
from hardsight.domains.self_training import SelfTrained, SelfTraining
from hardsight.domains.thresholds import rank_thresholds

__all__ = [
    "BASELINES",
    "SELECTORS",
    "Evidence",
    "Selection",
    "Selector",
    "SelfTrained",
    "SelfTraining",
    "adapt_baseline",
    "evidence_of",
    "generalize",
    "get_selector",
    "leave_each_out",
    "leave_one_domain_out",
    "make_baseline",
    "rank_thresholds",
    "select",
]
