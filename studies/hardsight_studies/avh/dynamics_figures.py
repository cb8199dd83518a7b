"""The curves of a training, drawn from results alone: a row of panels a network, a line and a band a group."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.report.canvas import BLUE, GREEN, INK, RED, drawing
from hardsight_studies.avh.groups import ALL, CONTRAST, HUMAN, NOISE, Grouping
from hardsight_studies.avh.levels_figures import draw_levels
from hardsight_studies.avh.people import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Five steps of viridis, dark for the hardest: in order also in grey and for colour-blind eyes; and five dashes.
ORDERED = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d8c40f")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 0.8)), "-")
# Above which there is none, where there is such a value; below 0 there is none of either.
ENDS = {"avh": 1.0, "confidence": 1.0}
PANELS = {"norm": "feature norm", "avh": "AVH", "correct": "accuracy", "confidence": "confidence in the label"}


def draw_dynamics(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The paper's figures that these curves are, by its numbers."""
    networks: Mapping[str, Any] = results["networks"]
    figures: dict[str, Figure] = {}
    if any(HUMAN.name in one["curves"] for one in networks.values()):
        figures["figure4"] = draw_groups(networks, HUMAN)
        figures["figure9"] = draw_confidence(networks)
        figures["figures10-13"] = draw_together(networks)
        figures["figure11"] = draw_groups(networks, NOISE)
        figures["figure12"] = draw_groups(networks, CONTRAST)
        figures["observation3"] = draw_agreement(networks)
    else:
        figures["figure14"] = draw_together(networks)
        figures["noise"] = draw_groups(networks, NOISE)
        figures["contrast"] = draw_groups(networks, CONTRAST)
    levels = {TITLES.get(name, name): one["levels"] for name, one in networks.items() if one["levels"]}
    for name, grouping in (("figure17", NOISE), ("figure18", CONTRAST)):
        if levels:
            figures[f"{name}-trained"] = draw_levels({key: one[grouping.name] for key, one in levels.items()}, grouping)
    return figures


def draw_groups(networks: Mapping[str, Any], grouping: Grouping) -> "Figure":
    """Norm, AVH and accuracy by group (Figs. 4, 11, 12); bands are one standard deviation of the images, cut."""
    shown = {name: one for name, one in networks.items() if grouping.name in one["curves"]}
    quantities = ("norm", "avh", "correct")
    top = _highest(shown, grouping, "correct")
    with drawing(8.6, 0.5 + 2.0 * len(shown), panels=3 * len(shown), columns=3) as figure:
        for row, (name, one) in enumerate(shown.items()):
            for column, quantity in enumerate(quantities):
                axes = figure.axes[3 * row + column]
                for group, curves in enumerate(one["curves"][grouping.name]):
                    _line(axes, curves, quantity, group)
                _name(axes, name, quantity)
                if quantity == "correct":
                    axes.set_ylim(0, top)
                _epochs(axes, labelled=row == len(shown) - 1)
        _legend(figure, grouping, next(iter(shown.values())))
    return figure


def draw_confidence(networks: Mapping[str, Any]) -> "Figure":
    """Confidence by bin of human frequency (Fig. 9)."""
    shown = {name: one for name, one in networks.items() if HUMAN.name in one["curves"]}
    with drawing(8.6, 2.8 * -(-len(shown) // 4) + 0.3, panels=len(shown), columns=4) as figure:
        for axes, (name, one) in zip(figure.axes, shown.items(), strict=True):
            for group, curves in enumerate(one["curves"][HUMAN.name]):
                _line(axes, curves, "confidence", group)
            axes.set_title(TITLES.get(name, name), fontsize=9)
            axes.set_ylim(0, _highest(shown, HUMAN, "confidence", "confidence_sd"))
            _epochs(axes)
        figure.axes[0].set_ylabel(PANELS["confidence"])
        _legend(figure, HUMAN, next(iter(shown.values())))
    return figure


def draw_together(networks: Mapping[str, Any]) -> "Figure":
    """Norm, AVH and accuracy over all test images (Figs. 10, 13, 14), with AVH's plateau and the best accuracy."""
    with drawing(8.6, 0.5 + 2.0 * len(networks), panels=3 * len(networks), columns=3) as figure:
        for row, (name, one) in enumerate(networks.items()):
            curves, measures = one["curves"][ALL][0], one["measures"]
            for column, (quantity, colour) in enumerate((("norm", GREEN), ("avh", BLUE), ("correct", RED))):
                axes = figure.axes[3 * row + column]
                times = np.arange(1, len(curves[quantity]) + 1)
                axes.plot(times, curves[quantity], color=colour, linewidth=1.6)
                if quantity != "correct":
                    draw_band(axes, times, curves, quantity, colour)
                settled = axes.axvline(measures["plateau"]["mean"], color=INK, linestyle="--", linewidth=1.0)
                best = axes.axvline(measures["best_time"]["mean"], color=INK, linestyle=":", linewidth=1.4)
                _name(axes, name, quantity)
                _epochs(axes, labelled=row == len(networks) - 1)
        figure.legend(
            [settled, best], ["AVH has settled", "best accuracy"], loc="outside upper center", ncols=2, fontsize=8
        )
    return figure


def draw_agreement(networks: Mapping[str, Any]) -> "Figure":
    """Rank correlation with people after every epoch, of AVH, confidence and norm, turned so that up is agreement."""
    shown = {name: one for name, one in networks.items() if one["rho"]}
    marks = {
        "avh": ("AVH (turned)", BLUE, "-", -1),
        "confidence": ("confidence", RED, "--", 1),
        "norm": ("norm", GREEN, ":", 1),
    }
    with drawing(8.6, 2.6 * -(-len(shown) // 4) + 0.3, panels=len(shown), columns=4) as figure:
        for axes, (name, one) in zip(figure.axes, shown.items(), strict=True):
            for score, (text, colour, dash, sign) in marks.items():
                values = sign * np.array(one["rho"][score], dtype=np.float64)
                axes.plot(np.arange(1, len(values) + 1), values, dash, color=colour, label=text, linewidth=1.8)
            axes.axhline(0, color=INK, linewidth=0.6)
            axes.set_title(TITLES.get(name, name), fontsize=9)
            _epochs(axes)
        figure.axes[0].set_ylabel("Spearman's ρ with human frequency")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)
    return figure


def _name(axes: "Axes", network: str, quantity: str) -> None:
    """The network above, the quantity at the side."""
    axes.set_title(TITLES.get(network, network), fontsize=9)
    axes.set_ylabel(PANELS[quantity])


def _highest(networks: Mapping[str, Any], grouping: Grouping, quantity: str, band: str | None = None) -> float:
    """One end of the axis for all networks: a little above the highest line (with its band), at most 1.02."""
    ends = [
        np.array(curves[quantity], np.float64) + (np.array(curves[band], np.float64) if band else 0.0)
        for one in networks.values()
        for curves in one["curves"][grouping.name]
    ]
    return min(1.02, 1.05 * float(np.nanmax(np.concatenate([[0.1], *ends]))))


def _epochs(axes: "Axes", *, labelled: bool = True) -> None:
    """Whole epochs along the axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if labelled:
        axes.set_xlabel("epoch")


def _line(axes: "Axes", curves: Mapping[str, Sequence[float | None]], quantity: str, group: int) -> None:
    values = np.array(curves[quantity], dtype=np.float64)
    if not np.isfinite(values).any():
        return
    times = np.arange(1, len(values) + 1)
    axes.plot(times, values, color=ORDERED[group], linestyle=DASHES[group], linewidth=1.5)
    if quantity != "correct":
        draw_band(axes, times, curves, quantity, ORDERED[group])


def draw_band(
    axes: "Axes", times: np.ndarray, curves: Mapping[str, Sequence[float | None]], quantity: str, colour: str
) -> None:
    """One standard deviation of the images about their mean, cut where the quantity ends.

    A skewed quantity may deviate by more than its mean, and still no norm is negative.
    """
    values, apart = (np.array(curves[name], dtype=np.float64) for name in (quantity, f"{quantity}_sd"))
    low, high = np.maximum(values - apart, 0.0), np.minimum(values + apart, ENDS.get(quantity, np.inf))
    axes.fill_between(times, low, high, color=colour, alpha=0.12, linewidth=0)


def _legend(figure: "Figure", grouping: Grouping, network: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=ORDERED[at], linestyle=DASHES[at], linewidth=1.8) for at in range(5)]
    sizes = network["human_sizes"] if grouping is HUMAN else None
    texts = [f"{group} ({sizes[at]:,} images)" if sizes else group for at, group in enumerate(grouping.groups)]
    heading = {"title": f"{grouping.title}, hardest first", "title_fontsize": 8}
    figure.legend(handles, texts, loc="outside upper center", ncols=5, fontsize=7.5, **heading)
