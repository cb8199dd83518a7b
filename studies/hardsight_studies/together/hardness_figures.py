"""The figures of `hardness-by-loss`: by what people say, and by level of each degradation."""

import itertools
import json
import statistics
from typing import TYPE_CHECKING

from hardsight.plotting import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.together.hardness import BINS, bin_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hardsight_studies.engine.rows import Rows

# One colour a family; the same loss looks the same whatever else is finished.
_STYLES = {
    "cross-entropy": (INK, "-"), "amc": (BLUE, "-"), "amc-0.1": (BLUE, "--"), "avh": (RED, "-"), "gr": (GREEN, "-"),
    "gr-hard": (GREEN, "--"), "gr-equation": (GREEN, ":"), "cosface": (PURPLE, "-"), "arcface": (PURPLE, "--"),
    "normface": (PURPLE, ":"),
}  # fmt: skip


def people(rows: "Rows") -> "Figure":
    """Mean AVH and accuracy by the share of people who chose the true class."""
    bins = [f"{low:g}-{high:g}" for low, high in itertools.pairwise(BINS)]
    with drawing(9.0, 4.0, 2) as figure:
        for axes, metric, words in zip(
            figure.axes, ("avh_by_bin", "accuracy_by_bin"), ("mean AVH", "accuracy"), strict=True
        ):
            for loss in rows.options("loss"):
                mine = [row.metrics[metric] for row in rows.where(loss=loss) if row.metrics.get(metric)]
                means = {at: bin_mean([one[at] for one in mine]) for at in range(len(bins))} if mine else {}
                known = {at: mean for at, mean in means.items() if mean is not None}
                colour, line = _STYLES[loss]
                axes.plot(list(known), list(known.values()), line, color=colour, label=loss, marker=".")
            axes.set_xticks(range(len(bins)), bins, rotation=30)
            axes.set(xlabel="share of people who chose the true class", ylabel=words)
        _legend_below(figure)
    return figure


def degradations(rows: "Rows") -> "Figure":
    """Accuracy by level of each degradation, hardest first; a line is the mean over seeds."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for one in rows.points.to_pylist():
        kind, name = one["series"].split(", ")
        if name == "accuracy":
            levels = found.setdefault(kind, {}).setdefault(json.loads(one["settings"])["loss"], {})
            levels.setdefault(one["x"], []).append(one["y"])
    with drawing(9.0, 5.8, len(found), 3) as figure:
        for axes, (kind, losses) in zip(figure.axes, found.items(), strict=True):
            for loss, levels in losses.items():
                colour, line = _STYLES[loss]
                # Of noise, blur and occlusion more is harder; of contrast, brightness and quality less.
                downwards = kind in ("uniform_noise", "blur", "occlusion")
                ordered = sorted(levels, reverse=downwards)
                means = [statistics.fmean(levels[level]) for level in ordered]
                axes.plot(range(len(ordered)), means, line, color=colour, label=loss)
                axes.set_xticks(range(len(ordered)), [f"{level:g}" for level in ordered])
            axes.set(title=kind.replace("_", " "), xlabel="level, hardest first", ylabel="accuracy")
        _legend_below(figure)
    return figure


def _legend_below(figure: "Figure") -> None:
    """One legend for all panels, which lies on none of their lines."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=8)
