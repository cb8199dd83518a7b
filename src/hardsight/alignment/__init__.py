"""Alignment: does a score see hardness where people see it? Correlations, tests between them, bins, bootstrap."""

from hardsight.alignment.analysis import align_scores, disagreements
from hardsight.alignment.bootstrap import Bootstrap, bootstrap_correlations, correlate
from hardsight.alignment.comparison import (
    Comparison,
    RankAgreement,
    ZTest,
    compare_correlations,
    fisher_z_test,
    holm,
    meng_rosenthal_rubin_test,
    rank_agreement,
    steiger_test,
)
from hardsight.alignment.correlation import Column, Correlation, Interval, p_value_of, partial_correlation
from hardsight.alignment.groups import (
    FIVE_BINS,
    GroupCorrelation,
    bin_of,
    correlate_by_granularity,
    correlate_by_group,
    correlate_in_bins,
    scale_linearly,
    scale_within_groups,
)

__all__ = [
    "FIVE_BINS", "Bootstrap", "Column", "Comparison", "Correlation", "GroupCorrelation", "Interval",
    "RankAgreement", "ZTest", "align_scores", "bin_of", "bootstrap_correlations", "compare_correlations",
    "correlate", "correlate_by_granularity", "correlate_by_group", "correlate_in_bins", "disagreements",
    "fisher_z_test", "holm", "meng_rosenthal_rubin_test", "p_value_of", "partial_correlation", "rank_agreement",
    "scale_linearly", "scale_within_groups", "steiger_test",
]  # fmt: skip
