"""Learning curves as figures: test and training accuracy over the epochs, one row of panels a noise rate."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.gr.judged import several_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by colour and, in print, by the line's pattern.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": INK, "linestyle": "-"},
    {"color": RED, "linestyle": (0, (5, 1.5))},
    {"color": BLUE, "linestyle": "-."},
    {"color": GREEN, "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": PURPLE, "linestyle": (0, (1, 1))},
    {"color": INK, "linestyle": (0, (1, 3))},
    {"color": RED, "linestyle": (0, (1, 3))},
    {"color": BLUE, "linestyle": (0, (1, 3))},
    {"color": GREEN, "linestyle": (0, (1, 3))},
)
_KINDS = {"train": "Training accuracy (%), given labels", "test": "Test accuracy (%)"}


class _Line(NamedTuple):
    """A curve to draw, how it looks, and where the paper's ends."""

    name: str
    curve: Mapping[str, Any]
    style: Mapping[str, Any]
    printed: float | None


def learning_curves(
    results: Mapping[str, Any],
    rows: Mapping[str, Sequence[tuple[str, str]]],
    printed: Mapping[str, float] | None = None,
    name: str = "curves",
    whose: str = "paper's",
) -> "dict[str, Figure]":
    """One row of panels for each title, with a curve for each (name in the legend, kind of cell) that is measured.

    The figure by its `name`; none where nothing is measured.

    `printed`: the paper's last test accuracy in percent by kind of cell, or that of those `whose` it is, a cross at the
    end of the curve; drawn of the paper's preset alone, since no other compares.
    """
    there = _measured(results, rows, printed if printed and results["preset"] == "paper" else {})
    if not there:
        return {}
    with drawing(9.2, 2.7 * len(there) + 0.2, panels=len(_KINDS) * len(there), columns=len(_KINDS)) as figure:
        for row, (title, lines) in enumerate(there.items()):
            for column, kind in enumerate(_KINDS):
                axes = figure.axes[row * len(_KINDS) + column]
                _draw(axes, lines, kind, whose)
                axes.set_title(title)
                axes.set_xlabel("epoch, first seed" if several_seeds(results) else "epoch")
            # One legend a row, beside it: the panels of a row show the same methods, and curves fill them.
            handles, names = axes.get_legend_handles_labels()
            wrapped = [textwrap.fill(one, 24) for one in names]
            axes.legend(handles, wrapped, fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return {name: figure}


def _measured(
    results: Mapping[str, Any], rows: Mapping[str, Sequence[tuple[str, str]]], printed: Mapping[str, float]
) -> dict[str, list[_Line]]:
    """What is there to draw, by row. Lines at the same place of their rows look alike.

    A place that no row has measured takes no style: few curves then differ by colour, not by pattern alone.
    """
    curves = results["curves"]
    places = sorted({place for lines in rows.values() for place, (_, key) in enumerate(lines) if curves.get(key)})
    styles = dict(zip(places, STYLES, strict=False))
    there = {
        title: [
            _Line(name, curves[key], styles[place], printed.get(key))
            for place, (name, key) in enumerate(lines)
            if curves.get(key) and place in styles
        ]
        for title, lines in rows.items()
    }
    return {title: lines for title, lines in there.items() if lines}


def _draw(axes: "Axes", lines: Sequence[_Line], kind: str, whose: str) -> None:
    for line in lines:
        epochs, values = line.curve["epoch"], [100 * value for value in line.curve[kind]]
        marker = "o" if len(epochs) < 3 else None
        axes.plot(epochs, values, label=line.name, linewidth=1.3, marker=marker, markersize=3, **line.style)
        if kind == "test" and line.printed is not None:
            axes.plot(epochs[-1], line.printed, "x", color=line.style["color"], markersize=7, markeredgewidth=1.8)
    if kind == "test" and any(line.printed is not None for line in lines):
        axes.plot([], [], "x", color=INK, label=f"{whose}, at the end")
    axes.set_ylabel(_KINDS[kind])
    axes.tick_params(color=FAINT)
    axes.locator_params(axis="x", integer=True)
