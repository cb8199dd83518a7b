"""AVH against the level of a degradation (AVH, Figs. 17 and 18): its distribution at each level, and the mean."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.report.canvas import BLUE, INK, RED, drawing
from hardsight_studies.avh.groups import Grouping

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_levels(networks: Mapping[str, Mapping[str, Any]], grouping: Grouping) -> "Figure":
    """One panel a network: the share of images by AVH at each level, and the median and quartiles."""
    rows = -(-len(networks) // 4)
    with drawing(8.6, 0.4 + 2.6 * rows, panels=len(networks), columns=4) as figure:
        for at, (axes, (title, found)) in enumerate(zip(figure.axes, networks.items(), strict=True)):
            edges = np.array(found["edges"])
            centres, width = (edges[:-1] + edges[1:]) / 2, 0.42
            # From left to right the level rises, as in the paper.
            order = np.argsort(found["levels"])
            largest = max(max(counts) for counts in found["counts"])
            for place, level in enumerate(order):
                share = np.array(found["counts"][level]) / largest * width
                axes.fill_betweenx(centres, place - share, place + share, color=BLUE, alpha=0.35, linewidth=0)
            low, middle, high = (np.array(quartile)[order] for quartile in found["quartiles"])
            axes.vlines(range(len(order)), low, high, color=INK, linewidth=2.2)
            axes.plot(range(len(order)), middle, "-o", color=RED, markersize=4.5, linewidth=1.4)
            axes.set_ylim(*_seen(networks))
            axes.set_xticks(range(len(order)), [f"{found['levels'][level]:g}" for level in order])
            axes.grid(False, axis="x")
            rho = found["correlations"]["avh"]["spearman"]
            axes.set_title(title if rho is None else f"{title}\nρ = {rho:+.2f}", fontsize=9)
            axes.set_xlabel(f"level of {grouping.title}")
            if at % 4 == 0:
                axes.set_ylabel("AVH: median, quartiles, all images")
    return figure


def _seen(networks: Mapping[str, Mapping[str, Any]]) -> tuple[float, float]:
    """One axis for all networks: from the lowest to the highest AVH of any image."""
    low, high = [], []
    for found in networks.values():
        edges, filled = np.array(found["edges"]), np.sum(found["counts"], axis=0) > 0
        low.append(edges[:-1][filled].min())
        high.append(edges[1:][filled].max())
    return 0.95 * float(min(low)), 1.02 * float(max(high))
