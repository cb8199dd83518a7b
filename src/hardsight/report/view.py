"""What a record says, as plain values: rankings, statistics, numbers as text. No HTML and no figure is made here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from hardsight.report.reading import Labels, Run, Score

# A tail longer than this many times the bulk would squeeze the bulk into one bin.
_LONG_TAIL = 3.0
# Nothing is drawn beyond it: differences of larger numbers overflow.
FARTHEST = 1e100
HISTOGRAMS = 12
AVH = ("avh", "angular_visual_hardness")


@dataclass(frozen=True)
class ScoreLine:
    """One row of the table of scores."""

    score: Score
    auroc: float | None
    average_precision: float | None
    quantiles: list[float] | None
    missing: int


class Confusion(NamedTuple):
    """Counts of (given, predicted) pairs of classes, as three parallel arrays."""

    given: np.ndarray
    predicted: np.ndarray
    counts: np.ndarray


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
    given: Integer[np.ndarray, "samples"], predicted: Integer[np.ndarray, "samples"], classes: int
) -> Confusion:
    """How often each pair of classes occurs: a confusion matrix that stays small for many classes."""
    used = (given >= 0) & (predicted >= 0)
    pairs, counts = np.unique(given[used].astype(np.int64) * classes + predicted[used], return_counts=True)
    return Confusion(pairs // max(1, classes), pairs % max(1, classes), counts)


def number(value: float | int | None) -> str:
    """Four significant digits; nothing for a value that is missing or not finite."""
    return "" if value is None or not math.isfinite(value) else f"{value:.4g}"


class View:
    """A record as a page shows it; each part is read and computed when it is first asked for."""

    def __init__(self, run: Run) -> None:
        self.run, self.samples = run, run.samples
        self.issues: Mapping[str, Any] = run.section("results", "label_issues")

    @cached_property
    def labels(self) -> Labels:
        return self.samples.labels(self.run.class_names)

    @cached_property
    def classes(self) -> int:
        """The number of classes; 0 where it is not known."""
        return len(self.run.class_names) or self.samples.classes or len(self.labels.values)

    @cached_property
    def wrong(self) -> np.ndarray | None:
        """Where the given label is not the true one; None where no truth is known."""
        codes = self.labels.codes
        return self.known & (codes["label"] != codes["clean_label"]) if self.known.any() else None

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        return {} if self.wrong is None else {"intact": self.known & ~self.wrong, "flipped": self.wrong}

    @cached_property
    def known(self) -> np.ndarray:
        """Where both the given and the true label are known."""
        given, true = self.labels.codes.get("label"), self.labels.codes.get("clean_label")
        return np.zeros(0, bool) if given is None or true is None else (given >= 0) & (true >= 0)

    @cached_property
    def hardness(self) -> Score | None:
        directed = (score for score in self.samples.scores if score.direction and score.name != "suspicion")
        return self.samples.score(*AVH, "loss") or next(directed, None)

    @cached_property
    def suspicion(self) -> Score | None:
        """The score that ranks wrong labels: the audit's own, else the first it ranked by, else the hardness."""
        if "label" not in self.labels.codes or self.samples.against_predictions:
            return None
        return self.samples.score("suspicion", str(self.ranked_by)) or self.hardness

    @cached_property
    def ranked_by(self) -> Any:
        """The first score that an audit ranked by; older records name it as the best."""
        names = self.issues.get("ranked_by")
        return names[0] if isinstance(names, list) and names else self.issues.get("best")

    @cached_property
    def agreed(self) -> np.ndarray | None:
        """Where the model predicts the given label; None where that is unknown, never so, or not part of the scores."""
        given, predicted = self.labels.codes.get("label"), self.labels.codes.get("predicted")
        if given is None or predicted is None or self.samples.against_predictions:
            return None
        agreed = (given == predicted) & (given >= 0)
        return agreed if agreed.any() else None

    @cached_property
    def suspect_rows(self) -> np.ndarray:
        """The labelled samples, most suspicious first; unlabelled samples are excluded."""
        given = self.labels.codes.get("label")
        return self._ranked(self.suspicion, None if given is None else given >= 0)

    @cached_property
    def hardest_rows(self) -> np.ndarray:
        """The samples whose label the model agrees with, hardest first."""
        return self._ranked(self.hardness, self.agreed)

    def _ranked(self, score: Score | None, among: np.ndarray | None) -> np.ndarray:
        if score is None:
            return np.zeros(0, np.int64)
        return ranked(score.sign * self.samples.values(score.name), among)

    @property
    def expected_column(self) -> str:
        return "expected" if "expected" in self.labels.codes else "predicted"

    def codes(self, column: str) -> np.ndarray:
        """Each sample's class in this column, as its place in `labels`; -1 where there is none."""
        found = self.labels.codes.get(column)
        return np.full(self.samples.rows, -1) if found is None else found

    @cached_property
    def estimated(self) -> int | None:
        """How many labels an audit expects to be wrong; None where nobody estimated it."""
        estimated = self.issues.get("estimated")
        return estimated if isinstance(estimated, int) and estimated >= 0 else None

    @property
    def suspects_found(self) -> int:
        """How many of the suspects are really wrong: of those that are estimated, else of as many as are wrong."""
        if self.wrong is None:
            return 0
        believed = int(self.wrong.sum()) if self.estimated is None else self.estimated
        return int(self.wrong[self.suspect_rows[:believed]].sum())

    @cached_property
    def lines(self) -> list[ScoreLine]:
        """The table of scores, best AUROC first, with those that only the results of an audit name."""
        recorded = dict(self.run.section("results", "label_issues", "scores"))
        lines = [
            self._line(score, self.samples.values(score.name), recorded.pop(score.name, None))
            for score in self.samples.scores
        ]
        lines += [self._line(Score(name, name, None), np.zeros(0), found) for name, found in recorded.items()]
        return sorted(lines, key=lambda line: -(line.auroc or 0.0))

    def _line(self, score: Score, values: np.ndarray, recorded: Any) -> ScoreLine:
        numbers = recorded if isinstance(recorded, Mapping) else {}
        auroc, precision = (
            float(one) if isinstance(one, int | float) and math.isfinite(one) else None
            for one in (numbers.get("auroc"), numbers.get("average_precision"))
        )
        if not numbers and self.groups and len(values) and score.direction:
            flipped, known = self.groups["flipped"], self.known
            auroc, precision = detection(score.sign * values[known], flipped[known]) or (None, None)
        finite = values[np.isfinite(values)]
        return ScoreLine(
            score=score,
            auroc=auroc,
            average_precision=precision,
            quantiles=np.quantile(finite, [0.0, 0.5, 1.0]).tolist() if len(finite) else None,
            missing=len(values) - len(finite),
        )

    @property
    def ranking_line(self) -> ScoreLine | None:
        return next((line for line in self.lines if len(self.suspect_rows) and line.score == self.suspicion), None)

    @property
    def drawable(self) -> list[Score]:
        """The scores worth a histogram: not a suspicion, which is a rank, spread evenly over the samples."""
        return [line.score for line in self.lines if line.quantiles and line.score.name != "suspicion"]

    @cached_property
    def histograms(self) -> list[tuple[Score, Histogram]]:
        """The histograms of the scores that matter most, in the order of the samples' columns."""
        drawable = self.drawable
        importance = dict.fromkeys(score for score in (self.suspicion, self.hardness, *drawable) if score in drawable)
        kept = list(importance)[:HISTOGRAMS]
        groups = self.groups or {"all": np.ones(self.samples.rows, bool)}
        chosen = [score for score in self.samples.scores if score in kept]
        counted = ((score, histogram(self.samples.values(score.name), groups)) for score in chosen)
        return [(score, found) for score, found in counted if found]

    @cached_property
    def confusion(self) -> Confusion | None:
        given, predicted = self.labels.codes.get("label"), self.labels.codes.get("predicted")
        if given is None or predicted is None or not len(given):
            return None
        pairs = pair_counts(given, predicted, len(self.labels.values))
        return pairs if len(pairs.counts) else None

    @property
    def disagreements(self) -> int:
        pairs = self.confusion
        return 0 if pairs is None else int(pairs.counts[pairs.given != pairs.predicted].sum())
