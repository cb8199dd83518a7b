"""Other domains: self-training for adaptation without labels, splits that leave one domain out."""

from hardsight.domains.data import Split, leave_one_domain_out
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
    "Split",
    "evidence_of",
    "get_selector",
    "leave_one_domain_out",
    "rank_thresholds",
    "select",
]
