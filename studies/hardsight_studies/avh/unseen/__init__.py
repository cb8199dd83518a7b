"""Domain generalization: train on all domains but one, test on that one (AVH, section 5.2 and Table 5)."""

from hardsight.domains.splits import Split, leave_one_domain_out
from hardsight_studies.avh.unseen.leaving_out import SCALES, Generalized, generalize
from hardsight_studies.avh.unseen.training import METHODS, Recipe, make_loop, with_backbone_features

__all__ = [
    "METHODS",
    "SCALES",
    "Generalized",
    "Recipe",
    "Split",
    "generalize",
    "leave_one_domain_out",
    "make_loop",
    "with_backbone_features",
]
