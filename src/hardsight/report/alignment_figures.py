"""The figures of an alignment, drawn from its results alone; every number in them is in alignment.json."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight import plotting
from hardsight.alignment.analysis import METHOD_NAMES
from hardsight.plotting import BLUE, FAINT, GREEN, INK, RED, drawing, name_rows, shortened, shortened_apart
from hardsight.report.figures import MOST_CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More panels or pairs than these are no longer looked at; the tables and the JSON hold all.
MOST_PANELS = 9
MOST_PAIRS = 15

_MARKS = {"spearman": (BLUE, "o"), "pearson": (RED, "s"), "kendall": (GREEN, "^")}
# Steps of one hue that fades to nothing: it works on a light and a dark page, and in grey.
_FADING = (0.10, 0.2, 0.32, 0.46, 0.62, 0.8, 1.0)


def draw_strengths(scores: Sequence[Mapping[str, Any]]) -> "Figure":
    """All three coefficients of each score with their intervals, strongest first; each has its own mark and colour."""
    with drawing(8.6, 1.3 + 0.42 * len(scores)) as figure:
        axes = figure.axes[0]
        for shift, (method, (colour, mark)) in zip((-0.2, 0.0, 0.2), _MARKS.items(), strict=True):
            for place, score in enumerate(scores):
                found = score["correlations"][method]
                _with_interval(axes, found["coefficient"], place + shift, found["interval"], colour, mark)
            axes.plot([], [], mark, color=colour, label=METHOD_NAMES[method])
        axes.axvline(0, color=INK, linewidth=0.8)
        name_rows(axes, [score["title"] for score in scores], 28)
        axes.set_xlabel("agreement with people: correlation after turning each score (right is better)")
        figure.legend(loc="outside upper right", ncols=3, handletextpad=0.2)
    return figure


def draw_joint(score: Mapping[str, Any], human: str, method: str, edges: Sequence[float]) -> "Figure":
    """Counts of samples by human value and score scaled to [0, 1], in logarithmic steps, and the median of each bin."""
    histogram = score["histogram"]
    counts = np.asarray(histogram["counts"])
    x, y = np.asarray(histogram["human_edges"]), np.asarray(histogram["score_edges"])
    with drawing(3.9, 3.5) as figure:
        axes = figure.axes[0]
        steps = _steps(int(counts.max()))
        # The palest, a middle and the darkest step are enough of a legend.
        named = {0, len(steps) // 2, len(steps) - 1}
        for at, ((low, high), alpha) in enumerate(zip(steps, _FADING[-len(steps) :], strict=True)):
            label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            unit = f" {'sample' if high == 1 else 'samples'}" if at == len(steps) - 1 else ""
            _cells(axes, x, y, (counts >= low) & (counts <= high), alpha, f"{label}{unit}" if at in named else "")
        centres = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
        span = (score["high"] - score["low"]) or 1.0
        medians = [np.nan if value is None else (value - score["low"]) / span for value in score["medians"]]
        axes.plot(centres, medians, "--o", color=RED, markersize=4.5, linewidth=1.4, label="median")
        axes.set_xlim(x[0], x[-1])
        axes.set_ylim(0, 1)
        axes.set_xlabel(shortened(human, 40))
        axes.set_ylabel(f"{shortened(score['name'], 18)}: {score['low']:.3g} to {score['high']:.3g}, scaled")
        found = score["correlations"][method]["coefficient"]
        axes.set_title(shortened(score["title"], 32))
        axes.set_title(f"{METHOD_NAMES[method][-1]} {found:.3f}", loc="right")
        figure.legend(
            loc="outside lower center", ncols=4, fontsize=7, handlelength=1.2, columnspacing=0.9, handletextpad=0.4
        )
    return figure


def draw_bins(scores: Sequence[Mapping[str, Any]], bins: Mapping[str, Any], human: str) -> "Figure":
    """The coefficient within each bin of the human value, with intervals and counts."""
    groups = bins["groups"]
    names = ["{:.4g}–{:.4g} ({:,})".format(*group["group"], group["n"]) for group in groups[scores[0]["name"]]]
    by_score = [[group["correlation"] for group in groups[score["name"]]] for score in scores]
    return _panels(scores, by_score, names, "correlation within the bin", f"bin of {shortened(human, 40)} (samples)")


def draw_groups(scores: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """The coefficient within each class, in the same order for every score: best by the first score on top.

    Classes in which no score has a correlation are left out, those in which the first has none come last.
    """
    ranked = [[group["correlation"] for group in groups[score["name"]]] for score in scores]
    names = [str(group["group"]) for group in groups[scores[0]["name"]]]
    measured = [at for at in range(len(names)) if any(found[at] for found in ranked)]
    order = sorted(measured, key=lambda at: -(ranked[0][at] or {}).get("coefficient", -2))[:MOST_CLASSES]
    by_score = [[found[at] for at in order] for found in ranked]
    return _panels(scores, by_score, [names[at] for at in order], "correlation within the class", "")


def _panels(
    scores: Sequence[Mapping[str, Any]], by_score: Sequence[Sequence[Any]], names: list[str], across: str, up: str
) -> "Figure":
    """One panel for each score, a row for each group: its coefficient with its interval, where it has one."""
    shown = scores[:MOST_PANELS]
    columns = min(3, len(shown))
    height = -(-len(shown) // columns) * (0.9 + 0.23 * len(names))
    with drawing(8.6, height, panels=len(shown), columns=columns) as figure:
        titles = shortened_apart([score["title"] for score in shown], 30)
        for at, (axes, correlations, title) in enumerate(zip(figure.axes, by_score, titles, strict=False)):
            for place, found in enumerate(correlations):
                if found is not None:
                    _with_interval(axes, found["coefficient"], place, found["interval"], BLUE, "o")
            axes.axvline(0, color=INK, linewidth=0.8)
            name_rows(axes, names, 20)
            axes.grid(True, axis="y")
            axes.tick_params(labelleft=at % columns == 0)
            axes.set_title(title)
        limits = [axes.get_xlim() for axes in figure.axes]
        for axes in figure.axes:
            axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
            axes.spines["left"].set_color(FAINT)
        figure.supxlabel(across, fontsize=9)
        figure.supylabel(up, fontsize=9)
    return figure


def draw_comparisons(pairs: Sequence[Mapping[str, Any]], method: str) -> "Figure":
    """Difference between the agreement of two scores, with its interval: right of zero, the first is stronger."""
    shown = pairs[:MOST_PAIRS]
    with drawing(8.6, 1.0 + 0.3 * len(shown)) as figure:
        axes = figure.axes[0]
        for place, pair in enumerate(shown):
            _with_interval(axes, pair["difference"], place, pair.get("interval"), BLUE, "o")
        axes.axvline(0, color=INK, linewidth=0.8)
        names = list(dict.fromkeys(pair[side] for pair in shown for side in ("first", "second")))
        short = dict(zip(names, shortened_apart(names, 18), strict=True))
        name_rows(axes, [f"{short[pair['first']]} − {short[pair['second']]}" for pair in shown], 40)
        axes.set_xlabel(f"difference of {METHOD_NAMES[method]}")
    return figure


def draw_agreement(agreement: Mapping[str, Any]) -> "Figure":
    """How alike the scores rank the samples: blue for alike, vermilion for opposite, the numbers in the squares."""
    names = agreement["names"]
    squares = [
        plotting.Square(row, column, BLUE if value >= 0 else RED, abs(value), f"{value:.2f}")
        for row, values in enumerate(agreement["matrix"])
        for column, value in enumerate(values)
    ]
    figure = plotting.matrix(names, squares, 16, 1.9 + 0.48 * len(names), turned=True)
    for spine in figure.axes[0].spines.values():
        spine.set_visible(False)
    return figure


def _with_interval(axes: "Axes", value: float, place: float | int, interval: Any, colour: str, mark: str) -> None:
    if interval and interval["low"] is not None:
        axes.hlines(place, interval["low"], interval["high"], color=colour, linewidth=1.6)
    axes.plot(value, place, mark, color=colour, markersize=5)


def _cells(axes: "Axes", x: np.ndarray, y: np.ndarray, inside: np.ndarray, alpha: float, label: str) -> None:
    """All cells of one step as a single shape: a page with thousands of rectangles is slow and heavy."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    cells = [
        Path([(x[i], y[j]), (x[i + 1], y[j]), (x[i + 1], y[j + 1]), (x[i], y[j + 1]), (x[i], y[j])], closed=True)
        for i, j in zip(*np.nonzero(inside), strict=True)
    ]
    shape = Path.make_compound_path(*cells) if cells else Path(np.empty((0, 2)))
    axes.add_patch(PathPatch(shape, facecolor=BLUE, alpha=alpha, linewidth=0, label=label))


def _steps(largest: int) -> list[tuple[int, int]]:
    """Ranges of counts from 1 to the largest, each about as wide as the others on a logarithmic scale."""
    bounds = np.unique(np.geomspace(1, largest + 1, len(_FADING) + 1).round().astype(int))
    return [(int(low), int(high) - 1) for low, high in itertools.pairwise(bounds)]
