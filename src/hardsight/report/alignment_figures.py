"""The figures of an alignment, drawn from its results alone; every number in them is in alignment.json."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.alignment.shown import METHOD_NAMES
from hardsight.plotting import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    RED,
    Square,
    drawing,
    matrix,
    name_rows,
    shortened,
    shortened_apart,
)
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
        for (low, high), alpha in zip(steps, _FADING[-len(steps) :], strict=True):
            label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            _cells(axes, x, y, (counts >= low) & (counts <= high), alpha, label)
        centres = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
        span = (score["high"] - score["low"]) or 1.0
        medians = [np.nan if value is None else (value - score["low"]) / span for value in score["medians"]]
        axes.plot(centres, medians, "--o", color=RED, markersize=4.5, linewidth=1.4, label="median of a fifth")
        axes.set_xlim(x[0], x[-1])
        axes.set_ylim(0, 1)
        axes.set_xlabel(shortened(human, 40))
        axes.set_ylabel(f"{shortened(score['name'], 18)}: {score['low']:.3g} to {score['high']:.3g}, scaled")
        found = score["correlations"][method]["coefficient"]
        axes.set_title(shortened(score["title"], 32))
        axes.set_title(f"{METHOD_NAMES[method][-1]} {found:.3f}", loc="right")
        _key(figure, axes)
    return figure


def draw_bins(scores: Sequence[Mapping[str, Any]], bins: Mapping[str, Any], human: str) -> "Figure":
    """The coefficient within each bin of the human value, one panel a score, with intervals and counts."""
    shown = scores[:MOST_PANELS]
    rows = -(-len(shown) // 3)
    with drawing(8.6, 0.3 + 2.5 * rows, panels=len(shown), columns=3) as figure:
        titles = shortened_apart([score["title"] for score in shown], 30)
        for axes, score, title in zip(figure.axes, shown, titles, strict=True):
            groups = bins["groups"][score["name"]]
            for place, group in enumerate(groups):
                found = group["correlation"]
                if found is not None:
                    _with_interval(axes, found["coefficient"], place, found["interval"], BLUE, "o", upright=True)
            axes.axhline(0, color=INK, linewidth=0.8)
            axes.set_xticks(range(len(groups)), [f"{_edge(group['group'])}\n{group['n']:,}" for group in groups])
            axes.tick_params(axis="x", length=0, labelsize=7)
            axes.set_xlim(-0.6, len(groups) - 0.4)
            axes.grid(False, axis="x")
            axes.set_title(title)
        _share_limits(figure.axes, "y")
        figure.supxlabel(f"bin of {shortened(human, 40)}, and its number of samples", fontsize=9)
        figure.supylabel("correlation within the bin", fontsize=9)
    return figure


def draw_groups(scores: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """The coefficient within each class, one panel a score, the same order in all: best by the first score on top."""
    shown = scores[:MOST_PANELS]
    names = _class_order([groups[score["name"]] for score in scores])
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with drawing(8.6, rows * (0.9 + 0.23 * len(names)), panels=len(shown), columns=columns) as figure:
        titles = shortened_apart([score["title"] for score in shown], 30)
        for at, (axes, score) in enumerate(zip(figure.axes, shown, strict=True)):
            by_name = {group["group"]: group["correlation"] for group in groups[score["name"]]}
            for place, name in enumerate(names):
                found = by_name.get(name)
                if found is not None:
                    _with_interval(axes, found["coefficient"], place, found["interval"], BLUE, "o")
            axes.axvline(0, color=INK, linewidth=0.8)
            name_rows(axes, [str(name) for name in names], 16)
            axes.grid(True, axis="y")
            axes.tick_params(labelleft=at % columns == 0)
            axes.set_title(titles[at])
        _share_limits(figure.axes, "x")
        figure.supxlabel("correlation within the class", fontsize=9)
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
        Square(row, column, BLUE if value >= 0 else RED, abs(value), f"{value:.2f}")
        for row, values in enumerate(agreement["matrix"])
        for column, value in enumerate(values)
    ]
    figure = matrix(names, squares, 16, 1.9 + 0.48 * len(names), turned=True)
    for spine in figure.axes[0].spines.values():
        spine.set_visible(False)
    return figure


def _with_interval(
    axes: "Axes", value: float, place: float | int, interval: Any, colour: str, mark: str, *, upright: bool = False
) -> None:
    if interval and interval["low"] is not None:
        draw = axes.vlines if upright else axes.hlines
        draw(place, interval["low"], interval["high"], color=colour, linewidth=1.6)
    point = (place, value) if upright else (value, place)
    axes.plot(*point, mark, color=colour, markersize=5)


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


def _key(figure: "Figure", axes: "Axes") -> None:
    """A legend for the darkest, a middle and the palest step, and the line."""
    handles, labels = axes.get_legend_handles_labels()
    cells = len(handles) - 1
    # Patches come after lines in matplotlib's own order only sometimes: look at the kind.
    steps = [at for at, handle in enumerate(handles) if not hasattr(handle, "get_markersize")]
    line = next(at for at in range(len(handles)) if at not in steps)
    kept = sorted({steps[0], steps[cells // 2], steps[-1]})
    figure.legend(
        [handles[at] for at in (*kept, line)],
        [*(labels[at] for at in kept[:-1]), f"{labels[kept[-1]]} {_samples(labels[kept[-1]])}", "median"],
        loc="outside lower center",
        ncols=4,
        fontsize=7,
        handlelength=1.2,
        columnspacing=0.9,
        handletextpad=0.4,
    )


def _samples(count: str) -> str:
    return "sample" if count == "1" else "samples"


def _steps(largest: int) -> list[tuple[int, int]]:
    """Ranges of counts from 1 to the largest, each about as wide as the others on a logarithmic scale."""
    bounds = np.unique(np.geomspace(1, largest + 1, len(_FADING) + 1).round().astype(int))
    return [(int(low), int(high) - 1) for low, high in itertools.pairwise(bounds)]


def _edge(bounds: Sequence[float]) -> str:
    return f"{bounds[0]:.4g}–{bounds[1]:.4g}"


def _class_order(by_score: Sequence[Sequence[Mapping[str, Any]]]) -> list[Any]:
    """Classes in which some score has a correlation, by the first score's; those it has none in come last."""
    measured = [ones for ones in zip(*by_score, strict=True) if any(one["correlation"] for one in ones)]
    strength = [(ones[0]["correlation"] or {}).get("coefficient", -2) for ones in measured]
    order = sorted(range(len(measured)), key=lambda at: -strength[at])
    return [measured[at][0]["group"] for at in order[:MOST_CLASSES]]


def _share_limits(panels: Sequence["Axes"], side: str) -> None:
    limits = [getattr(axes, f"get_{side}lim")() for axes in panels]
    low, high = min(pair[0] for pair in limits), max(pair[1] for pair in limits)
    for axes in panels:
        getattr(axes, f"set_{side}lim")(low, high)
        axes.spines["left" if side == "x" else "bottom"].set_color(FAINT)
