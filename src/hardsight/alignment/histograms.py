"""Two-dimensional histograms of human values against a score, small enough to keep with the results (AVH, Fig. 5)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from hardsight.alignment.scaling import scale_linearly

BINS = 25


@dataclass(frozen=True)
class JointHistogram:
    """`counts[i, j]` samples in human bin i and score bin j; score edges are those of the score scaled to [0, 1]."""

    counts: Integer[np.ndarray, "human score"]
    human_edges: Float[np.ndarray, "human_edges"]
    score_edges: Float[np.ndarray, "score_edges"]


def joint_histogram(
    score: Float[np.ndarray, "samples"], human: Float[np.ndarray, "samples"], bins: int = BINS
) -> JointHistogram:
    """Counts in equal bins, the last of each side closed; frequencies in [0, 1] get the whole of [0, 1] as range."""
    low, high = human_range(human)
    human_edges, score_edges = equal_edges(low, high, bins), equal_edges(0.0, 1.0, bins)
    counts = np.histogram2d(human, scale_linearly(score), bins=(human_edges, score_edges))[0]
    return JointHistogram(counts.astype(np.int64), human_edges, score_edges)


def equal_edges(low: float, high: float, bins: int) -> Float[np.ndarray, "edges"]:
    """Edges of equal bins from low to high, which may lie as far apart as floats do."""
    return 2 * np.linspace(low / 2, high / 2, bins + 1)


def human_range(human: Float[np.ndarray, "samples"]) -> tuple[float, float]:
    """[0, 1] for what may be a frequency, otherwise from the smallest to the largest."""
    low, high = float(human.min()), float(human.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
