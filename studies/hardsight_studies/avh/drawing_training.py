"""Curves of a training in groups of test images, from points alone: a row of panels for each network."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.alignment import FIVE_BINS
from hardsight.plotting import drawing
from hardsight_studies.avh.drawing import Points
from hardsight_studies.engine.rows import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Five steps of viridis, dark for the hardest: in order also in grey and for colour-blind eyes; and five dashes.
ORDERED = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d8c40f")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 0.8)), "-")
PANELS = {"norm": "feature norm", "avh": "AVH", "correct": "accuracy", "confidence": "confidence in the label"}
# Above which there is none; below 0 there is none of any.
ENDS = {"avh": 1.0, "confidence": 1.0}


def _groups(rows: Rows, grouping: str) -> list[str]:
    """The five groups, hardest first: noise falls, contrast and human selection frequency rise."""
    if grouping == "human":
        return [f"{low:.1f} to {low + 0.2:.1f}" for low in FIVE_BINS[:-1]]
    levels = sorted(rows.options("level", degradation=grouping), reverse=grouping == "noise")
    return [f"{level:g}" for level in levels]


def _grouped(rows: Rows, grouping: str, quantities: Sequence[str] = ("norm", "avh", "correct")) -> "Figure":
    """A panel for each network and quantity, a line and a band of one standard deviation for each group."""
    from matplotlib.lines import Line2D

    points, groups = Points(rows), _groups(rows, grouping)
    panels = [(network, quantity) for network in points.networks for quantity in quantities]
    columns = 3 if len(quantities) > 1 else 4
    with drawing(8.6, 0.6 + 2.0 * -(-len(panels) // columns), panels=len(panels), columns=columns) as figure:
        for axes, (network, quantity) in zip(figure.axes, panels, strict=True):
            for at in range(len(groups)):
                _line(axes, points, network, f"{grouping}{at}", quantity, ORDERED[at], DASHES[at])
            _name(axes, points.title(network), quantity)
        handles = [Line2D([], [], color=ORDERED[at], linestyle=DASHES[at]) for at in range(len(groups))]
        title = {"human": "human selection frequency"}.get(grouping, grouping)
        figure.legend(
            handles, groups, loc="outside upper center", ncols=5, fontsize=7.5, title=f"{title}, hardest first"
        )
    return figure


def _line(axes: "Axes", points: Points, network: str, group: str, quantity: str, colour: str, dash: Any) -> None:
    """The mean over the images of a group, and one standard deviation of them, cut where the quantity ends."""
    curve = points.of(f"{group}_{quantity}", network=network)
    if not len(curve["x"]):
        return
    axes.plot(curve["x"], curve["y"], color=colour, linestyle=dash, linewidth=1.5)
    if quantity != "correct":
        apart = points.of(f"{group}_{quantity}_sd", network=network)["y"]
        low, high = np.maximum(curve["y"] - apart, 0.0), np.minimum(curve["y"] + apart, ENDS.get(quantity, np.inf))
        axes.fill_between(curve["x"], low, high, color=colour, alpha=0.12, linewidth=0)


def _name(axes: "Axes", network: str, quantity: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(network, fontsize=9)
    axes.set_ylabel(PANELS[quantity])
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


by_people, by_noise, by_contrast = (functools.partial(_grouped, grouping=one) for one in ("human", "noise", "contrast"))
confidence_by_people = functools.partial(_grouped, grouping="human", quantities=("confidence",))
