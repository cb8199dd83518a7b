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
from hardsight.report.page import Block, Cell, Column, Picture, Section, Table, Words, shortened
from hardsight.report.reading import Score
from hardsight.report.view import AVH, means_by_class, number

WORDS = Words("record.toml")
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
    rows = [] if view.run.rounds is None else view.run.rounds.to_pylist()
    if not rows:
        return None
    columns = [
        Column(title, [f"{row[name]:{form}}" if isinstance(row.get(name), int | float) else "" for row in rows])
        for names, form in (({"round": "Round"}, ","), (_SHARES, ".1%"), (_COUNTS, ","))
        for name, title in names.items()
    ]
    measured = any(row.get(name) is not None for row in rows for name in ("accuracy", "test_accuracy"))
    return WORDS.section("rounds", [Table("Rounds of self-training", columns)], "measured" if measured else "")


def suspects(view: PageView) -> Section | None:
    ranking = view.suspects
    if ranking is None:
        return None
    facts: dict[str, Any] = {"held": _held(ranking), "title": ranking.score.title, "reading": ranking.score.reading}
    facts |= {"right": sum(bool(card.flipped) for card in ranking.cards), "shown": len(ranking.cards)}
    return WORDS.section("suspects", [ranking], "known" if view.wrong is not None else "", **facts)


def advice(view: PageView) -> Section | None:
    if not (view.run.folder / AUDIT_FILE).is_file():
        return None
    with contextlib.suppress(ValueError, OSError):
        names, lines = zip(*advise_folder(view.run.folder).lines(), strict=True)
        table = Table("Table of advice", [Column("What", names, "name"), Column("Found", lines, "reasons")])
        return WORDS.section("advice", [table])
    return None


def hardest(view: PageView) -> Section | None:
    ranking = view.hardest
    if ranking is None:
        return None
    facts: dict[str, Any] = {
        "held": _held(ranking).capitalize(),
        "title": ranking.score.title,
        "reading": ranking.score.reading,
    }
    also = "predicted" if view.samples.against_predictions else "agreed" if view.agreed is not None else ""
    return WORDS.section("hardest", [ranking], also, chance=_chance(view, ranking.score), **facts)


def _held(ranking: Ranking) -> str:
    """How many samples of a ranking the page holds, and of how many it has no picture for want of room."""
    text = f"the first {len(ranking.cards):,} of {ranking.total:,} samples"
    if 0 < ranking.pictured < len(ranking.cards):
        text += f", {ranking.pictured:,} of them with a picture,"
    return text


def histograms(view: PageView) -> Section | None:
    drawn = []
    for score, counted in view.histograms:
        groups = " and ".join(f"{name} labels" if name != "all" else "all samples" for name in counted.counts)
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in score.name) or "_"
        words = f"Histogram of {score.title} for {groups}; {score.reading}."
        drawn.append(Picture(f"histogram-{name}", figures.draw_histogram(score, counted), words))
    if not drawn:
        return None
    known = "known" if view.wrong is not None else ""
    facts: dict[str, Any] = {"drawn": len(drawn), "drawable": len(view.drawable)}
    return WORDS.section("histograms", drawn, known, layout="plots", **facts)


def plane(view: PageView) -> Section | None:
    across, up = view.samples.score("confidence", "model_confidence"), view.samples.score(*AVH)
    if across is None or up is None:
        return None
    x, y = view.samples.values(across.name), view.samples.values(up.name)
    if not (np.isfinite(x) & np.isfinite(y)).any():
        return None
    drawn = figures.draw_plane(across, x, up, y, view.groups, 1 / view.classes if view.classes else None)
    picture = Picture("plane", drawn, f"{up.title} against {across.title}, one point per sample.", wide=True)
    return WORDS.section("plane", [picture], most=figures.MOST_POINTS)


def scores(view: PageView) -> Section | None:
    lines = view.lines
    if not lines:
        return None
    also: list[str] = []
    facts: dict[str, Any] = {}
    if any(line.auroc is not None for line in lines):
        also.append("judged")
    if "never_learned" in view.samples and "forgotten" in view.samples:
        # Some scores combine the two in one number.
        also.append("learned")
        facts = {
            "never": int((view.samples.values("never_learned") > 0).sum()),
            "forgotten": int((view.samples.values("forgotten") > 0).sum()),
        }
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
    return WORDS.section("scores", [Table("Table of scores", columns, marked=marked)], *also, **facts)


def curves(view: PageView) -> Section | None:
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
    words = f"Learning curves over {len(epochs)} epochs."
    picture = Picture("curves", figures.draw_curves(columns, epochs), words, wide=True)
    return WORDS.section("curves", [picture])


def classes(view: PageView) -> Section | None:
    score, names = view.hardness, view.labels.names
    codes = view.labels.codes.get("label", view.labels.codes.get("predicted"))
    if score is None or codes is None:
        return None
    counts, means = means_by_class(codes, view.samples.values(score.name), len(names))
    shown = int((counts > 0).sum())
    if not shown:
        return None
    facts: dict[str, Any] = {"title": score.title, "reading": score.reading, "chance": _chance(view, score)}
    facts |= {"drawn": min(shown, figures.MOST_CLASSES), "shown": shown}
    chance = 1 / view.classes if view.classes and score.name in AVH else None
    drawn = figures.draw_classes(score, names, counts, means, chance)
    picture = Picture("classes", drawn, f"Mean {score.title} by class, hardest class first.", wide=True)
    return WORDS.section("classes", [picture], **facts)


def confusion(view: PageView) -> Section | None:
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
    return WORDS.section("confusion", blocks, layout="beside")


def samples(view: PageView) -> Section | None:
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
    table = Table("Table of samples", columns, tall=True, search=True)
    return WORDS.section("samples", [table], file=view.samples.path.name)


def made(view: PageView) -> Section:
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
    return WORDS.section("run", blocks, layout="columns")


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
