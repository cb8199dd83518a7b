"""Curves from points alone: of a training in groups of test images, and of paths of adversarial examples (Fig. 22)."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.alignment import FIVE_BINS
from hardsight.plotting import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
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
# Steps that are drawn after the prediction has switched; what comes later is far away, and another story.
BEYOND = 2


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


def paths(rows: Rows) -> "Figure":
    """Figure 22: norm and angle by step, and single paths seen from the label's weights, for each network."""
    points = Points(rows)
    with drawing(8.6, 2.9 * len(points.networks), panels=3 * len(points.networks), columns=3) as figure:
        for at, network in enumerate(points.networks):
            norm, angle, polar = figure.axes[3 * at : 3 * at + 3]
            for axes, series, colour, mark, label in (
                (norm, "norm", BLUE, "-", "PGD"),
                (angle, "angle", BLUE, "-", "PGD, to the label"),
                (angle, "end_angle", PURPLE, "-.", "PGD, to the class at the end"),
            ):
                one = points.of(series, network=network, attack="pgd")
                axes.plot(one["x"], one["y"], mark, color=colour, linewidth=1.8, label=label)
                axes.fill_between(one["x"], one["low"], one["high"], color=colour, alpha=0.15, linewidth=0)
                if series != "end_angle":
                    beside = points.of(series, network=network, attack="fgsm")
                    axes.plot(beside["x"], beside["y"], ":", color=RED, linewidth=1.8, label="FGSM")
            norm.set(xlabel="step", ylabel="norm, share of the first", title=points.title(network))
            angle.set(xlabel="step", ylabel="angle (degrees)")
            for axes in (norm, angle):
                axes.legend(fontsize=6.5)
            for one in _single(points, network):
                turned = np.radians(one["angle"])
                _path(polar, one["y"] * np.cos(turned), one["y"] * np.sin(turned), int(one["switch"][0]))
            polar.set(aspect="equal", xlabel="norm along the label's weights", ylabel="norm across them")
    return figure


def paths_in_plane(rows: Rows) -> "Figure":
    """Figure 22 for a network of two features: the paths as they are, digits at the medians of their classes."""
    points = Points(rows)
    shown = [network for network in points.networks if "images" in points.names(network=network)]
    with drawing(4.6, 4.0 * max(1, len(shown)), panels=max(1, len(shown)), columns=1) as figure:
        for axes, network in zip(figure.axes, shown, strict=False):
            images = points.of("images", network=network)
            axes.scatter(images["x"], images["y"], s=3, color=FAINT, linewidths=0)
            for label in np.unique(images["label"]):
                x, y = (np.median(images[name][images["label"] == label]) for name in ("x", "y"))
                axes.text(x, y, f"{label:.0f}", color=INK, weight="bold", ha="center", va="center")
            for one in _single(points, network):
                _path(axes, one["first"], one["second"], int(one["switch"][0]))
            axes.set(aspect="equal", xlabel="first feature", ylabel="second feature", title=points.title(network))
    return figure


def _single(points: Points, network: str) -> list[dict[str, np.ndarray]]:
    names = sorted(name for name in points.names(network=network, attack="pgd") if name.startswith("path"))
    return [points.of(name, network=network, attack="pgd") for name in names]


def _path(axes: "Axes", x: np.ndarray, y: np.ndarray, switch: int) -> None:
    """A path to the switch of the prediction and a little on: from the dot to the cross."""
    axes.plot(x[: switch + 1 + BEYOND], y[: switch + 1 + BEYOND], color=FAINT, linewidth=1.0)
    axes.plot(x[: switch + 1], y[: switch + 1], color=PURPLE, linewidth=1.3)
    axes.plot(x[0], y[0], "o", color=GREEN, markersize=3.5)
    axes.plot(x[switch], y[switch], "x", color=RED, markersize=5)
