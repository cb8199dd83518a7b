"""Paths of adversarial examples, drawn from results alone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Steps that are drawn after the prediction has switched; what comes later is far away, and another story.
BEYOND = 2


def draw_paths(title: str, found: Mapping[str, Any]) -> "Figure":
    """Norm and angle by step, single paths seen from the label's weights, and the two features where there are two."""
    panels = 4 if found["plane"] else 3
    size, columns = ((8.6, 6.2), 2) if panels == 4 else ((8.6, 2.9), 3)
    with drawing(*size, panels=panels, columns=columns) as figure:
        _by_step(figure.axes[0], found, "norm", "norm, share of the first")
        _by_step(figure.axes[1], found, "angle", "angle (degrees)")
        _by_step(figure.axes[1], found, "end_angle", None)
        # Room above the curves, which otherwise run beneath the legend.
        low, high = figure.axes[1].get_ylim()
        figure.axes[1].set_ylim(low, high + 0.25 * (high - low))
        figure.axes[1].legend(fontsize=7, loc="upper left")
        figure.axes[0].set_title(f"{title}: {found['images']:,} images", fontsize=9)
        figure.axes[1].set_title("median and quartiles", fontsize=9)
        _polar(figure.axes[2], found)
        if found["plane"]:
            _in_plane(figure.axes[3], found)
    return figure


def _by_step(axes: "Axes", found: Mapping[str, Any], name: str, label: str | None) -> None:
    marks = {"norm": (BLUE, "-"), "angle": (BLUE, "-"), "end_angle": (PURPLE, "-.")}
    titles = {"norm": "PGD", "angle": "PGD, to the label", "end_angle": "PGD, to the class at the end"}
    low, middle, high = (np.array(one, dtype=np.float64) for one in found["pgd"][name])
    share = np.linspace(0, 100, len(middle))
    colour, dash = marks[name]
    axes.plot(share, middle, dash, color=colour, linewidth=1.8, label=titles[name])
    axes.fill_between(share, low, high, color=colour, alpha=0.15, linewidth=0)
    if label is not None:
        beside = "FGSM" if name == "norm" else "FGSM, to the label"
        axes.plot(share, found["fgsm"][name][1], ":", color=RED, linewidth=1.8, label=beside)
        axes.set_ylabel(label)
        axes.set_xlabel(f"radius, % of {found['radius']:.3g}")
    if name == "norm":
        axes.legend(fontsize=7)


def _polar(axes: "Axes", found: Mapping[str, Any]) -> None:
    """Each path with the label's weights pointing right: norm and angle as they are."""
    for example in found["pgd"]["examples"]:
        norm, angle = np.array(example["norm"]), np.radians(example["angle"])
        x, y, switch = norm * np.cos(angle), norm * np.sin(angle), example["switch"]
        axes.plot(x[: switch + 1 + BEYOND], y[: switch + 1 + BEYOND], color=FAINT, linewidth=1.0)
        axes.plot(x[: switch + 1], y[: switch + 1], color=PURPLE, linewidth=1.3)
        axes.plot(x[0], y[0], "o", color=GREEN, markersize=3.5)
        axes.plot(x[switch], y[switch], "x", color=RED, markersize=5)
    for text, mark, colour in (("image", "o", GREEN), ("another class is predicted", "x", RED), ("origin", "+", INK)):
        axes.plot([0] if text == "origin" else [], [0] if text == "origin" else [], mark, color=colour, label=text)
    axes.plot([], [], color=FAINT, linewidth=1.0, label=f"{BEYOND} steps on")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("norm along the label's weights")
    axes.set_ylabel("norm across them")
    axes.set_title(f"{len(found['pgd']['examples'])} paths to the switch", fontsize=9)
    axes.legend(fontsize=6.5, loc="best")


def _in_plane(axes: "Axes", found: Mapping[str, Any]) -> None:
    """The two features themselves: every class a digit, some paths over them."""
    plane = found["plane"]
    x, y, labels = (np.array(plane[name]) for name in ("x", "y", "label"))
    axes.scatter(x, y, s=3, color=FAINT, linewidths=0)
    for name in np.unique(labels):
        across, up = np.median(x[labels == name]), np.median(y[labels == name])
        axes.text(across, up, str(name), color=INK, fontsize=10, weight="bold", ha="center", va="center")
    for example in found["pgd"]["examples"]:
        across, up, switch = example["x"], example["y"], example["switch"]
        axes.plot(across[: switch + 1 + BEYOND], up[: switch + 1 + BEYOND], color=FAINT, linewidth=1.0)
        axes.plot(across[: switch + 1], up[: switch + 1], color=PURPLE, linewidth=1.3)
        axes.plot(across[0], up[0], "o", color=GREEN, markersize=3.5)
        axes.plot(across[switch], up[switch], "x", color=RED, markersize=5)
    axes.plot(0, 0, "+", color=INK, markersize=8)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("first feature")
    axes.set_ylabel("second feature")
    axes.set_title("the two features, digits at their medians", fontsize=9)
