"""The page of AMC-Loss's Table 1: ours beside the paper's numbers, from the results file."""

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, INK, RED, drawing
from hardsight_studies.amc.looking import shown_p
from hardsight_studies.amc.recipes import LOSSES, NAMES, TITLES, caveat, length_name
from hardsight_studies.framework import markdown_table, provenance, shown
from hardsight_studies.wording import above_or_below, listed, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Percent: cross-entropy, + Euclidean, + AMC, and their standard deviations; the p-value of AMC against Euclidean.
PAPER = {
    "mnist": (99.63, 99.65, 99.66),
    "cifar10": (82.35, 82.60, 82.97),
    "cifar100": (65.16, 65.57, 66.19),
    "svhn": (94.03, 95.29, 95.52),
}
PAPER_DEVIATION = {
    "mnist": (0.01, 0.01, 0.01),
    "cifar10": (0.17, 0.21, 0.20),
    "cifar100": (0.12, 0.20, 0.22),
    "svhn": (0.11, 0.06, 0.05),
}
PAPER_P = {"mnist": 0.1525, "cifar10": 0.0214, "cifar100": 0.0016, "svhn": 0.0002}


def table(results: Mapping[str, Any]) -> str:
    """What came out; then one table a schedule and length, with a sentence a data set."""
    parts = [_result(results["accuracy"]), provenance(results) + caveat(results["preset"]), _LEGEND]
    for key, by_data in results["accuracy"].items():
        schedule, length = key.split()
        parts.append(
            f"Schedule of the {_whose(schedule)}, {length_name(float(length))}; test accuracy in %, last epoch:"
        )
        parts.append(_rows(by_data))
        parts.append("\n".join(f"- {_sentence(data, row)}" for data, row in by_data.items()))
    if results["not_computed"]:
        names = ", ".join(TITLES[data] for data in results["not_computed"])
        parts.append(f"Not computed (the data were not at hand, or the time was over): {names}.")
    return "\n\n".join(part for part in [*parts, _limits(results)] if part) + "\n"


_LEGEND = """**How to read the tables.** Numbers are test accuracies in %, mean ± standard deviation over runs. `p
(AMC, Euclidean)` is Student's two-sided p-value for AMC against + Euclidean, as in the paper. The last column holds
the paper's numbers for cross-entropy / + Euclidean / + AMC, and its p."""


def _result(accuracy: Mapping[str, Any]) -> str:
    """In how many comparisons AMC is ahead, against each of the others."""
    rows = [row for by_data in accuracy.values() for row in by_data.values() if all(loss in row for loss in LOSSES)]
    if not rows:
        return ""
    said = []
    for loss, p in (("cross-entropy", "p_amc_cross_entropy"), ("euclidean", "p_amc_euclidean")):
        ahead = [row for row in rows if row["amc"]["mean"] > row[loss]["mean"]]
        sure = sum(row[p] is not None and row[p] < 0.05 for row in ahead)
        said.append(f"above {NAMES[loss]} in {len(ahead)} (significantly, p < 0.05, in {sure})")
    return (
        f"**Result.** Of {plural(len(rows), 'comparison')} (data set, schedule and length of training) the mean "
        f"accuracy with AMC-Loss is {listed(said)}. In the paper it is the highest on every data set."
    )


def _limits(results: Mapping[str, Any]) -> str:
    """How long the trainings are, and what the paper leaves open."""
    lengths = sorted({float(key.split()[1]) for key in results["accuracy"]})
    short = [length_name(length) for length in lengths if length < 1]
    shortened = (
        f" Trainings here have {listed(short)}, so the accuracies do not compare with the paper's." if short else ""
    )
    return (
        "**What one may conclude.** The comparison between the losses is fair within a row: all of them have the same "
        f"network, schedule and seeds.{shortened} The paper and its authors' script disagree on the weight of the "
        "loss, and no public code holds the Euclidean loss; so + Euclidean is this project's reading of it, and a "
        "large gap to it may be due to that reading."
    )


def _whose(schedule: str) -> str:
    return "authors' script (weight 10)" if schedule == "script" else "paper (weight 0.1)"


def _rows(by_data: Mapping[str, Any]) -> str:
    heads = ["data", *(NAMES[loss] for loss in LOSSES), "p (AMC, Euclidean)", "paper"]
    rows = []
    for data, row in by_data.items():
        printed = " / ".join(
            f"{mean:.2f} ± {deviation:.2f}"
            for mean, deviation in zip(PAPER.get(data, ()), PAPER_DEVIATION.get(data, ()), strict=True)
        )
        beside = f"{printed}, p = {PAPER_P[data]:g}" if printed else ""
        rows.append(
            [TITLES[data], *(shown(row.get(loss), 2) for loss in LOSSES), shown_p(row["p_amc_euclidean"]), beside]
        )
    return markdown_table(heads, rows)


def _told(p: float | None) -> str:
    if p is None:
        return "too few runs to tell"
    return f"p = {shown_p(p)}, {'significant' if p < 0.05 else 'not significant'} at 0.05"


def _sentence(data: str, row: Mapping[str, Any]) -> str:
    known = [loss for loss in LOSSES if loss in row]
    if len(known) < len(LOSSES):
        return f"{TITLES[data]}: only {', '.join(NAMES[loss] for loss in known)} so far."
    over = {loss: row["amc"]["mean"] - row[loss]["mean"] for loss in LOSSES[:2]}
    count = len(row["amc"]["values"])
    ours = (
        f"{TITLES[data]}, {plural(count, 'run')}: AMC ends {above_or_below(over['euclidean'], 2)} + Euclidean "
        f"({_told(row['p_amc_euclidean'])}) and {above_or_below(over['cross-entropy'], 2)} cross-entropy "
        f"({_told(row['p_amc_cross_entropy'])})"
    )
    if data not in PAPER:
        return f"{ours}."
    theirs = [above_or_below(PAPER[data][2] - PAPER[data][place], 2) for place in (1, 0)]
    return f"{ours}. In the paper it ends {theirs[0]} (p = {PAPER_P[data]:g}) and {theirs[1]}."


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Every run's accuracy as the difference from the mean of cross-entropy, and the paper's."""
    panels = [(key, data, row) for key, rows in results["accuracy"].items() for data, row in rows.items()]
    panels = [panel for panel in panels if "cross-entropy" in panel[2]]
    if not panels:
        return {}
    columns = min(3, len(panels))
    with drawing(3.2 * columns, 2.7 * -(-len(panels) // columns) + 0.3, len(panels), columns) as figure:
        for axes, (key, data, row) in zip(figure.axes, panels, strict=True):
            schedule, length = key.split()
            base = row["cross-entropy"]["mean"]
            for place, loss in enumerate(LOSSES):
                values = [value - base for value in row.get(loss, {"values": []})["values"]]
                axes.plot([place] * len(values), values, "o", color=BLUE, markersize=4, alpha=0.6)
                if values:
                    axes.plot([place - 0.2, place + 0.2], [statistics.fmean(values)] * 2, color=BLUE, linewidth=2)
                if data in PAPER:
                    printed = PAPER[data][place] - PAPER[data][0]
                    axes.plot(place + 0.3, printed, "D", color=RED, markersize=5)
            axes.axhline(0, color=INK, linewidth=0.8)
            axes.set_xticks(range(len(LOSSES)), [NAMES[loss] for loss in LOSSES], fontsize=8)
            axes.set_xlim(-0.5, len(LOSSES) - 0.3)
            whose = "script" if schedule == "script" else "paper's text"
            axes.set_title(f"{TITLES[data]}\n{whose}, {length_name(float(length))}", fontsize=9)
            axes.set_ylabel("points above cross-entropy")
        figure.axes[0].plot([], [], "o-", color=BLUE, label="our runs and their mean")
        if any(data in PAPER for _, data, _ in panels):
            figure.axes[0].plot([], [], "D", color=RED, linestyle="none", label="paper's mean")
        # Below all panels: inside one it would lie on runs.
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return {"differences": figure}
