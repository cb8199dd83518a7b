"""What a page shows of a run, as plain values: rankings, statistics, sentences. No HTML and no figure is made here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardsight.report.cards import CARDS, Card, Dealer, Ranking, known_labels, ranked_rows, wrong_labels
from hardsight.report.numbers import Histogram, detection, histogram, means_by_class, pair_counts
from hardsight.report.reading import Labels, Run, Samples, Score, read_run

TABLE_ROWS = 200
HISTOGRAMS = 12


@dataclass(frozen=True)
class ScoreLine:
    """One row of the table of scores."""

    score: Score
    auroc: float | None
    average_precision: float | None
    quantiles: list[float] | None
    missing: int
    best: bool


@dataclass(frozen=True)
class Confusion:
    """Counts of (given, predicted) pairs of classes, as three parallel arrays."""

    given: np.ndarray
    predicted: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class View:
    """Everything a page says about a run."""

    run: Run
    labels: Labels | None
    classes: int
    wrong: np.ndarray | None
    groups: dict[str, np.ndarray]
    suspects: Ranking | None
    estimated: int | None
    suspects_found: int
    hardest: Ranking | None
    hardest_agreed: bool
    lines: list[ScoreLine]
    histograms: list[tuple[Score, Histogram]]
    plane: tuple[Score, np.ndarray, Score, np.ndarray] | None
    by_class: tuple[Score, np.ndarray, np.ndarray] | None
    confusion: Confusion | None
    table: list[Card]

    @property
    def ranking_line(self) -> ScoreLine | None:
        """What is known about the score that ranks the suspects."""
        if self.suspects is None:
            return None
        return next((line for line in self.lines if line.score == self.suspects.score), None)


def samples_shown(run: Path | str) -> list[str]:
    """The ids of the samples a page would show, as text: those worth a row in `thumbnails.parquet`."""
    read = read_run(run)
    if read.samples is None:
        return []
    labels = read.samples.labels(read.class_names)
    suspects = _suspect_rows(read.samples, _suspicion(read, read.samples, labels), labels)
    hardest = ranked_rows(read.samples, _hardness(read.samples), _agreed(read.samples, labels))
    return list(dict.fromkeys(read.samples.texts("id", _first_of(CARDS, suspects, hardest))))


def look_at(run: Run) -> View:
    """Read what the page needs of a record, one column after the other."""
    samples = run.samples
    if samples is None:
        return View(run, None, 0, None, {}, None, None, 0, None, False, [], [], None, None, None, [])
    labels = samples.labels(run.class_names)
    classes = len(run.class_names) or samples.classes or len(labels.values)
    wrong = wrong_labels(labels)
    groups = {"intact": known_labels(labels) & ~wrong, "flipped": wrong} if wrong is not None else {}
    dealer = Dealer(samples, labels)
    suspicion, hardness = _suspicion(run, samples, labels), _hardness(samples)
    suspect_rows = _suspect_rows(samples, suspicion, labels)
    agreed = _agreed(samples, labels)
    hardest_rows = ranked_rows(samples, hardness, agreed)
    table_rows = _first_of(TABLE_ROWS, suspect_rows, hardest_rows)
    histograms, lines = _scores(run, samples, groups)
    estimated = _estimated(run)
    believed = estimated if estimated is not None or wrong is None else int(wrong.sum())
    return View(
        run=run,
        labels=labels,
        classes=classes,
        wrong=wrong,
        groups=groups,
        suspects=dealer.ranking(suspicion, suspect_rows),
        estimated=estimated,
        suspects_found=0 if wrong is None else int(wrong[suspect_rows[:believed]].sum()),
        hardest=dealer.ranking(hardness, hardest_rows),
        hardest_agreed=agreed is not None,
        lines=lines,
        histograms=_main(histograms, [suspicion, hardness, *(line.score for line in lines)]),
        plane=_plane(samples),
        by_class=_by_class(samples, labels, hardness),
        confusion=_confusion(labels),
        table=dealer.cards(table_rows, [score.name for score in samples.scores]),
    )


def _suspect_rows(samples: Samples, suspicion: Score | None, labels: Labels) -> np.ndarray:
    """The labelled samples, most suspicious first: what has no label has no wrong one."""
    given = labels.codes.get("label")
    return ranked_rows(samples, suspicion, None if given is None else given >= 0)


def _agreed(samples: Samples, labels: Labels) -> np.ndarray | None:
    """Where the model says what the label says; None where that is unknown, never so, or has no part in the scores."""
    given, predicted = labels.codes.get("label"), labels.codes.get("predicted")
    if given is None or predicted is None or samples.against_predictions:
        return None
    agreed = (given == predicted) & (given >= 0)
    return agreed if agreed.any() else None


def _hardness(samples: Samples) -> Score | None:
    directed = [score for score in samples.scores if score.direction and score.name != "suspicion"]
    return samples.score("avh", "angular_visual_hardness", "loss") or next(iter(directed), None)


def _suspicion(run: Run, samples: Samples, labels: Labels) -> Score | None:
    """The score that ranks wrong labels: the audit's own, else the first it ranked by, else the hardness."""
    if "label" not in labels.codes or samples.against_predictions:
        return None
    return samples.score("suspicion", str(_ranked_by(run))) or _hardness(samples)


def _ranked_by(run: Run) -> Any:
    """The first score that an audit ranked by; older records name it as the best."""
    said = run.section("results", "label_issues")
    names = said.get("ranked_by")
    return names[0] if isinstance(names, list) and names else said.get("best")


def _estimated(run: Run) -> int | None:
    """How many labels an audit expects to be wrong; None where nobody estimated it."""
    said = run.section("results", "label_issues").get("estimated")
    return said if isinstance(said, int) and said >= 0 else None


def _first_of(count: int, *rankings: np.ndarray) -> np.ndarray:
    """The first rows of each ranking, none twice."""
    rows = np.concatenate([rows[:count] for rows in rankings])
    return np.array(list(dict.fromkeys(rows.tolist())), np.int64)


def _scores(
    run: Run, samples: Samples, groups: Mapping[str, np.ndarray]
) -> tuple[list[tuple[Score, Histogram]], list[ScoreLine]]:
    """Histogram and table line of every score, and the lines of scores that only the results name."""
    recorded = dict(run.section("results", "label_issues", "scores"))
    best = _ranked_by(run)
    everyone = {"all": np.ones(samples.rows, bool)}
    histograms, lines = [], []
    for score in samples.scores:
        values = samples.values(score.name)
        made = histogram(values, dict(groups) or everyone)
        # A suspicion is a rank, spread evenly over the samples: its histogram says nothing.
        if made is not None and score.name != "suspicion":
            histograms.append((score, made))
        lines.append(_line(score, values, recorded.pop(score.name, None), groups, best))
    lines += [_line(Score(name, name, None), np.zeros(0), numbers, groups, best) for name, numbers in recorded.items()]
    if best is None and any(line.auroc is not None for line in lines):
        top = max(lines, key=lambda line: line.auroc or 0.0)
        lines[lines.index(top)] = ScoreLine(**{**vars(top), "best": True})
    return histograms, sorted(lines, key=lambda line: -(line.auroc or 0.0))


def _main(
    histograms: list[tuple[Score, Histogram]], importance: Sequence[Score | None]
) -> list[tuple[Score, Histogram]]:
    """The histograms of the scores that matter most, in the order of the table; a page of thirty is not looked at."""
    drawn = {score for score, _ in histograms}
    kept = [score for score in dict.fromkeys(importance) if score in drawn][:HISTOGRAMS]
    return [(score, counted) for score, counted in histograms if score in kept]


def _line(score: Score, values: np.ndarray, recorded: Any, groups: Mapping[str, np.ndarray], best: Any) -> ScoreLine:
    numbers = recorded if isinstance(recorded, Mapping) else {}
    auroc, precision = _measured(numbers.get("auroc")), _measured(numbers.get("average_precision"))
    if not numbers and groups and len(values) and score.direction:
        known = groups["flipped"] | groups["intact"]
        auroc, precision = detection(score.sign * values[known], groups["flipped"][known]) or (None, None)
    finite = values[np.isfinite(values)]
    return ScoreLine(
        score=score,
        auroc=auroc,
        average_precision=precision,
        quantiles=np.quantile(finite, [0.0, 0.5, 1.0]).tolist() if len(finite) else None,
        missing=len(values) - len(finite),
        best=score.name == best,
    )


def _measured(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _plane(samples: Samples) -> tuple[Score, np.ndarray, Score, np.ndarray] | None:
    across = samples.score("confidence", "model_confidence")
    up = samples.score("avh", "angular_visual_hardness")
    if across is None or up is None:
        return None
    x, y = samples.values(across.name), samples.values(up.name)
    return (across, x, up, y) if (np.isfinite(x) & np.isfinite(y)).any() else None


def _by_class(samples: Samples, labels: Labels, score: Score | None) -> tuple[Score, np.ndarray, np.ndarray] | None:
    codes = labels.codes.get("label", labels.codes.get("predicted"))
    if score is None or codes is None:
        return None
    counts, means = means_by_class(codes, samples.values(score.name), len(labels.values))
    return (score, counts, means) if counts.any() else None


def _confusion(labels: Labels) -> Confusion | None:
    given, predicted = labels.codes.get("label"), labels.codes.get("predicted")
    if given is None or predicted is None or not len(given):
        return None
    pairs = Confusion(*pair_counts(given, predicted, len(labels.values)))
    return pairs if len(pairs.counts) else None
