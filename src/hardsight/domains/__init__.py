"""Other domains: self-training for adaptation without labels, leave-one-domain-out generalization."""

from hardsight.domains.selection import (
    SELECTORS,
    Evidence,
    Selection,
    Selector,
    evidence_of,
    get_selector,
    rank_thresholds,
    select,
)
from hardsight.domains.self_training import SelfTrained, SelfTraining

__all__ = [
    "SELECTORS",
    "Evidence",
    "Selection",
    "Selector",
    "SelfTrained",
    "SelfTraining",
    "evidence_of",
    "get_selector",
    "rank_thresholds",
    "select",
]
