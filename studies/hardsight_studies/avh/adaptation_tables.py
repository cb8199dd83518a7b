"""The tables and figures of AVH's section 5.1: averages over pairs, paired tests, what is selected first."""

import json
import re
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.plotting import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.engine.expressions import interval
from hardsight_studies.engine.rows import Number, Rows
from hardsight_studies.engine.study import get
from hardsight_studies.engine.tables import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lines = tuple[list[str], list[list[str]]]
CORE = ("source", "cbst", "crst", "avh")
# True-positive rate, mean AVH, mean confidence, mean norm of the first selection (AVH, Table 4).
_PAPER_FIRST = {"avh": "0.844 / 0.118 / 0.961 / 20.84", "cbst": "0.848 / 0.117 / 0.976 / 21.28"}
_STYLES = {"cbst": (RED, "-"), "crst": (GREEN, "-"), "avh": (BLUE, "-"), "avh-slides": (BLUE, "--"),
           "confidence": (PURPLE, "--"), "argmax": (INK, ":")}  # fmt: skip


def accuracies(rows: Rows, method: str, pair: str) -> dict[int | None, float]:
    """Accuracy by seed."""
    return {row.seed: row.metrics["accuracy"] for row in rows.where(method=method, pair=pair) if row.metrics}


def average(rows: Rows, method: str, pairs: Sequence[str]) -> Number | None:
    """Mean over the pairs, by those of the method's seeds that have them all."""
    found = [accuracies(rows, method, pair) for pair in pairs]
    shared = sorted(set.intersection(*(set(one) for one in found)) if found else set(), key=str)
    return Number.of({seed: statistics.fmean(one[seed] for one in found) for seed in shared}) if shared else None


def pairs_of(rows: Rows, methods: Sequence[str]) -> list[str]:
    """The pairs that all these methods have most seeds of."""
    counts = {
        pair: len(set.intersection(*(set(accuracies(rows, method, pair)) for method in methods)))
        for pair in rows.options("pair")
    }
    most = max(counts.values(), default=0)
    return [pair for pair, count in counts.items() if count == most > 0]


def _methods(rows: Rows) -> list[str]:
    """The methods that were measured, in the study's order."""
    return [method for method in get("avh-table3").tree["axes"]["method"] if rows.where(method=method)]


def averages(rows: Rows) -> Lines:
    """Mean accuracy over the pairs of the core methods, and over those pairs that all methods have."""
    methods = _methods(rows)
    core, every = pairs_of(rows, [one for one in CORE if one in methods]), pairs_of(rows, methods)
    # Mean of the class accuracies on VisDA-17, percent (AVH, Table 3); the source model is that of Zou et al.
    paper = get("avh-table3").entry("table", "visda17")["paper"]["mean of classes"]
    lines = []
    for method in methods:
        first, second = average(rows, method, core), average(rows, method, every)
        seeds = "–" if first is None else str(first.count)
        lines.append([f"`{method}`", show(first, ".1%"), seeds, show(second, ".1%"), paper.get(method, "")])
    heads = [f"mean over {len(core)} pairs (%)", "seeds", f"over the {len(every)} of all methods (%)"]
    return ["method", *heads, "paper, VisDA-17 (%)"], lines


def tests(rows: Rows) -> Lines:
    """AVH minus each other method from the same source model: in points, by pair of domains, with paired t-tests.

    Seeds of one pair are no independent trials: trust the test over the pairs.
    """
    lines = []
    for rival in ("cbst", "crst", "mmd", "dann"):
        by_pair = differences(rows, rival)
        if by_pair:
            means = [statistics.fmean(values) for values in by_pair.values()]
            each = [value for values in by_pair.values() for value in values]
            mean = statistics.fmean(each)
            shown = show(interval(means), "+.2%") if len(means) > 1 else f"{100 * means[0]:+.2f}"
            won = f"{sum(one > 0 for one in means)} of {len(means)}"
            lines.append([rival, f"{100 * mean:+.2f}", shown, won, p_value(means), str(len(each)), p_value(each)])
    heads = ["over all runs", "mean over pairs [95 %]", "pairs won", "p over pairs", "runs", "p over runs"]
    return ["AVH minus", *heads], lines


def differences(rows: Rows, rival: str) -> dict[str, list[float]]:
    """AVH minus the rival by pair of domains, for the seeds that both have."""
    found = {}
    for pair in rows.options("pair"):
        ours, theirs = (accuracies(rows, method, pair) for method in ("avh", rival))
        values = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        if values:
            found[pair] = values
    return found


def p_value(differences: Sequence[float]) -> str:
    """Of a two-sided paired t-test; nothing where there are too few differences, or all are the same."""
    from scipy.stats import ttest_1samp

    if len(differences) < 3 or max(differences) == min(differences):
        return "–"
    return f"{ttest_1samp(differences, 0.0).pvalue:.2g}"


def first_selections(rows: Rows) -> Lines:
    """Table 4: of what each selector selects from the source model, means over the pairs and seeds that all have.

    Where means over all pairs were kept, and not every run is known, those.
    """
    names = ("right", "avh", "confidence", "norm", "selected", "beyond_cbst")
    have: dict[str, dict[Any, Any]] = {}
    for row in rows:
        if isinstance(row.metrics.get("first_selected"), int | float):
            have.setdefault(row.settings["method"], {})[row.settings["pair"], row.seed] = row.metrics
    shared = set.intersection(*(set(runs) for runs in have.values())) if have else set()
    lines = []
    for method in _methods(rows):
        kept = [row.metrics for row in rows.where(method=method, seed=None) if "first_selected" in row.metrics]
        if kept:
            means = {one: kept[0][f"first_{one}"]["mean"] for one in names}
        elif shared and method in have:
            means = {one: _mean([have[method][key][f"first_{one}"] for key in shared]) for one in names}
        else:
            continue
        numbers = [f"{means[one]:.3f}" for one in names[:4]]
        beyond = f"{means['beyond_cbst']:.0f} of {means['selected']:.0f}"
        lines.append([f"`{method}`", *numbers, beyond, _PAPER_FIRST.get(method, "")])
    heads = ["right", "AVH", "confidence", "norm", "beyond CBST", "paper (right / AVH / confidence / norm)"]
    return ["method", *heads], lines


def _mean(values: Sequence[Any]) -> float:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else float("nan")


# ---------------------------------------------------------------------------------------------------------------------
# The figures.


def family_of(pair: str) -> str:
    """What a panel calls the pairs of one kind."""
    kinds = {"photo": "PACS", "visda17": "VisDA-17", "mnist": "digits", "usps": "digits", "digits": "digits"}
    return kinds.get(pair.partition("-")[0], "Office-Caltech10")


def rounds(rows: Rows) -> "Figure":
    """Figure 6, accuracy by round: mean over the pairs of a kind; a thin line where the source model is."""
    curves: dict[str, dict[str, dict[float, list[float]]]] = {}
    for one in rows.points.to_pylist():
        settings = json.loads(one["settings"])
        if one["series"] == "by_round" and settings["method"] in _STYLES:
            of = curves.setdefault(family_of(settings["pair"]), {}).setdefault(settings["method"], {})
            of.setdefault(one["x"], []).append(one["y"])
    with drawing(4.6 * min(2, len(curves)), 3.2 * -(-len(curves) // 2), len(curves)) as figure:
        for axes, (family, methods) in zip(figure.axes, curves.items(), strict=True):
            for method, (colour, line) in _STYLES.items():
                means = [statistics.fmean(values) for _, values in sorted(methods.get(method, {}).items())]
                axes.plot(range(len(means)), means, line, color=colour, label=method)
            pairs = [pair for pair in rows.options("pair") if family_of(pair) == family]
            before = average(rows, "source", pairs)
            if before is not None:
                axes.axhline(before.mean, color=INK, linewidth=0.8, zorder=0, label="source")
            axes.set(title=family, xlabel="rounds", ylabel="accuracy on the target")
        figure.axes[0].legend(fontsize=7)
    return figure


def selected(rows: Rows) -> "Figure":
    """Figure 21: samples that AVH selects first, rightly, and CBST does not, with the softmax confidence in each."""
    found: dict[str, dict[str, list[Any]]] = {}
    for one in rows.points.to_pylist():
        if one["series"].startswith("picture"):
            of = found.setdefault(json.loads(one["settings"])["pair"], {})
            of.setdefault(one["series"], []).append(one)
    columns = max(map(len, found.values()))
    with drawing(1.25 * columns, 1.45 * len(found), columns * len(found), columns) as figure:
        for axes in figure.axes:
            axes.set_axis_off()
        for line, (pair, pictures) in enumerate(found.items()):
            here = figure.axes[columns * line :]
            for axes, (series, pixels) in zip(here, sorted(pictures.items()), strict=False):
                image = np.zeros((int(max(p["y"] for p in pixels)) + 1, int(max(p["x"] for p in pixels)) + 1, 3))
                for pixel in pixels:
                    image[int(pixel["y"]), int(pixel["x"])] = [pixel[name] / 255 for name in ("red", "green", "blue")]
                axes.imshow(image)
                axes.set_title(re.sub(r"^picture \d+: ", "", series), fontsize=6.5)
            place: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "transform": here[0].transAxes}
            here[0].text(-0.06, 0.5, pair, fontsize=7, **place)
    return figure
