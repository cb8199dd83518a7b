"""Paths of adversarial examples, drawn from points alone (AVH, Figure 22)."""

from typing import TYPE_CHECKING

import numpy as np

from hardsight.plotting import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.avh.drawing import Points
from hardsight_studies.engine.rows import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Steps that are drawn after the prediction has switched; what comes later is far away, and another story.
BEYOND = 2


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
