"""The statistics of the page as functions of numpy arrays, without values that are not finite; numbers as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer

# A tail longer than this many times the bulk would squeeze the bulk into one bin.
_LONG_TAIL = 3.0
# Nothing is drawn beyond it: differences of larger numbers overflow.
FARTHEST = 1e100


@dataclass(frozen=True)
class Histogram:
    """Counts per bin for each named group; `below` and `above`: the outermost bins also hold the tails."""

    edges: np.ndarray
    counts: dict[str, np.ndarray]
    below: bool = False
    above: bool = False

    def shares(self, group: str) -> np.ndarray:
        """The share of the group in each bin; zero for an empty group."""
        counts = self.counts[group]
        shares: np.ndarray = counts / max(1, counts.sum())
        return shares


def histogram(
    values: Float[np.ndarray, "samples"], groups: Mapping[str, Bool[np.ndarray, "samples"]], bins: int = 40
) -> Histogram | None:
    """Counts of `values` in equal bins for each group (a mask); long tails are gathered in the outermost bins."""
    finite = np.isfinite(values)
    if not finite.any():
        return None
    values = np.clip(values, -FARTHEST, FARTHEST)
    seen = values[finite]
    smallest, low, high, largest = np.quantile(seen, [0.0, 0.005, 0.995, 1.0])
    bulk = high - low
    below = bool(bulk > 0 and low - smallest > _LONG_TAIL * bulk)
    above = bool(bulk > 0 and largest - high > _LONG_TAIL * bulk)
    start, stop = (low if below else smallest), (high if above else largest)
    if stop <= start:
        start, stop = np.nextafter(smallest - 0.5, -np.inf), np.nextafter(largest + 0.5, np.inf)
    edges = np.linspace(start, stop, bins + 1)
    if not (np.diff(edges) > 0).all():
        # The values differ by less than their type can divide: one bin holds them all.
        edges = np.array([np.nextafter(smallest, -np.inf), np.nextafter(largest, np.inf)])
    counts = {
        name: np.histogram(np.clip(values[mask & finite], edges[0], edges[-1]), edges)[0]
        for name, mask in groups.items()
    }
    return Histogram(edges, counts, below, above)


def ranked(
    hardness: Float[np.ndarray, "samples"], among: Bool[np.ndarray, "samples"] | None = None
) -> Integer[np.ndarray, "ranked"]:
    """Rows by falling hardness, ties in row order; rows that are NaN or not `among` are left out."""
    rows = np.flatnonzero(~np.isnan(hardness) if among is None else ~np.isnan(hardness) & among)
    return rows[np.argsort(-hardness[rows], kind="stable")]


def detection(hardness: Float[np.ndarray, "samples"], wrong: Bool[np.ndarray, "samples"]) -> tuple[float, float] | None:
    """AUROC and average precision of finding the wrong labels; None where one of the two groups is empty."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    seen = ~np.isnan(hardness)
    hardness, wrong = np.nan_to_num(hardness[seen]), wrong[seen]
    if wrong.all() or not wrong.any():
        return None
    return float(roc_auc_score(wrong, hardness)), float(average_precision_score(wrong, hardness))


def means_by_class(
    codes: Integer[np.ndarray, "samples"], values: Float[np.ndarray, "samples"], classes: int
) -> tuple[Integer[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
    """Samples and mean value of each class; the mean of an empty class is NaN."""
    used = (codes >= 0) & np.isfinite(values)
    counts = np.bincount(codes[used], minlength=classes)
    sums = np.bincount(codes[used], weights=values[used], minlength=classes)
    return counts, np.divide(sums, counts, out=np.full(classes, np.nan), where=counts > 0)


def pair_counts(
    rows: Integer[np.ndarray, "samples"], columns: Integer[np.ndarray, "samples"], classes: int
) -> tuple[Integer[np.ndarray, "pairs"], Integer[np.ndarray, "pairs"], Integer[np.ndarray, "pairs"]]:
    """How often each (row, column) pair of classes occurs: a confusion matrix that stays small for many classes."""
    used = (rows >= 0) & (columns >= 0)
    pairs, counts = np.unique(rows[used].astype(np.int64) * classes + columns[used], return_counts=True)
    return pairs // max(1, classes), pairs % max(1, classes), counts


def number(value: float | int | None) -> str:
    """Four significant digits; nothing for a value that is missing or not finite."""
    return "" if value is None or not math.isfinite(value) else f"{value:.4g}"
