"""Figures of the agreement with people: every score by network, and AVH, confidence and norm from epoch to epoch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.report.canvas import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.avh.agreement import network_name
from hardsight_studies.avh.people import PUBLIC

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The last is Okabe and Ito's orange: six networks are trained here.
_COLOURS = (BLUE, RED, GREEN, PURPLE, INK, "#e69f00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def mean_coefficients(networks: Mapping[str, Any]) -> dict[str, float]:
    """The mean over these networks of the scores that all of them have."""
    shared = [
        name
        for name in next(iter(networks.values()))["scores"]
        if all(name in one["scores"] for one in networks.values())
    ]
    return {
        name: float(np.mean([one["scores"][name]["coefficient"]["mean"] for one in networks.values()]))
        for name in shared
    }


def by_origin(networks: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The public networks, and those trained here; either may be empty."""
    public = {key: one for key, one in networks.items() if key.endswith(PUBLIC)}
    trained = {key: one for key, one in networks.items() if key not in public}
    return {"public networks": public, "networks trained here": trained}


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Dots with intervals by score, of the public networks and of those trained here; agreement by epoch."""
    networks: Mapping[str, Any] = results["networks"]
    groups = dict(zip(("public", "trained"), by_origin(networks).values(), strict=True))
    drawn = {name: _dots(group, results["people_with_people"]) for name, group in groups.items() if group}
    if groups["trained"]:
        drawn["epochs"] = _epochs(groups["trained"])
    return drawn


def _dots(networks: Mapping[str, Any], ceiling: float) -> "Figure":
    means = mean_coefficients(networks)
    order = sorted(means, key=lambda name: means[name])
    with drawing(6.8, 1.2 + (0.14 + 0.04 * len(networks)) * len(order)) as figure:
        axes = figure.axes[0]
        step = 0.7 / max(1, len(networks))
        for at, (key, one) in enumerate(networks.items()):
            places = np.arange(len(order)) + (len(networks) / 2 - at - 0.5) * step
            values = np.array([one["scores"][name]["coefficient"]["mean"] for name in order])
            low, high = np.array([one["scores"][name]["interval"] for name in order]).T
            # A BCa interval of few resamples may end on the estimate's other side by a rounding.
            errors = np.maximum(0, [values - low, high - values])
            axes.errorbar(
                values, places, xerr=errors, fmt=_MARKERS[at % len(_MARKERS)], color=_COLOURS[at % len(_COLOURS)],
                markersize=3.5, linewidth=0.9, label=network_name(key, one["seeds"]),
            )  # fmt: skip
        axes.axvline(ceiling, color=INK, linestyle="--", linewidth=1, label="two halves of the people")
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(order)), order)
        for label in axes.get_yticklabels():
            if label.get_text() in ("avh", "confidence", "class_norm"):
                label.set_fontweight("bold")
        axes.set_ylim(-0.6, len(order) - 0.4)
        axes.set_xlabel("Spearman's ρ with human selection frequency, 95 % interval")
        figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    return figure


def _epochs(networks: Mapping[str, Any]) -> "Figure":
    from matplotlib.ticker import MaxNLocator

    with drawing(7.2, 0.4 + 2.4 * -(-len(networks) // 2), panels=len(networks)) as figure:
        styles = (("avh_agreement", "AVH", BLUE, "-"), ("loss_agreement", "confidence", RED, "--"))
        for axes, (key, one) in zip(figure.axes, networks.items(), strict=True):
            for name, title, colour, style in styles:
                values = one["epochs"][name]
                axes.plot(range(1, len(values) + 1), values, color=colour, linestyle=style, label=title)
            norm = one["epochs"]["norm_agreement"]
            axes.plot(range(1, len(norm) + 1), norm, color=GREEN, linestyle=":", label="feature norm")
            best = one["scores"].get("avh_mean")
            if best:
                axes.axhline(best["coefficient"]["mean"], color=PURPLE, linestyle="-.", label="AVH, mean over training")
            axes.set_title(network_name(key, one["seeds"]))
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_ylabel("ρ with people")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return figure
