"""Alignment: does a score see hardness where people see it? Correlations, tests between them, bins, bootstrap."""

from hardsight.alignment.agreement import RankAgreement, rank_agreement
from hardsight.alignment.analysis import align_scores
from hardsight.alignment.bootstrap import Bootstrap, bootstrap_correlations
from hardsight.alignment.calibration import expected_calibration_error
from hardsight.alignment.coefficients import Correlation, Interval, p_value_of
from hardsight.alignment.comparison import (
    Comparison,
    ZTest,
    compare_correlations,
    fisher_z_test,
    holm,
    meng_rosenthal_rubin_test,
    steiger_test,
)
from hardsight.alignment.correlation import correlate
from hardsight.alignment.groups import (
    FIVE_BINS,
    GranularCorrelation,
    GroupCorrelation,
    bin_of,
    correlate_by_granularity,
    correlate_by_group,
    correlate_in_bins,
)
from hardsight.alignment.matching import Match, match_ids
from hardsight.alignment.partial import partial_correlation
from hardsight.alignment.scaling import scale_linearly, scale_within_groups
from hardsight.alignment.turning import Column

__all__ = [
    "FIVE_BINS",
    "Bootstrap",
    "Column",
    "Comparison",
    "Correlation",
    "GranularCorrelation",
    "GroupCorrelation",
    "Interval",
    "Match",
    "RankAgreement",
    "ZTest",
    "align_scores",
    "bin_of",
    "bootstrap_correlations",
    "compare_correlations",
    "correlate",
    "correlate_by_granularity",
    "correlate_by_group",
    "correlate_in_bins",
    "expected_calibration_error",
    "fisher_z_test",
    "holm",
    "match_ids",
    "meng_rosenthal_rubin_test",
    "p_value_of",
    "partial_correlation",
    "rank_agreement",
    "scale_linearly",
    "scale_within_groups",
    "steiger_test",
]
