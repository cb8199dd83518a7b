"""The sections of a record's page: functions that give one each, or None where the record has nothing for it."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.advice import advise_folder
from hardsight.records import AUDIT_FILE
from hardsight.report import figures
from hardsight.report.gallery import PageView, Ranking
from hardsight.report.numbers import means_by_class, number
from hardsight.report.page import Block, Cell, Column, Picture, Section, Table, shortened
from hardsight.report.reading import Score
from hardsight.report.view import AVH

_CONFUSIONS = 12
_LONGEST_VALUE = 300
# Columns of a self-training's rounds, and what they are called.
_SHARES = {
    "portion": "Asked for",
    "accuracy": "Accuracy",
    "test_accuracy": "Test accuracy",
    "agreement": "Predicted as before",
    "agreement_with_first": "As at first",
    "changed_labels": "Labels changed",
    "target_confidence": "Mean confidence",
    "true_positive_rate": "Rightly selected",
}
_COUNTS = {"classes_predicted": "Classes predicted", "selected": "Selected"}


def rounds(view: PageView) -> Section | None:
    """How a self-training did, and how much its predictions still changed."""
    rows = [] if view.run.rounds is None else view.run.rounds.to_pylist()
    if not rows:
        return None
    text = (
        "One row for each pass over the target domain: before the first round, and after each. Where self-training "
        "goes well, nine tenths or more are soon predicted as before, most as at first, and few pseudo-labels change."
    )
    if any(row.get(name) is not None for row in rows for name in ("accuracy", "test_accuracy")):
        text += " Accuracies are measured with labels that are not used in training."
    columns = [
        Column(title, [f"{row[name]:{form}}" if isinstance(row.get(name), int | float) else "" for row in rows])
        for names, form in (({"round": "Round"}, ","), (_SHARES, ".1%"), (_COUNTS, ","))
        for name, title in names.items()
    ]
    return Section("rounds", "Rounds of self-training", text, [Table("Rounds of self-training", columns)])


def suspects(view: PageView) -> Section | None:
    """The samples whose labels are probably wrong, to be decided on."""
    ranking = view.suspects
    if ranking is None:
        return None
    text = (
        f"Given label → label the model expects: {_held(ranking)} ranked by {ranking.score.title} "
        f"({ranking.score.reading}). Decide with the buttons, or with the keys k, r, d and u on a card; Enter shows it "
        "large. What you decide is downloaded as actions.csv, for hardsight audit --apply."
    )
    if view.wrong is not None:
        right = sum(bool(card.flipped) for card in ranking.cards)
        text += f" The true labels are known here: {right:,} of these {len(ranking.cards):,} were really flipped."
    return Section("suspects", "Suspected wrong labels", text, [ranking])


def advice(view: PageView) -> Section | None:
    """What an audit's folder says about the noise and what to train with; an older one, without findings, has none."""
    if not (view.run.folder / AUDIT_FILE).is_file():
        return None
    with contextlib.suppress(ValueError, OSError):
        names, lines = zip(*advise_folder(view.run.folder).lines(), strict=True)
        table = Table("Table of advice", [Column("What", names, "name"), Column("Found", lines, "reasons")])
        text = "Losses and their gains are those of the studies' rows in the nearest conditions."
        return Section("advice", "Advice", text, [table])
    return None


def hardest(view: PageView) -> Section | None:
    """The hardest samples whose labels the model agrees with."""
    ranking = view.hardest
    if ranking is None:
        return None
    text = f"{_held(ranking).capitalize()} ranked by {ranking.score.title}: {ranking.score.reading}"
    text += _chance(view, ranking.score)
    if view.samples.against_predictions:
        text += " It is measured against the model's own prediction; labels are not used."
    elif view.agreed is not None:
        text += " Only samples whose label the model agrees with: most are hard to see rather than wrongly labelled."
    return Section("hardest", "Hardest samples", text, [ranking])


def _held(ranking: Ranking) -> str:
    """How many samples of a ranking the page holds, and of how many it has no picture for want of room."""
    text = f"the first {len(ranking.cards):,} of {ranking.total:,} samples"
    if 0 < ranking.pictured < len(ranking.cards):
        text += f", {ranking.pictured:,} of them with a picture,"
    return text


def histograms(view: PageView) -> Section | None:
    """How the scores that matter most are distributed, for right and wrong labels where these are known."""
    drawn = []
    for score, counted in view.histograms:
        groups = " and ".join(f"{name} labels" if name != "all" else "all samples" for name in counted.counts)
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in score.name) or "_"
        words = f"Histogram of {score.title} for {groups}; {score.reading}."
        drawn.append(Picture(f"histogram-{name}", figures.draw_histogram(score, counted), words))
    if not drawn:
        return None
    text = (
        f"Each curve shows which share of its group falls into each bin, outliers in the outermost one; "
        f"{len(drawn)} of {len(view.drawable)} scores."
    )
    if view.wrong is not None:
        text += " The further apart flipped (dashed) and intact labels are, the better a score finds wrong labels."
    return Section("histograms", "Histograms", text, drawn, "plots")


def plane(view: PageView) -> Section | None:
    """Hardness against confidence, a point for each sample."""
    across, up = view.samples.score("confidence", "model_confidence"), view.samples.score(*AVH)
    if across is None or up is None:
        return None
    x, y = view.samples.values(across.name), view.samples.values(up.name)
    if not (np.isfinite(x) & np.isfinite(y)).any():
        return None
    drawn = figures.draw_plane(across, x, up, y, view.groups, 1 / view.classes if view.classes else None)
    text = (
        f"At most {figures.MOST_POINTS:,} samples spread over the table, a point each. Top left is hard and unsure, "
        "bottom right easy and sure; away from the diagonal the angle says something that the probability does not. "
        "The dotted line is AVH's chance level, one over the number of classes."
    )
    picture = Picture("plane", drawn, f"{up.title} against {across.title}, one point per sample.", wide=True)
    return Section("plane", "Hardness and confidence", text, [picture])


def scores(view: PageView) -> Section | None:
    """Every score with its direction, its range and how well it finds wrong labels."""
    lines = view.lines
    if not lines:
        return None
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
    return Section("scores", "Scores", text, [Table("Table of scores", columns, marked=marked)])


def curves(view: PageView) -> Section | None:
    """Every number of the epochs."""
    table = view.run.epochs
    if table is None or not table.num_rows:
        return None
    # A round counts as an epoch does, and is no measurement of it.
    fields = [field for field in table.schema if field.name != "round"]
    numeric = [f.name for f in fields if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)]
    columns = {name: table.column(name).cast(pa.float64()).to_numpy() for name in numeric}
    columns = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    epochs = columns.pop("epoch", np.arange(1, 1 + table.num_rows))
    if not columns:
        return None
    text = (
        "One value per epoch. Where the training curve still improves and the test curve turns, the model has begun to "
        "memorise its data, wrong labels included."
    )
    words = f"Learning curves over {len(epochs)} epochs."
    picture = Picture("curves", figures.draw_curves(columns, epochs), words, wide=True)
    return Section("curves", "Learning curves", text, [picture])


def classes(view: PageView) -> Section | None:
    """The mean hardness of each class."""
    score, names = view.hardness, view.labels.names
    codes = view.labels.codes.get("label", view.labels.codes.get("predicted"))
    if score is None or codes is None:
        return None
    counts, means = means_by_class(codes, view.samples.values(score.name), len(names))
    shown = int((counts > 0).sum())
    if not shown:
        return None
    text = (
        f"{score.title}: mean over the samples of each class, hardest class first ({score.reading}); the "
        f"{min(shown, figures.MOST_CLASSES)} hardest of {shown:,} classes{_chance(view, score)}"
    )
    chance = 1 / view.classes if view.classes and score.name in AVH else None
    drawn = figures.draw_classes(score, names, counts, means, chance)
    picture = Picture("classes", drawn, f"Mean {score.title} by class, hardest class first.", wide=True)
    return Section("classes", "Hardness by class", text, [picture])


def confusion(view: PageView) -> Section | None:
    """Given against predicted labels, as a matrix of few classes and as the commonest disagreements."""
    pairs, names, blocks = view.confusion, view.labels.names, list[Block]()
    if pairs is None:
        return None
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
    text = (
        "Rows are the given labels, columns the model's; the table lists the most frequent disagreements. A cell, or a "
        "row of the table, shows its samples above."
    )
    return Section("confusion", "Given and predicted labels", text, blocks, "beside")


def samples(view: PageView) -> Section | None:
    """Every sample that the page holds, to be searched and sorted."""
    held = list(view.cards.values())
    if not held:
        return None
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
    text = f"Every sample that this page holds; {view.samples.path.name} holds the rest."
    return Section("samples", "Table of samples", text, [Table("Table of samples", columns, tall=True, search=True)])


def made(view: PageView) -> Section:
    """How the run was made: its settings, results and versions."""
    details, results = view.run.details, dict(view.run.section("results"))
    if view.lines and view.issues:
        # The scores' own numbers have a table of their own.
        results["label_issues"] = {key: value for key, value in view.issues.items() if key != "scores"}
    parts = {
        "Run": {key: details.get(key) for key in ("kind", "status", "created", "seed", "device")},
        "Results": results,
        "Configuration": view.run.section("config"),
        "Versions": view.run.section("versions"),
    }
    blocks: list[Block] = []
    for title, rows in ((title, _flat(values)) for title, values in parts.items()):
        values = [Cell("", code=text) for text in rows.values()]
        if rows:
            blocks.append(Table(title, [Column(title, list(rows), "name"), Column("Value", values, "")]))
    return Section("run", "How this run was made", "", blocks, "columns")


SECTIONS = (
    rounds, suspects, advice, hardest, histograms, plane, scores, curves, classes, confusion, samples, made,
)  # fmt: skip


def _chance(view: PageView, score: Score) -> str:
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
