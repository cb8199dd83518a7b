"""The figures of a record, each drawn from plain values into a `matplotlib.figure.Figure` of its own; no pyplot."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.plotting import BLUE, GREEN, INK, PAPER, PURPLE, RED, Square, drawing, matrix, name_rows, shortened_apart
from hardsight.report.reading import Score
from hardsight.report.view import FARTHEST, Histogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS, _DASHES, _MARKS = (BLUE, RED, GREEN, PURPLE), ("-", "--", "-.", ":"), "os^D"
# Four colours, then again with other dashes and marks: sixteen lines of a panel, no two of them drawn alike.
_LINES = [(_COLOURS[at % 4], _DASHES[(at + at // 4) % 4], _MARKS[at // 4]) for at in range(16)]
GROUP_COLOURS = {"all": BLUE, "intact": BLUE, "flipped": RED}

# Beyond this many points single marks hide each other and weigh megabytes.
MOST_POINTS = 2500
# A matrix or a bar chart with more classes than this can no longer be read.
MOST_CLASSES = 30


def draw_histogram(score: Score, counted: Histogram) -> "Figure":
    """Share of each group in each bin of a score: flipped ones dashed, so that they differ in print."""
    with drawing(3.7, 2.5) as figure:
        axes = figure.axes[0]
        for name in sorted(counted.counts, reverse=True):
            colour, shares, dash = (
                GROUP_COLOURS[name],
                counted.shares(name),
                (0, (4, 1.5)) if name == "flipped" else "-",
            )
            # An outline over a pale filling: two groups stay visible where they overlap, also without colour.
            axes.stairs(shares, counted.edges, fill=True, color=colour, alpha=0.28, linewidth=0)
            label = f"{name} ({int(counted.counts[name].sum()):,})"
            axes.stairs(shares, counted.edges, color=colour, linestyle=dash, linewidth=1.5, label=label)
        if len(counted.counts) > 1:
            # Room above the highest bin, so that the legend hides none.
            axes.set_ylim(0, 1.25 * axes.dataLim.y1)
            axes.legend(loc="upper right", ncols=2, handlelength=1.6, columnspacing=1.2)
        axes.set_title(score.title)
        axes.set_xlabel(_axis_label(score))
        axes.set_ylabel("share of group" if len(counted.counts) > 1 else "share of samples")
        axes.grid(False, axis="x")
        axes.locator_params(axis="x", nbins=5)
    return figure


def draw_plane(
    across: Score, x: np.ndarray, up: Score, y: np.ndarray, groups: Mapping[str, np.ndarray], chance: float | None
) -> "Figure":
    """One score against another, a point per sample; of very many samples some, spread over the table."""
    finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    x, y = (np.clip(values, -FARTHEST, FARTHEST) for values in (x, y))
    rows = finite[np.linspace(0, len(finite) - 1, min(len(finite), MOST_POINTS)).astype(int)]
    with drawing(8.6, 4.4) as figure:
        axes = figure.axes[0]
        for name, mask in (groups or {"all": np.ones(len(x), bool)}).items():
            shown = rows[mask[rows]]
            # Another mark beside the other colour: the groups differ in grey, too.
            mark, label = "^" if name == "flipped" else "o", f"{name} ({len(shown):,})"
            (points,) = axes.plot(x[shown], y[shown], mark, color=GROUP_COLOURS[name], label=label)
            points.set(markersize=3.4, alpha=0.55, markeredgewidth=0)
        if groups:
            axes.legend(loc="upper right", markerscale=1.8)
        axes.set_xlabel(f"{across.title} ({across.reading})")
        axes.set_ylabel(f"{up.title} ({up.reading})")
        if chance is not None:
            axes.axhline(chance, color=INK, linestyle=":", linewidth=1)
    return figure


def draw_curves(columns: Mapping[str, np.ndarray], epochs: np.ndarray) -> "Figure":
    """Every number of the epochs: losses in one panel, accuracies in another, any other in its own."""
    panels: dict[str, list[str]] = {}
    for name in columns:
        kind = next((kind for kind in ("loss", "accuracy") if kind in name), name)
        panels.setdefault(kind, []).append(name)
    with drawing(8.6, 2.8 * -(-len(panels) // 2), panels=len(panels)) as figure:
        for axes, (kind, names) in zip(figure.axes, panels.items(), strict=False):
            for name, (colour, dash, mark) in zip(names, _LINES * len(names), strict=False):
                # What is measured every few epochs, or at the end alone, is joined over the gaps and not invisible.
                known = np.isfinite(columns[name])
                marker = mark if known.sum() < 3 else None
                x, y = (np.clip(values[known], -FARTHEST, FARTHEST) for values in (epochs, columns[name]))
                axes.plot(x, y, dash, color=colour, marker=marker, label=name.replace("_", " "))
            axes.set_title(kind.replace("_", " "))
            axes.set_xlabel("epoch")
            axes.locator_params(axis="x", integer=True)
            if len(names) > 1:
                axes.legend(loc="best")
    return figure


def draw_classes(score: Score, names: Sequence[str], counts: Any, means: Any, chance: float | None) -> "Figure":
    """Mean of a score by class, hardest first, at most `MOST_CLASSES` of them; counts at the bars."""
    order = np.argsort(np.where(np.isnan(means), np.inf, -score.sign * means), kind="stable")
    order = order[counts[order] > 0][:MOST_CLASSES]
    with drawing(8.6, 0.9 + 0.26 * len(order)) as figure:
        axes = figure.axes[0]
        places = np.arange(len(order))
        axes.barh(places, means[order], height=0.72, color=BLUE, alpha=0.75)
        name_rows(axes, [names[at] for at in order])
        for place, at in zip(places, order, strict=True):
            axes.annotate(
                f"{means[at]:.3g}  ({counts[at]:,} {'sample' if counts[at] == 1 else 'samples'})",
                (max(0.0, means[at]), place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                # The line of chance often runs through them.
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
                zorder=4,
            )
        axes.margins(x=0.16)
        if chance is not None:
            axes.axvline(chance, color=RED, linestyle="--", linewidth=1.2, zorder=3)
            label = f"chance {chance:.3g}"
            axes.text(chance, 1.01, label, transform=axes.get_xaxis_transform(), color=RED, fontsize=8)
        axes.set_xlabel(f"mean of {score.name} ({_axis_label(score)})")
    return figure


def draw_confusion(given: Any, predicted: Any, counts: Any, names: Sequence[str]) -> "Figure":
    """Share of each given label's samples that the model gives each class: the rows sum to one."""
    totals = np.bincount(given, weights=counts, minlength=len(names))
    squares = [
        Square(row, column, BLUE if row == column else RED, float(count / totals[row]), f"{count:,}")
        for row, column, count in zip(*(np.asarray(part).tolist() for part in (given, predicted, counts)), strict=True)
    ]
    turned = max(map(len, shortened_apart(names, 14)), default=0) > 3
    figure = matrix(names, squares, 14, 2.2 + 0.36 * len(names), turned=turned)
    figure.axes[0].set_xlabel("predicted label")
    figure.axes[0].set_ylabel("given label")
    return figure


def _axis_label(score: Score) -> str:
    return {"harder": "harder →", "easier": "← harder"}.get(score.direction or "", score.name)
