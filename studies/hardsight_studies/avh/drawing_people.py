"""Tables and figures of the study of agreement that cannot be declared: as many scores as a training gives."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.plotting import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.tables import show, value_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The last is Okabe and Ito's orange: six networks are trained here.
_COLOURS = (BLUE, RED, GREEN, PURPLE, INK, "#e69f00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
Lines = tuple[list[str], list[list[str]]]


def networks_of(rows: Rows) -> dict[str, str]:
    """The networks that were measured and their titles, in the study's order."""
    tree, measured = studies.get(rows.study).at(rows.preset), rows.options("network")
    order = [one for one in tree["axes"]["network"] if one in measured]
    return {one: value_title(tree, "network", one) for one in order}


def scores_of(rows: Rows, networks: Sequence[str], *, shared: bool = False) -> list[str]:
    """The scores of these networks (`shared`: those that all have), by how far they are ahead of confidence."""
    names = [name.removesuffix("_interval") for name in rows.metrics if name.endswith("_interval")]
    ahead = {name: [one.mean for n in networks if (one := rows.number(f"{name}_ahead", network=n))] for name in names}
    kept = [name for name, found in ahead.items() if found and (not shared or len(found) == len(networks))]
    # Networks differ in how well anything agrees: a score is ranked by its distance from confidence.
    return sorted(kept, key=lambda name: -float(np.mean(ahead[name])))


def every_score(rows: Rows) -> Lines:
    """Every score by network: mean ± standard deviation over seeds, the interval over images, and fewer seeds."""
    networks = networks_of(rows)

    def cell(score: str, network: str) -> str:
        number, interval = rows.number(score, network=network), rows.number(f"{score}_interval", network=network)
        if number is None or interval is None:
            return ""
        whole = rows.number("accuracy", network=network)
        fewer = f" ({number.count} seeds)" if whole is not None and number.count < whole.count else ""
        return f"{show(number)} [{interval.low:.3f}, {interval.high:.3f}]{fewer}"

    lines = [[f"`{score}`", *(cell(score, one) for one in networks)] for score in scores_of(rows, list(networks))]
    return ["score", *networks.values()], lines


def chosen(rows: Rows) -> Lines:
    """What halves of the images choose in each network, and how often the combination is ahead of confidence."""
    lines = []
    for network, title in networks_of(rows).items():
        metrics = next(row.metrics for row in rows.where(network=network, seed=None))
        listed = []
        for kind in ("single ", "combined "):
            counts = {name.removeprefix(kind): count for name, count in metrics.items() if name.startswith(kind)}
            most = sorted(counts.items(), key=lambda one: -one[1])[:3]
            listed.append(", ".join(f"`{name}` {count:.0f}" for name, count in most))
        lines.append([title, f"{metrics['choices']:.0f}", *listed, f"{metrics['combination_ahead']:.0f}"])
    return ["network", "choices", "single scores", "combinations", "significantly ahead of confidence"], lines


def _dots(rows: Rows, *, public: bool) -> "Figure":
    """Dots with intervals by score; the dashed line is how well two halves of the people agree."""
    networks = {name: title for name, title in networks_of(rows).items() if name.endswith("-public") == public}
    order = scores_of(rows, list(networks), shared=True)[::-1]
    with drawing(6.8, 1.2 + (0.14 + 0.04 * len(networks)) * len(order)) as figure:
        axes, step = figure.axes[0], 0.7 / max(1, len(networks))
        for at, (network, title) in enumerate(networks.items()):
            places = np.arange(len(order)) + (len(networks) / 2 - at - 0.5) * step
            found = [rows.number(f"{name}_interval", network=network) for name in order]
            values, low, high = np.array([[one.mean, one.low, one.high] for one in found if one]).reshape(-1, 3).T
            # A BCa interval of few resamples may end on the estimate's other side by a rounding.
            errors = np.maximum(0, [values - low, high - values])
            look: Any = {"fmt": _MARKERS[at % len(_MARKERS)], "color": _COLOURS[at % len(_COLOURS)]}
            axes.errorbar(values, places, xerr=errors, markersize=3.5, linewidth=0.9, label=title, **look)
        halves = [row.metrics["people_with_people"] for row in rows if "people_with_people" in row.metrics]
        axes.axvline(float(np.mean(halves)), color=INK, linestyle="--", linewidth=1, label="two halves of the people")
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(order)), order)
        axes.set_ylim(-0.6, len(order) - 0.4)
        axes.set_xlabel("Spearman's ρ with human selection frequency, 95 % interval")
        figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    return figure


public, trained = functools.partial(_dots, public=True), functools.partial(_dots, public=False)
