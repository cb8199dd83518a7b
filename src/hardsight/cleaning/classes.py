"""What is the matter with classes: confused pairs, small classes, classes that look like one or like several."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.cleaning.confident import fit_two_humps
from hardsight.geometry import directions, widen

# Pairs of labels and expected classes that are listed.
_LISTED = 20
# A class is small below this part of an even share.
_SMALL = 0.1
# Two classes look like one where the heads order fewer pairs of their samples rightly than this.
_APART = 0.7
_NORMAL = 1.959964
# A class looks like several where the smaller half has at least this share; of fewer samples nothing is said, and of
# more so many are looked at.
_LEAST_HALF, _FEWEST, _MOST = 0.1, 40, 2000


def confused_pairs(
    labels: np.ndarray, expected: np.ndarray, issue: np.ndarray, names: Sequence[Any]
) -> list[dict[str, Any]]:
    """Label and expected class of the suspects, most frequent first; `low` and `high` are of the share of the label.

    The interval is over samples of that label: 95 %, by Wilson's score.
    """
    chosen = issue & (labels != expected)
    pairs = Counter(zip(labels[chosen].tolist(), expected[chosen].tolist(), strict=True))
    sizes = np.bincount(labels)
    found = []
    for (label, other), count in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:_LISTED]:
        low, high = wilson(count, int(sizes[label]))
        found.append({"label": names[label], "expected": names[other], "count": count,
                      "share": count / int(sizes[label]), "low": low, "high": high})  # fmt: skip
    return found


def imbalance(labels: np.ndarray, names: Sequence[Any]) -> dict[str, Any]:
    """Samples of the smallest and the largest class, and the classes with less than a tenth of an even share."""
    counts = np.bincount(labels, minlength=len(names))
    small = np.flatnonzero(counts < _SMALL * len(labels) / max(1, len(names)))
    return {
        "smallest": int(counts.min()),
        "largest": int(counts.max()),
        "small": [{"label": names[one], "count": int(counts[one])} for one in small[np.argsort(counts[small])]],
    }


def alike(
    beliefs: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"], names: Sequence[Any]
) -> list[dict[str, Any]]:
    """Pairs of classes that cannot be told apart: `auroc` of one's probability over the other's, and its interval.

    At 0.5 nothing tells the samples of one from those of the other. Either the classes are one, or their labels were
    given without regard to it. The interval is over samples: 95 %, by Hanley and McNeil's formula.
    """
    classes = beliefs.shape[1]
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, classes, dtype=beliefs.dtype).index_add_(0, labels, beliefs)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    # What is believed of the other, beside what is believed of the label: where the classes are one, as much.
    closeness = (means + means.T) / (means.diagonal().unsqueeze(1) + means.diagonal()).clamp(min=1e-12)
    pairs = torch.triu((closeness > 0.5) & (counts > 1) & (counts > 1).unsqueeze(1), diagonal=1).nonzero()
    members = _members(labels.numpy(), classes)
    found = []
    for one, other in pairs.tolist():
        own = [beliefs[members[label]][:, [one, other]].double().clamp(min=1e-12).log() for label in (one, other)]
        auroc, low, high = _auroc(*((ahead[:, 0] - ahead[:, 1]).numpy() for ahead in own))
        if auroc < _APART:
            found.append({"labels": [names[one], names[other]], "auroc": auroc, "low": low, "high": high})
    return sorted(found, key=lambda pair: pair["auroc"])


def several_in_one(
    features: Float[Tensor, "samples dim"], labels: Int[Tensor, "samples"], left_out: np.ndarray, names: Sequence[Any]
) -> list[dict[str, Any]]:
    """Classes whose samples fall into two groups with a gap between, and the share of the smaller group.

    The line between the groups is found on one half of the class and the gap on the other half, both ways, so that the
    many dimensions of features alone make no gap. `left_out` are samples that would make groups of their own: suspects
    and copies.
    """
    found = []
    for label, members in enumerate(_members(labels.cpu().numpy(), len(names), ~left_out)):
        if len(members) < _FEWEST:
            continue
        units = directions(widen(features[torch.from_numpy(members).to(features.device)])).cpu().double().numpy()
        halves = units[::2], units[1::2]
        shares = [_gap(one, other) for one, other in (halves, halves[::-1])]
        if min(shares) >= _LEAST_HALF:
            found.append({"label": names[label], "share": float(np.mean(shares)), "samples": len(members)})
    return sorted(found, key=lambda one: -one["share"])


def _gap(one: np.ndarray, other: np.ndarray) -> float:
    """The share of the smaller of two humps that a line through the clusters of `one` shows in `other`; 0 of one."""
    from sklearn.cluster import KMeans

    if len(np.unique(one, axis=0)) < 2:
        return 0.0
    low, high = KMeans(2, n_init=1, random_state=0).fit(one).cluster_centers_
    upper = fit_two_humps(other @ (high - low)).count / len(other)
    return min(upper, 1 - upper)


def _members(labels: np.ndarray, classes: int, kept: np.ndarray | None = None) -> list[np.ndarray]:
    """The rows of each class; of many, some that are spread evenly."""
    rows = np.arange(len(labels)) if kept is None else np.flatnonzero(kept)
    order = rows[np.argsort(labels[rows], kind="stable")]
    counts = np.bincount(labels[rows], minlength=classes)
    parts = np.split(order, counts.cumsum()[:-1])
    return [part[np.linspace(0, len(part) - 1, min(len(part), _MOST)).astype(int)] for part in parts]


def _auroc(higher: np.ndarray, lower: np.ndarray) -> tuple[float, float, float]:
    """How often a value of the first is above one of the second, ties counted half, and the interval of that."""
    from sklearn.metrics import roc_auc_score

    m, n = len(higher), len(lower)
    auroc = float(roc_auc_score(np.repeat([1, 0], [m, n]), np.concatenate([higher, lower])))
    first, second = auroc / (2 - auroc), 2 * auroc**2 / (1 + auroc)
    variance = (auroc * (1 - auroc) + (m - 1) * (first - auroc**2) + (n - 1) * (second - auroc**2)) / (m * n)
    half = _NORMAL * float(np.sqrt(max(variance, 0.0)))
    return auroc, max(0.0, auroc - half), min(1.0, auroc + half)


def wilson(count: int, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score."""
    from scipy.stats import binomtest

    found = binomtest(count, samples).proportion_ci(method="wilson")
    return float(found.low), float(found.high)
