"""Tables of accuracies, ours beside the paper's: rows and columns of kinds of cells, and sentences about them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.gr.judged import first_of, mean_of, several_seeds, shown_accuracy, shown_last_and_best
from hardsight_studies.wording import above_or_below, training_images

# Row title to column title to (kind of cell, what the paper prints for it).
Layout = Mapping[str, Mapping[str, tuple[str, str]]]
LEGEND = """**How to read the table.** An entry is the test accuracy in percent: ours at the end of training, in round
brackets ours at its best epoch, in square brackets what the paper prints. The end of training is what counts: the best
epoch is chosen by the test set, which nobody has in practice. – is not measured yet."""
_NO_ANSWER = "Too little is measured for an answer."
# A difference smaller than this, in points, is none.
_EQUAL = 0.5


def accuracy_table(results: Mapping[str, Any], corner: str, layout: Layout) -> str:
    """Markdown of `last (best) [paper]`, in percent."""
    columns = list(dict.fromkeys(column for row in layout.values() for column in row))
    if results["preset"] != "paper":
        # A small preset plans a part of the table only: what it never measures is not missing.
        there = {key for row in layout.values() for key, _ in row.values() if shown_accuracy(results, key, "last")}
        layout = {title: row for title, row in layout.items() if any(key in there for key, _ in row.values())}
        columns = [one for one in columns if any(row[one][0] in there for row in layout.values() if one in row)]
    rows = [
        [title, *(_entry(results, *row[column]) if column in row else "" for column in columns)]
        for title, row in layout.items()
    ]
    return markdown_table([corner, *columns], rows)


def _entry(results: Mapping[str, Any], key: str, printed: str) -> str:
    ours = shown_last_and_best(results, key)
    return f"{ours} [{printed}]" if printed else ours


def page(
    results: Mapping[str, Any], parts: Sequence[str], *, result: str = "", legend: str = LEGEND, conclude: str = ""
) -> str:
    """What came out, where the numbers come from, the legend, the parts, what failed, what one may conclude.

    A small preset says instead that its numbers do not compare.
    """
    small = results["preset"] != "paper"
    every = (
        f"**Result.** {_not_comparable(results) if small else result or _NO_ANSWER}",
        provenance(results),
        legend,
        *parts,
        failures(results),
        _concluded(results, conclude),
    )
    return "\n\n".join(part for part in every if part) + "\n"


def _concluded(results: Mapping[str, Any], scope: str) -> str:
    said = _of_small(results) if results["preset"] != "paper" else " ".join((seeds_said(results), scope)).strip()
    return f"**What one may conclude.** {said}" if said else ""


def ranks(results: Mapping[str, Any]) -> bool:
    """Whether its numbers may put one method before another: one seed of a small preset may not."""
    return results["preset"] == "paper" or len(results["seeds"]) > 1


def _not_comparable(results: Mapping[str, Any]) -> str:
    """What a smaller preset must say of its numbers: rounding alone can move such a training by twenty points."""
    alone = "" if len(results["seeds"]) > 1 else ", and one seed each puts no method before another"
    return (
        f"The small preset `{results['preset']}` gives no answer: it is there to try out the code. What it "
        f"trains: {trained_on(results)} Its numbers do not compare with the paper's{alone}."
    )


def _of_small(results: Mapping[str, Any]) -> str:
    if ranks(results):
        return "The numbers speak for this small network and these small images alone."
    return "That the study runs from the data to the table, and nothing about the methods."


def seeds_said(results: Mapping[str, Any]) -> str:
    """What the numbers say of chance: a spread over seeds, or none."""
    if not results.get("accuracies"):
        return ""
    if several_seeds(results):
        return "± is the standard deviation over seeds; a number without it is one training."
    return "Every number is one training, so a difference of a point may be chance."


def trained_on(results: Mapping[str, Any]) -> str:
    """Images, network and length: a sentence without its capital."""
    protocol = results.get("protocol")
    if not protocol:
        return "few steps of a small network."
    images = training_images(protocol["limit"], protocol["shrink"])
    return f"`{protocol['data']}` ({images}), {protocol['model']}, {protocol['epochs']} epochs."


def failures(results: Mapping[str, Any]) -> str:
    """Trainings that failed, and why: without them a mean over the seeds that lived would flatter."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for name, error in results.get("failed", {}).items():
        kind, _, seed = name.rpartition(",seed=")
        # The samples of the batch are in the record.
        kinds.setdefault(kind, []).append((seed, error.partition(", in the batch")[0]))
    listed = "; ".join(
        f"`{kind}`, seed {', '.join(seed for seed, _ in found)} ({found[0][1]})" for kind, found in kinds.items()
    )
    return f"Failed, and in no mean: {listed}." if listed else ""


def ranking(
    results: Mapping[str, Any], where: str, methods: Mapping[str, str], printed: Mapping[str, int | float]
) -> str:
    """Which of the methods measured ends best, and which does in the paper; `methods` and `printed` by title.

    Nothing of a small preset with one seed.
    """
    if not ranks(results):
        return ""
    # Two titles may be of the same training: the first stands for it.
    titles = {key: title for title, key in reversed([*methods.items()])}
    measured = {
        title: value
        for title, key in methods.items()
        if titles[key] == title and (value := mean_of(results, key, "last")) is not None
    }
    if len(measured) < 2:
        return ""
    ours = first_of(measured.items())
    # The paper's winner among the same methods: a missing one decides nothing.
    theirs = first_of((title, printed.get(title)) for title in measured)
    assert ours is not None
    order = sorted(measured.values(), reverse=True)
    beside = "" if theirs is None else f"; in the paper it is {theirs} ({printed[theirs]:g})"
    return (
        f"{where}, of {len(measured)} methods measured, {ours} ends best ({order[0]:.1f}, {order[0] - order[1]:+.1f} "
        f"to the next){beside}."
    )


def points_apart(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[float, int]:
    """The difference of two means in points, and its sign: 0 below half a point or its standard error over seeds."""
    points = 100 * (ours["mean"] - theirs["mean"])
    error = 100 * math.sqrt(sum((one["sd"] or 0.0) ** 2 / len(one["values"]) for one in (ours, theirs)))
    return points, 0 if abs(points) < max(_EQUAL, error) else round(math.copysign(1, points))


def standing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How a difference is said: `22.0 points below`, `level (+0.1) with`."""
    points, side = points_apart(ours, theirs)
    return above_or_below(points) if side else f"level ({points:+.1f}) with"
