"""Single samples as a page shows them: which come first by a score, and what their cards say."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardsight.report.numbers import ranked
from hardsight.report.reading import Labels, Samples, Score

CARDS = 24


@dataclass(frozen=True)
class Card:
    """One sample as a page shows it; `flipped` is None where the truth is not known, `reasons` are an audit's."""

    id: str
    given: str
    expected: str
    true: str
    flipped: bool | None
    values: tuple[float, ...]
    path: str = ""
    reasons: str = ""

    @property
    def agreed(self) -> bool:
        return self.given == self.expected


@dataclass(frozen=True)
class Ranking:
    """The first samples by one score, out of `total`."""

    score: Score
    cards: list[Card]
    total: int


class Dealer:
    """Makes cards of rows, and rankings of cards."""

    def __init__(self, samples: Samples, labels: Labels) -> None:
        self.samples, self.labels = samples, labels
        self.known, self.wrong = known_labels(labels), wrong_labels(labels)

    def ranking(self, score: Score | None, rows: np.ndarray) -> Ranking | None:
        """The first of these rows as cards; None where there is nothing to rank."""
        if score is None or not len(rows):
            return None
        return Ranking(score, self.cards(rows[:CARDS], [score.name]), len(rows))

    def cards(self, rows: np.ndarray, scores: Sequence[str]) -> list[Card]:
        """One card a row, with the values of these scores."""
        if not len(rows):
            return []
        names = {column: self._names(column, rows) for column in ("label", "clean_label")}
        expected = self._names("expected" if "expected" in self.labels.codes else "predicted", rows)
        values = [self.samples.values(name)[rows] for name in scores]
        paths, reasons = (self._texts(column, rows) for column in ("path", "reasons"))
        return [
            Card(
                id=identity,
                given=names["label"][at],
                expected=expected[at],
                true=names["clean_label"][at],
                flipped=bool(self.wrong[row]) if self.wrong is not None and self.known[row] else None,
                values=tuple(float(column[at]) for column in values),
                path=paths[at],
                reasons=reasons[at],
            )
            for at, (row, identity) in enumerate(zip(rows, self.samples.texts("id", rows), strict=True))
        ]

    def _texts(self, column: str, rows: np.ndarray) -> list[str]:
        return self.samples.texts(column, rows) if column in self.samples else [""] * len(rows)

    def _names(self, column: str, rows: np.ndarray) -> list[str]:
        if column not in self.labels.codes:
            return [""] * len(rows)
        return [self.labels.names[code] if code >= 0 else "" for code in self.labels.codes[column][rows]]


def ranked_rows(samples: Samples, score: Score | None, among: np.ndarray | None = None) -> np.ndarray:
    """Rows by falling hardness; none without a score."""
    if score is None:
        return np.zeros(0, np.int64)
    return ranked(score.sign * samples.values(score.name), among)


def known_labels(labels: Labels) -> np.ndarray:
    """Where both the given and the true label are known."""
    given, true = labels.codes.get("label"), labels.codes.get("clean_label")
    if given is None or true is None:
        return np.zeros(0, bool)
    return (given >= 0) & (true >= 0)


def wrong_labels(labels: Labels) -> np.ndarray | None:
    """Where the given label is not the true one; None where no truth is known."""
    known = known_labels(labels)
    if not known.any():
        return None
    return known & (labels.codes["label"] != labels.codes["clean_label"])
