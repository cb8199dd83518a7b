"""The words of the page: headline numbers, and one or two sentences under each heading that say how to read it."""

from typing import Any

from hardsight.report.figures import MOST_CLASSES, drawn_as_points
from hardsight.report.reading import Score
from hardsight.report.view import TABLE_ROWS, View

_KINDS = {"demo": "Demo run", "training": "Training run", "score": "Scoring"}
_AVH = ("avh", "angular_visual_hardness")


def facts(view: View) -> list[str]:
    """The line under the title."""
    details = view.run.details
    kind = str(details.get("kind") or "run")
    parts = [_KINDS.get(kind, kind.capitalize())]
    if details.get("created"):
        parts.append(str(details["created"]).replace("T", " ").replace("+00:00", " UTC"))
    if details.get("device"):
        parts.append(str(details["device"]))
    if details.get("seed") is not None:
        parts.append(f"seed {details['seed']}")
    return parts


def notices(view: View) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    status = view.run.details.get("status")
    if status in ("running", "interrupted"):
        found.append(
            "This run had not finished when the page was made: the numbers are those of its last epoch so far."
        )
    if status == "failed":
        found.append("This run failed: the numbers are those it left behind.")
    if view.run.samples is None:
        found.append("The record holds no samples.parquet yet, so nothing can be said about single samples.")
    elif not view.run.samples.rows:
        found.append("samples.parquet holds no rows.")
    notes = view.run.details.get("notes")
    return found + [str(note) for note in notes] if isinstance(notes, list) else found


def tiles(view: View) -> list[tuple[str, str]]:
    """The headline: (value, meaning)."""
    found = []
    if view.estimated is not None and view.suspects is not None:
        known = f"; {view.suspects_found:,} of them were really flipped" if view.wrong is not None else ""
        meaning = f"labels are probably wrong{known}"
        if _counts_one_look(view):
            meaning = "labels are suspects: the model disagrees with them, and is itself wrong about some"
        elif (agreed := _agreed(view)) is not None:
            meaning = f"labels are suspects; the trained model agrees with {agreed:,} of them by now"
        found.append((f"{view.estimated:,}", meaning))
    accuracy = view.run.section("results").get("test_accuracy")
    if _is_number(accuracy):
        found.append((f"{accuracy:.1%}", "test accuracy"))
    ranking = view.ranking_line
    if ranking is not None and ranking.auroc is not None:
        found.append(
            (f"{ranking.auroc:.3f}", f"AUROC of the suspects' ranking, by {ranking.score.name}; chance is 0.5")
        )
    if view.estimated is None and view.wrong is not None and view.suspects is not None:
        flipped = int(view.wrong.sum())
        if flipped:
            found.append(
                (f"{view.suspects_found / flipped:.1%}", f"of the first {flipped:,} suspects were really flipped")
            )
    elif view.wrong is None and view.confusion is not None and not _counts_one_look(view):
        found.append((f"{_apart(view):,}", "labels the model disagrees with"))
    if view.run.samples is not None:
        found.append((f"{view.run.samples.rows:,}", "samples"))
    if view.classes:
        found.append((f"{view.classes:,}", "classes"))
    if view.run.epochs is not None and view.run.epochs.num_rows:
        found.append((f"{view.run.epochs.num_rows:,}", "epochs"))
    return found


def sentences(view: View) -> dict[str, str]:
    """How to read each section, by its anchor."""
    return {
        "suspects": _suspects(view),
        "hardest": _hardest(view),
        "histograms": _histograms(view),
        "plane": _plane(view),
        "scores": _scores(view),
        "curves": "One value an epoch. Where a training curve still improves and a test curve turns, the model has "
        "begun to learn its data by heart, wrong labels included.",
        "classes": _classes(view),
        "confusion": _confusion(view),
        "table": _table(view),
    }


def _apart(view: View) -> int:
    """How many labels the model disagrees with."""
    pairs = view.confusion
    return 0 if pairs is None else int(pairs.counts[pairs.given != pairs.predicted].sum())


def _counts_one_look(view: View) -> bool:
    """Whether the estimate is no more than the number of disagreements with one prediction of each sample."""
    by_disagreement = view.run.section("results", "label_issues").get("estimate") == "disagreement"
    return by_disagreement and view.wrong is None and view.confusion is not None and view.estimated == _apart(view)


def _agreed(view: View) -> int | None:
    """How many suspects the model has learned since, where that is a quarter or more and nobody knows the truth."""
    agreed = view.run.section("results", "label_issues").get("agreed")
    if view.wrong is not None or not isinstance(agreed, int) or not view.estimated or agreed < view.estimated / 4:
        return None
    return agreed


def _suspects(view: View) -> str:
    if view.suspects is None:
        return ""
    ranking = view.suspects
    expects = " → label the model expects" if any(card.expected for card in ranking.cards) else ""
    reading = "larger is more suspicious" if ranking.score.name == "suspicion" else ranking.score.reading
    text = (
        f"Given label{expects}, the first {len(ranking.cards)} of {ranking.total:,} samples ranked by "
        f"{_spoken(ranking.score)} ({reading}). A person should look at these first; {_next(view)}."
    )
    if view.wrong is not None:
        right = sum(bool(card.flipped) for card in ranking.cards)
        text += f" The true labels are known here: {right} of these {len(ranking.cards)} were really flipped."
    return text


def _next(view: View) -> str:
    if view.run.details.get("kind") == "audit":
        return "actions.csv, beside this page, is the list to edit: keep, relabel or drop"
    return "hardsight audit, on this folder, writes a list of them to edit: keep, relabel or drop"


def _hardest(view: View) -> str:
    if view.hardest is None:
        return ""
    score, samples = view.hardest.score, view.run.samples
    start = f"Ranked by {_spoken(score)}: {score.reading}{_chance(view) if score.name in _AVH else '.'}"
    if samples is not None and samples.against_predictions:
        return start + " It is measured against the model's own prediction: no label had a part in it."
    if view.hardest_agreed:
        start += (
            f" Only the {view.hardest.total:,} samples whose label the model agrees with: most are hard to see rather "
            "than wrongly labelled; the others are among the suspects above."
        )
    elif view.labels is not None and "label" in view.labels.codes and "predicted" not in view.labels.codes:
        start += " What the model predicts is not recorded, so wrongly labelled samples are among them."
    return start


def _histograms(view: View) -> str:
    text = "Each curve shows which share of its group falls into each bin."
    if view.wrong is not None:
        text += (
            " The further the flipped (dashed) and the intact labels lie apart, the better a score finds wrong labels."
        )
    scores = sum(line.score.name != "suspicion" and line.quantiles is not None for line in view.lines)
    if len(view.histograms) < scores:
        text += f" The {len(view.histograms)} most telling of {scores} scores; the table below lists them all."
    if any(counted.below or counted.above for _, counted in view.histograms):
        text += " Far-out values are gathered in the outermost bin."
    return text


def _plane(view: View) -> str:
    if view.plane is None:
        return ""
    _, x, _, y = view.plane
    marks = "Each point is one sample." if drawn_as_points(x, y) else "Each hexagon counts the samples in it."
    return (
        f"{marks} Top left is hard and unsure, bottom right easy and sure; away from the diagonal the angle says "
        f"something that the probability does not. The dotted line is AVH's chance level, {_level(view)}."
    )


def _scores(view: View) -> str:
    if not any(line.auroc is not None for line in view.lines):
        text = "What each score column of samples.parquet holds, and in which direction to read it."
        return text + _learned(view)
    text = "How well each score ranks wrong labels above right ones: AUROC 1 is perfect, 0.5 is chance"
    share = _share_flipped(view)
    text += f"; average precision at chance is {share:.3g}, the share of flipped labels." if share else "."
    return text + (" The marked row ranks the suspects above." if view.ranking_line else "") + _learned(view)


def _learned(view: View) -> str:
    """How many samples were never learned and how many forgotten, which some scores put into one number."""
    samples = view.run.samples
    if samples is None or "never_learned" not in samples or "forgotten" not in samples:
        return ""
    never, forgotten = (int((samples.values(name) > 0).sum()) for name in ("never_learned", "forgotten"))
    return f" Over the training {never:,} samples were never learned, and {forgotten:,} were learned and forgotten."


def _classes(view: View) -> str:
    if view.by_class is None or view.labels is None:
        return ""
    score, shown = view.by_class[0], int((view.by_class[1] > 0).sum())
    samples = "that carry each label" if "label" in view.labels.codes else "that the model gives each class"
    text = f"{score.title}: mean over the samples {samples}, hardest class first ({score.reading})"
    text += f"; the {MOST_CLASSES} hardest of {shown:,} classes" if shown > MOST_CLASSES else ""
    return text + (_chance(view) if score.name in _AVH else ".")


def _confusion(view: View) -> str:
    if view.confusion is None or view.labels is None:
        return ""
    if len(view.labels.names) > MOST_CLASSES:
        return "The pairs of classes that the model and the labels disagree on most often."
    return (
        "Rows are the given labels, columns the model's; the diagonal (blue) is agreement, the rest (orange) is not. "
        "The table lists the most frequent disagreements."
    )


def _table(view: View) -> str:
    top = f"The first {TABLE_ROWS} at most of the ranking above"
    if view.suspects and view.hardest:
        top = f"The top of the two rankings above, suspects first and hardest after them, at most {TABLE_ROWS} of each"
    return f"{top}; samples.parquet holds the rest."


def _chance(view: View) -> str:
    return f"; AVH's chance level is {_level(view)}." if view.classes else "."


def _level(view: View) -> str:
    return f"1/{view.classes:,} = {1 / view.classes:.3g}" if view.classes else "not known"


def _spoken(score: Score) -> str:
    """A score's title inside a sentence: `EL2N` stays, `Entropy` becomes `entropy`."""
    return score.title if score.title[1:2].isupper() else score.title[:1].lower() + score.title[1:]


def _share_flipped(view: View) -> float | None:
    issues = view.run.section("results", "label_issues")
    flipped, samples = issues.get("flipped"), issues.get("samples")
    if _is_number(flipped) and _is_number(samples) and samples:
        return flipped / samples
    known = sum(int(group.sum()) for group in view.groups.values())
    return None if view.wrong is None else float(view.wrong.sum() / known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
