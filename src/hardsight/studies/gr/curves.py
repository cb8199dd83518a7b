"""Learning curves as figures: test and training accuracy over the epochs, one row of panels a noise rate."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight.studies.gr.trainings import several_seeds

if TYPE_CHECKING:
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
)
_KINDS = {"train": "Training accuracy (%), given labels", "test": "Test accuracy (%)"}


def learning_curves(
    results: Mapping[str, Any], rows: Mapping[str, Sequence[tuple[str, str]]], kinds: Sequence[str] = ("train", "test")
) -> "Figure | None":
    """One row of panels for each title, with a curve for each (name in the legend, kind of cell) that is measured.

    Lines at the same place of their rows look alike. A place that no row has measured takes no style: few curves then
    differ by colour, not by pattern alone.
    """
    curves = results["curves"]
    places = sorted({place for lines in rows.values() for place, (_, key) in enumerate(lines) if curves.get(key)})
    styles = dict(zip(places, STYLES, strict=False))
    there = {
        title: [
            (name, curves[key], styles[place])
            for place, (name, key) in enumerate(lines)
            if curves.get(key) and place in styles
        ]
        for title, lines in rows.items()
    }
    there = {title: lines for title, lines in there.items() if lines}
    if not there:
        return None
    with drawing(9.2, 2.7 * len(there) + 0.2, panels=len(kinds) * len(there), columns=len(kinds)) as figure:
        for row, (title, lines) in enumerate(there.items()):
            for column, kind in enumerate(kinds):
                axes = figure.axes[row * len(kinds) + column]
                for name, curve, style in lines:
                    axes.plot(
                        curve["epoch"], [100 * value for value in curve[kind]], label=name, linewidth=1.3,
                        marker="o" if len(curve["epoch"]) < 3 else None, markersize=3, **style,
                    )  # fmt: skip
                axes.set_title(title)
                axes.set_xlabel("epoch, first seed" if several_seeds(results) else "epoch")
                axes.set_ylabel(_KINDS[kind])
                axes.tick_params(color=FAINT)
                axes.locator_params(axis="x", integer=True)
            # One legend a row, beside it: the panels of a row show the same methods, and curves fill them.
            handles, names = axes.get_legend_handles_labels()
            wrapped = [textwrap.fill(name, 24) for name in names]
            axes.legend(handles, wrapped, fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure
