"""The figures of `hardness-by-loss`, all from the results file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.hardness_table import BASE, COLUMNS, accurate_enough

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour a family; the same loss looks the same whatever else is finished.
_STYLES = {
    "cross-entropy": (INK, "-"),
    "amc": (BLUE, "-"),
    "amc-0.1": (BLUE, "--"),
    "avh": (RED, "-"),
    "gr": (GREEN, "-"),
    "gr-hard": (GREEN, "--"),
    "gr-equation": (GREEN, ":"),
    "cosface": (PURPLE, "-"),
    "arcface": (PURPLE, "--"),
    "normface": (PURPLE, ":"),
}


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Hardness by human frequency and by degradation; and accuracy, calibration, agreement side by side."""
    found = results["losses"]
    drawn = {}
    if results["bins"]:
        drawn["people"] = _people(results)
    names = [name for name in COLUMNS if name != "avh_of_wrong" and any(row.get(name) for row in found.values())]
    with drawing(9.0, 0.28 * len(found) * -(-len(names) // 3) + 1.6, len(names), 3) as figure:
        for axes, name in zip(figure.axes, names, strict=True):
            _dots(axes, found, name)
    drawn["summary"] = figure
    kinds = list(next(iter(found.values()))["degraded_by_level"])
    with drawing(9.0, 5.8, len(kinds), 3) as levels:
        for axes, kind in zip(levels.axes, kinds, strict=True):
            for loss, row in found.items():
                colour, line = _STYLES[loss]
                by_level = row["degraded_by_level"][kind]
                axes.plot(
                    range(len(by_level)), [one["mean"] for one in by_level.values()], line, color=colour, label=loss
                )
                axes.set_xticks(range(len(by_level)), list(by_level))
            axes.set_title(kind.replace("_", " "))
            axes.set_xlabel("level, hardest first")
            axes.set_ylabel("accuracy")
        _legend_below(levels)
    drawn["degradations"] = levels
    return drawn


def _people(results: Mapping[str, Any]) -> "Figure":
    found, edges = results["losses"], results["bins"]
    with drawing(9.0, 4.0, 2) as figure:
        for axes, name, words in zip(figure.axes, ("avh_by_bin", "accuracy_by_bin"), ("AVH", "accuracy"), strict=True):
            for loss, row in found.items():
                colour, line = _STYLES[loss]
                known = [(at, one) for at, one in enumerate(row[name]) if one is not None]
                places, means = [at for at, _ in known], [one["mean"] for _, one in known]
                axes.errorbar(places, means, [one["sd"] or 0 for _, one in known], fmt=line, color=colour, label=loss)
            axes.set_xticks(range(len(edges)), [f"{low:g}-{high:g}" for low, high in edges], rotation=30)
            axes.set_xlabel("share of people who chose the true class")
            axes.set_ylabel(f"mean {words}" if words == "AVH" else words)
        _legend_below(figure)
        chance = figure.axes[0].axhline(results["chance"], color=FAINT, linestyle="--")
        figure.axes[0].legend([chance], ["chance"], fontsize=8, loc="lower left")
    return figure


def _legend_below(figure: "Figure") -> None:
    """One legend for all panels, which lies on none of their lines."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=8)


def _dots(axes: "Axes", found: Mapping[str, Any], name: str) -> None:
    """One line a loss, at the scale of those that are accurate enough; beyond it a number at the edge."""
    known = {loss: row for loss, row in found.items() if row.get(name)}
    fair = [row for loss, row in known.items() if BASE not in found or accurate_enough(loss, found)] or [
        *known.values()
    ]
    near = [value for row in fair for value in row[name]["values"]]
    room = 0.06 * (max(near) - min(near) or 1.0)
    low, high = min(near) - room, max(near) + room
    axes.set_xlim(low, high)
    for place, loss in enumerate(found):
        if loss not in known:
            continue
        values, mean = known[loss][name]["values"], known[loss][name]["mean"]
        if low <= mean <= high:
            axes.plot(values, [place] * len(values), "o", color=BLUE, markersize=4, alpha=0.5)
            axes.plot(mean, place, "|", color=BLUE, markersize=14, markeredgewidth=2)
        elif mean < low:
            axes.text(low, place, f" ← {mean:.2f}", color=RED, va="center", fontsize=8)
        else:
            axes.text(high, place, f"{mean:.2f} → ", color=RED, va="center", ha="right", fontsize=8)
    if BASE in known:
        axes.axvline(known[BASE][name]["mean"], color=INK, linewidth=0.8)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_title(COLUMNS[name], fontsize=9)
