"""Figures that are no learning curves: weights over probabilities, accuracies over an axis of the grid."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hardsight.losses.emphasis import critical_beta, largest_beta
from hardsight.plotting import BLUE, FAINT, INK, RED, drawing
from hardsight_studies.engine.figures import STYLES
from hardsight_studies.engine.rows import Rows
from hardsight_studies.gr.emphasis import title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "The losses": ("cce", "mae", "gce-0.7", "gr-2-0", "gr-8-0.5", "gr-12-1"),
    "Fixed λ, changing β": ("gr-4-0.5", "gr-8-0.5", "gr-12-0.5", "gr-8-2", "gr-16-2", "gr-24-2"),
    "β = 8, changing λ": ("gr-8-0", "gr-8-0.5", "gr-8-1", "gr-8-2"),
}


def weights(rows: Rows) -> "Figure":
    """Figure 1; the heights differ by orders, so the weights are on a logarithmic axis."""
    points = rows.points.to_pylist()
    with drawing(9.6, 4.2, panels=len(PANELS), columns=len(PANELS)) as figure:
        for axes, (title, names) in zip(figure.axes, PANELS.items(), strict=True):
            for name, style in zip(names, STYLES, strict=False):
                curve = [one for one in points if json.loads(one["settings"])["supervision"] == name]
                axes.plot([one["x"] for one in curve], [one["y"] for one in curve], label=title_of(name), **style)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylim(bottom=0.05)
            axes.set_title(title)
            axes.set_xlabel("probability of the label")
            axes.set_ylabel("weight")
            # Below the axes: in print the curves need the whole panel.
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def rates(rows: Rows) -> "Figure":
    """Last accuracy of short trainings over the noise, the difference from CE's, and the rate that `auto` estimated."""
    return _over_rates(rows, "short")


def long_rates(rows: Rows) -> "Figure":
    """The same of long trainings."""
    return _over_rates(rows, "long")


def _over_rates(rows: Rows, protocol: str) -> "Figure":
    titles = {"cce": "CE", "auto": "GR (auto)", "gce": "GCE", "sl": "SL", "gr-8-0.5": "GR (8, 0.5)",
              "auto-bounded": "auto, within bounds", "auto-printed": "auto, as printed"}  # fmt: skip
    ends = {method: _ends(rows, protocol, method) for method in titles}
    with drawing(11.0, 3.6, panels=3, columns=3) as figure:
        whole, beside, estimated = figure.axes
        for (method, found), style in zip(ends.items(), STYLES, strict=False):
            apart = {rate: value - ends["cce"][rate] for rate, value in found.items() if rate in ends["cce"]}
            for axes, values in ((whole, found), (beside, apart)) if found else ():
                axes.plot([*values], [*values.values()], label=titles[method], marker="o", markersize=3, **style)
        # Differences of one point vanish beside the fall at 80 %: a second panel has them alone.
        whole.set_ylabel("last test accuracy (%)")
        whole.legend(fontsize=7)
        beside.set_ylabel("difference from CE (points)")
        estimated.plot([0, 100], [0, 100], color=FAINT)
        for row in rows.where(protocol=protocol, method="auto"):
            place = 100 * row.settings["rate"], 100 * row.metrics["estimated_rate"]
            estimated.plot(*place, "o", color=RED, markeredgecolor=INK, markersize=5)
        estimated.set_ylabel("noise that auto estimated (%)")
        for axes in figure.axes:
            axes.set_xlabel("noise (%)")
    return figure


def _ends(rows: Rows, protocol: str, method: str) -> dict[float, float]:
    """Last accuracy by rate, both in percent."""
    found = {rate: rows.number("last", rate=rate, protocol=protocol, method=method) for rate in rows.options("rate")}
    return {100 * rate: 100 * number.mean for rate, number in sorted(found.items()) if number is not None}


def grid(rows: Rows) -> "Figure":
    """Table 12: last accuracy over λ, a line for each β, a panel for each rate."""
    there: Sequence[Any] = rows.options("rate")
    with drawing(3.2 * len(there) + 1.4, 3.0, panels=len(there), columns=len(there)) as figure:
        for axes, rate in zip(figure.axes, there, strict=True):
            for beta, style in zip(rows.options("beta"), STYLES, strict=False):
                found = {lam: rows.number("last", rate=rate, lam=lam, beta=beta) for lam in rows.options("lam")}
                known = {lam: 100 * number.mean for lam, number in found.items() if number is not None}
                axes.plot([*known], [*known.values()], label=f"β = {beta}", marker="o", markersize=4, **style)
            axes.set_title(f"{rate:.0%} noise")
            axes.set_xlabel("λ")
            axes.set_ylabel("last test accuracy (%)")
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def bound(rows: Rows) -> "Figure":
    """Last accuracy at every λ and β with 40 % noise, and the β above which equal probabilities are unstable."""
    # Of a λ of 0.1 the weight falls with the probability: there is no bound.
    there = sorted(rows.options("lam"))
    with drawing(5.6, 4.0) as figure:
        (axes,) = figure.axes
        for at, lam in enumerate(there):
            for beta in rows.options("beta"):
                number = rows.number("last", rate=0.4, lam=lam, beta=beta)
                if number is not None:
                    axes.text(at, beta, f"{100 * number.mean:.0f}", ha="center", va="center")
        for limit, title, color in ((critical_beta, "at the start", BLUE), (largest_beta, "on the way", RED)):
            known = [(at, value) for at, lam in enumerate(there) if (value := limit(lam, _CLASSES)) < _MOST]
            axes.plot(*zip(*known, strict=True), color=color, label=f"unstable above, {title}")
        axes.set_xlim(-0.6, len(there) - 0.4)
        axes.set_ylim(0, _MOST)
        axes.set_xticks(range(len(there)), [f"{lam:g}" for lam in there])
        axes.set_yticks(rows.options("beta"))
        axes.grid(False)
        axes.set_xlabel("λ")
        axes.set_ylabel("β")
        axes.legend(fontsize=7, loc="upper left", ncols=2)
    return figure


# Classes of MNIST, and the end of the axis of β.
_CLASSES, _MOST = 10, 25.0
