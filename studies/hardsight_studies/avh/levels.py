"""AVH at each level of a degradation: its distribution, and how closely it follows the level (AVH, Figs. 17 and 18)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardsight.alignment import correlate
from hardsight_studies.avh.looking import Look, short

BINS = 30


def judge_levels(looks: Sequence[Look], levels: Sequence[float]) -> dict[str, Any]:
    """Histograms of AVH by level, means of everything, and correlations of AVH, confidence and norm with the level.

    The same images at every level: a correlation over all of them mixes what a level does with how images differ, so
    beside it stands, as `within`, the mean of the images' own rank correlations.
    """
    columns = {name: _stacked(looks, name) for name in ("avh", "confidence", "norm", "correct")}
    amount = np.repeat(np.asarray(levels, np.float64), len(looks[0]))
    edges = np.linspace(0.0, columns["avh"].max(), BINS + 1)
    counts = [np.histogram(one, edges)[0].tolist() for one in columns["avh"]]
    return {
        "levels": list(levels),
        "images": len(looks[0]),
        "edges": _short(edges),
        "counts": counts,
        "means": {name: _short(values.mean(1)) for name, values in columns.items()},
        "sd": {name: _short(values.std(1)) for name, values in columns.items() if name != "correct"},
        "quartiles": [_short(row) for row in np.quantile(columns["avh"], (0.25, 0.5, 0.75), axis=1)],
        "correlations": {name: _correlations(columns[name].ravel(), amount) for name in ("avh", "confidence", "norm")},
        "within": {name: _within(columns[name], levels) for name in ("avh", "confidence", "norm")},
    }


def _short(values: np.ndarray) -> list[float | None]:
    return [short(value) for value in values.tolist()]


def _stacked(looks: Sequence[Look], name: str) -> np.ndarray:
    return np.stack([getattr(one, name).double().cpu().numpy() for one in looks])


def _correlations(values: np.ndarray, amount: np.ndarray) -> Mapping[str, float | None]:
    if np.ptp(values) == 0:
        return dict.fromkeys(("spearman", "pearson", "kendall"))
    return {
        method: round(correlate(values, amount, method).coefficient, 4) for method in ("spearman", "pearson", "kendall")
    }


def _within(values: np.ndarray, levels: Sequence[float]) -> float | None:
    """Mean over images of the rank correlation of an image's own values with the level, where they vary at all."""
    from scipy.stats import rankdata

    varying = values[:, np.ptp(values, axis=0) > 0]
    if not varying.size:
        return None
    ranks, level = rankdata(varying, axis=0), rankdata(np.asarray(levels))
    ranks, level = ranks - ranks.mean(0), level - level.mean()
    own = (level @ ranks) / np.sqrt((level**2).sum() * (ranks**2).sum(0))
    return round(float(own.mean()), 4)
