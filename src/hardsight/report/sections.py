"""The sections of a record's page, each with its text and what it draws."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.advice import Advice, advise_folder
from hardsight.records import AUDIT_FILE
from hardsight.report import figures
from hardsight.report.gallery import PageView, Ranking
from hardsight.report.numbers import Histogram, number
from hardsight.report.page import Block, Cell, Column, Picture, Section, Table, shortened
from hardsight.report.reading import Score
from hardsight.report.rounds import ROUNDS
from hardsight.report.view import AVH, ClassMeans, Confusion, Plane, ScoreLine, View

_CONFUSIONS = 12
_LONGEST_VALUE = 300


def _suspects_text(view: PageView, ranking: Ranking) -> str:
    text = (
        f"Given label → label the model expects: {_held(ranking)} ranked by {ranking.score.title} "
        f"({ranking.score.reading}). Decide with the buttons, or with the keys k, r, d and u on a card; Enter shows it "
        "large. What you decide is downloaded as actions.csv, for hardsight audit --apply."
    )
    if view.wrong is not None:
        right = sum(bool(card.flipped) for card in ranking.cards)
        text += f" The true labels are known here: {right:,} of these {len(ranking.cards):,} were really flipped."
    return text


def _hardest_text(view: PageView, ranking: Ranking) -> str:
    text = f"{_held(ranking).capitalize()} ranked by {ranking.score.title}: {ranking.score.reading}"
    text += _chance(view, ranking.score)
    if view.samples.against_predictions:
        return text + " It is measured against the model's own prediction; labels are not used."
    if view.agreed is not None:
        text += " Only samples whose label the model agrees with: most are hard to see rather than wrongly labelled."
    return text


def _held(ranking: Ranking) -> str:
    """How many samples of a ranking the page holds, and of how many it has no picture for want of room."""
    text = f"the first {len(ranking.cards):,} of {ranking.total:,} samples"
    if 0 < ranking.pictured < len(ranking.cards):
        text += f", {ranking.pictured:,} of them with a picture,"
    return text


def _histograms_text(view: View, histograms: list[tuple[Score, Histogram]]) -> str:
    text = (
        f"Each curve shows which share of its group falls into each bin, outliers in the outermost one; "
        f"{len(histograms)} of {len(view.drawable)} scores."
    )
    if view.wrong is not None:
        text += " The further apart flipped (dashed) and intact labels are, the better a score finds wrong labels."
    return text


def _histograms(view: View, histograms: list[tuple[Score, Histogram]]) -> list[Block]:
    def picture(score: Score, counted: Histogram) -> Picture:
        groups = " and ".join(f"{name} labels" if name != "all" else "all samples" for name in counted.counts)
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in score.name) or "_"
        words = f"Histogram of {score.title} for {groups}; {score.reading}."
        return Picture(f"histogram-{name}", figures.draw_histogram(score, counted), words)

    return [picture(score, counted) for score, counted in histograms]


def _plane_text(view: View, plane: Plane) -> str:
    return (
        f"At most {figures.MOST_POINTS:,} samples spread over the table, a point each. Top left is hard and unsure, "
        "bottom right easy and sure; away from the diagonal the angle says something that the probability does not. "
        "The dotted line is AVH's chance level, one over the number of classes."
    )


def _plane(view: View, plane: Plane) -> list[Block]:
    chance = 1 / view.classes if view.classes else None
    words = f"{plane.up.title} against {plane.across.title}, one point per sample."
    return [Picture("plane", figures.draw_plane(*plane, view.groups, chance), words, wide=True)]


def _scores_text(view: View, lines: list[ScoreLine]) -> str:
    text = "What each score column of the table holds, and in which direction to read it."
    if any(line.auroc is not None for line in lines):
        text += (
            " How well it ranks wrong labels above right ones: AUROC 1 is perfect, 0.5 is chance; average precision at "
            "chance is the share of flipped labels. The marked row ranks the suspects above."
        )
    if "never_learned" in view.samples and "forgotten" in view.samples:
        # Some scores combine the two in one number.
        never, forgotten = (int((view.samples.values(name) > 0).sum()) for name in ("never_learned", "forgotten"))
        text += f" Over the training {never:,} samples were never learned, {forgotten:,} were learned and forgotten."
    return text


def _scores(view: View, lines: list[ScoreLine]) -> list[Block]:
    quantiles = [line.quantiles or (None, None, None) for line in lines]
    columns = [
        Column("Score", [Cell(line.score.title, code=line.score.name) for line in lines], "name"),
        Column("Larger is", [line.score.direction or "?" for line in lines], ""),
        Column("Range", [line.score.range or "" for line in lines], "range"),
        Column("AUROC", [number(line.auroc) for line in lines]),
        Column("Average precision", [number(line.average_precision) for line in lines]),
        Column("Smallest", [number(smallest) for smallest, _, _ in quantiles]),
        Column("Median", [number(median) for _, median, _ in quantiles]),
        Column("Largest", [number(largest) for _, _, largest in quantiles]),
        Column("Not finite", [f"{line.missing or ''}" for line in lines]),
    ]
    marked = lines.index(view.ranking_line) if view.ranking_line and any(columns[3].cells) else None
    return [Table("Table of scores", columns, marked=marked)]


def curves(view: View) -> dict[str, np.ndarray]:
    """The numeric columns of the epochs, `epoch` among them; empty where nothing can be drawn."""
    table = view.run.epochs
    if table is None or not table.num_rows:
        return {}
    # A round counts as an epoch does, and is no measurement of it.
    fields = [field for field in table.schema if field.name != "round"]
    numeric = [f.name for f in fields if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)]
    columns = {name: table.column(name).cast(pa.float64()).to_numpy() for name in numeric}
    columns = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    return columns if set(columns) - {"epoch"} else {}


def _curves(view: View, columns: dict[str, np.ndarray]) -> list[Block]:
    measured = {name: values for name, values in columns.items() if name != "epoch"}
    epochs = columns.get("epoch", np.arange(1, 1 + len(next(iter(columns.values())))))
    drawn = figures.draw_curves(measured, epochs)
    return [Picture("curves", drawn, f"Learning curves over {len(epochs)} epochs.", wide=True)]


def _classes_text(view: View, by_class: ClassMeans) -> str:
    score, shown = by_class.score, int((by_class.counts > 0).sum())
    return (
        f"{score.title}: mean over the samples of each class, hardest class first ({score.reading}); the "
        f"{min(shown, figures.MOST_CLASSES)} hardest of {shown:,} classes{_chance(view, score)}"
    )


def _classes(view: View, by_class: ClassMeans) -> list[Block]:
    chance = 1 / view.classes if view.classes and by_class.score.name in AVH else None
    drawn = figures.draw_classes(by_class.score, view.labels.names, by_class.counts, by_class.means, chance)
    return [Picture("classes", drawn, f"Mean {by_class.score.title} by class, hardest class first.", wide=True)]


def _confusion(view: View, pairs: Confusion) -> list[Block]:
    names, blocks = view.labels.names, list[Block]()
    if len(names) <= figures.MOST_CLASSES:
        drawn = figures.draw_confusion(pairs.given, pairs.predicted, pairs.counts, names)
        blocks.append(Picture("confusion", drawn, "Matrix of given label against predicted label."))
    totals = np.bincount(pairs.given, weights=pairs.counts, minlength=len(names))
    apart = np.flatnonzero(pairs.given != pairs.predicted)
    first = apart[np.argsort(-pairs.counts[apart], kind="stable")][:_CONFUSIONS]
    given, predicted, counts = (part[first].tolist() for part in pairs)
    columns = [
        Column("Given", [shortened(names[at]) for at in given], "name"),
        Column("Predicted", [shortened(names[at]) for at in predicted], "name"),
        Column("Samples", [f"{count:,}" for count in counts]),
        Column("Of the given", [f"{count / totals[at]:.1%}" for at, count in zip(given, counts, strict=True)]),
    ]
    if len(first):
        cells = [f"{row}-{column}" for row, column in zip(given, predicted, strict=True)]
        blocks.append(Table("Most frequent disagreements", columns, cells=cells))
    return blocks


def _table(view: PageView, cards: Any) -> list[Block]:
    held = list(cards.values())
    columns = [
        Column("id", [card.id for card in held], "name"),
        Column("path", [card.path for card in held], "name"),
        Column("given", [card.given for card in held], "class"),
        Column(view.expected_column, [card.expected for card in held], "class"),
        Column("true", [card.true for card in held], "class"),
        *(
            Column(score.name, [number(card.values[at]) for card in held])
            for at, score in enumerate(view.samples.scores)
        ),
        Column("reasons", [card.reasons for card in held], "reasons"),
    ]
    return [Table("Table of samples", columns, tall=True, search=True)]


def _run(view: View, shown: bool) -> list[Block]:
    details, results = view.run.details, dict(view.run.section("results"))
    if view.lines and view.issues:
        # The scores' own numbers have a table of their own.
        results["label_issues"] = {key: value for key, value in view.issues.items() if key != "scores"}
    run = {key: details.get(key) for key in ("kind", "status", "created", "seed", "device")}
    parts = {
        "Run": run,
        "Results": results,
        "Configuration": view.run.section("config"),
        "Versions": view.run.section("versions"),
    }
    blocks: list[Block] = []
    for title, rows in ((title, _flat(values)) for title, values in parts.items()):
        values = [Cell("", code=text) for text in rows.values()]
        if rows:
            blocks.append(Table(title, [Column(title, list(rows), "name"), Column("Value", values, "")]))
    return blocks


def _advice(view: View) -> Advice | None:
    """Of an audit's folder; an older one, without findings, has none."""
    if (view.run.folder / AUDIT_FILE).is_file():
        with contextlib.suppress(ValueError, OSError):
            return advise_folder(view.run.folder)
    return None


def _advice_table(view: View, advice: Advice) -> list[Block]:
    names, lines = zip(*advice.lines(), strict=True)
    return [Table("Table of advice", [Column("What", names, "name"), Column("Found", lines, "reasons")])]


SECTIONS: list[Section[PageView]] = [
    ROUNDS,
    Section(
        "suspects",
        "Suspected wrong labels",
        lambda view: view.suspects,
        _suspects_text,
        lambda view, ranking: [ranking],
    ),
    Section(
        "advice",
        "Advice",
        _advice,
        lambda view, advice: "Losses and their gains are those of the studies' rows in the nearest conditions.",
        _advice_table,
    ),
    Section("hardest", "Hardest samples", lambda view: view.hardest, _hardest_text, lambda view, ranking: [ranking]),
    Section("histograms", "Histograms", lambda view: view.histograms, _histograms_text, _histograms, "plots"),
    Section("plane", "Hardness and confidence", lambda view: view.plane, _plane_text, _plane),
    Section("scores", "Scores", lambda view: view.lines, _scores_text, _scores),
    Section(
        "curves",
        "Learning curves",
        curves,
        lambda view, columns: (
            "One value per epoch. Where the training curve still improves and the test curve turns, the "
            "model has begun to memorise its data, wrong labels included."
        ),
        _curves,
    ),
    Section("classes", "Hardness by class", lambda view: view.by_class, _classes_text, _classes),
    Section(
        "confusion",
        "Given and predicted labels",
        lambda view: view.confusion,
        lambda view, pairs: (
            "Rows are the given labels, columns the model's; the table lists the most frequent disagreements. A cell, "
            "or a row of the table, shows its samples above."
        ),
        _confusion,
        "beside",
    ),
    Section(
        "samples",
        "Table of samples",
        lambda view: view.cards,
        lambda view, cards: f"Every sample that this page holds; {view.samples.path.name} holds the rest.",
        _table,
    ),
    Section("run", "How this run was made", lambda view: True, lambda view, shown: "", _run, "columns"),
]


def _chance(view: View, score: Score) -> str:
    """The end of a sentence about a score: AVH's chance level."""
    if score.name not in AVH or not view.classes:
        return "."
    return f"; AVH's chance level is 1/{view.classes:,} = {1 / view.classes:.3g}."


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as names and texts: `optimizer.lr` and its value."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            text = _plain(value)
            found[f"{prefix}{key}"] = text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + " …"
    return found


def _plain(value: Any) -> str:
    """A list as its entries, without Python's quotes; numbers with four digits."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return number(value) if isinstance(value, float) else str(value)
