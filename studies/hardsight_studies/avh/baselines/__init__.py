"""The baselines of AVH's Table 3: source only, MMD, DANN, entropy minimisation, MCD, ADR; one call for all of them."""

from hardsight_studies.avh.baselines.adaptation import ClassAccuracy, accuracy_by_class, adapt_baseline
from hardsight_studies.avh.baselines.discrepancies import (
    classifier_discrepancy,
    maximum_mean_discrepancy,
    mean_entropy,
    reversal_strength,
    reverse_gradient,
    symmetric_divergence,
)
from hardsight_studies.avh.baselines.methods import (
    ADR,
    BASELINES,
    DANN,
    MCD,
    MMD,
    Baseline,
    Entropy,
    SourceOnly,
    make_baseline,
)

__all__ = [
    "ADR",
    "BASELINES",
    "DANN",
    "MCD",
    "MMD",
    "Baseline",
    "ClassAccuracy",
    "Entropy",
    "SourceOnly",
    "accuracy_by_class",
    "adapt_baseline",
    "classifier_discrepancy",
    "make_baseline",
    "maximum_mean_discrepancy",
    "mean_entropy",
    "reversal_strength",
    "reverse_gradient",
    "symmetric_divergence",
]
