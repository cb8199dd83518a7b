"""Do several models, or several scores, rank the same samples alike? Rank correlations and Kendall's W."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.coefficients import correlation_matrix, ranks
from hardsight.alignment.inputs import METHODS, as_pairs
from hardsight.names import check_name


@dataclass(frozen=True)
class RankAgreement:
    """`matrix[i, j]` is the correlation of rankings i and j; `w` is Kendall's coefficient of concordance, in [0, 1].

    W is 1 where all rank alike and about 1 / (number of rankings) where they have nothing in common; `p_value` is that
    of the chi-squared approximation.
    """

    names: tuple[str, ...]
    method: str
    matrix: Float[np.ndarray, "rankings rankings"]
    w: float
    p_value: float
    n: int


def rank_agreement(
    scores: Mapping[str, Any], method: str = "spearman", *, matrix: Float[np.ndarray, "rankings rankings"] | None = None
) -> RankAgreement:
    """All correlations between named scores of the same samples, and Kendall's W over all of them, corrected for ties.

    Turn the scores one way first (larger is harder, say): W of two opposite rankings is 0. `matrix`: the correlations,
    where they are known already.
    """
    check_name("method", method, METHODS)
    if len(scores) < 2:
        raise ValueError(f"scores must name at least 2 rankings to compare; got {len(scores)}")
    columns = as_pairs(**{str(name): values for name, values in scores.items()})
    w, p_value = _concordance(np.stack([ranks(column) for column in columns]))
    matrix = correlation_matrix(columns, method) if matrix is None else matrix
    return RankAgreement(tuple(map(str, scores)), method, matrix, w, p_value, len(columns[0]))


def _concordance(ranked: Float[np.ndarray, "rankings samples"]) -> tuple[float, float]:
    """12 S / (m^2 (n^3 - n) - m T), T the sum of t^3 - t over all ties of t samples (Kendall and Smith, 1939)."""
    from scipy.special import chdtrc

    rankings, samples = ranked.shape
    totals = ranked.sum(0)
    spread = float(((totals - totals.mean()) ** 2).sum())
    ties = 0.0
    for row in ranked:
        sizes = np.unique(row, return_counts=True)[1].astype(np.float64)
        ties += float((sizes**3 - sizes).sum())
    w = 12 * spread / (rankings**2 * (float(samples) ** 3 - samples) - rankings * ties)
    w = min(1.0, max(0.0, w))
    return w, float(chdtrc(samples - 1, rankings * (samples - 1) * w))
