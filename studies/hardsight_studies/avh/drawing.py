"""Pictures of the AVH studies that no declared figure can draw, each made from rows and points alone."""

import functools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.alignment import FIVE_BINS
from hardsight.plotting import BLUE, FAINT, GREEN, INK, RED, drawing
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.tables import value_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ten classes need ten colours; neighbours differ in lightness too, and every cone carries its digit.
TEN = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#aa4499", "#44aa99", "#999933", "#882255", "#777777")
BINS = 20
_ABOUT = ("preset", "settings", "seed", "series")


class Points:
    """The points of a study's figures, and the titles of its networks."""

    def __init__(self, rows: Rows) -> None:
        self._all = [{**one, "settings": json.loads(one["settings"])} for one in rows.points.to_pylist()]
        self._tree = studies.get(rows.study).at(rows.preset)
        order = [*self._tree.get("axes", {}).get("network", []), *self._tree.get("values", {}).get("network", {})]
        there = {one["settings"].get("network") for one in self._all}
        self.networks: list[str] = list(dict.fromkeys(one for one in order if one in there))

    def title(self, network: str) -> str:
        """The network as tables name it."""
        return value_title(self._tree, "network", network)

    def names(self, **settings: Any) -> set[str]:
        """The series that there are at these settings."""
        return {one["series"] for one in self._at(settings)}

    def of(self, series: str, **settings: Any) -> dict[str, np.ndarray]:
        """The columns of a series at these settings; where several seeds have a curve, the mean at each x."""
        found = [one for one in self._at(settings) if one["series"] == series]
        if len({one["seed"] for one in found}) > 1:
            by_x: dict[float, list[dict[str, Any]]] = {}
            for one in found:
                by_x.setdefault(one["x"], []).append(one)
            found = [{"x": x, "y": float(np.mean([one["y"] for one in of]))} for x, of in by_x.items()]
        names = [name for name in ({**found[0]} if found else ("x", "y")) if name not in _ABOUT]
        return {name: np.array([one[name] for one in found], dtype=np.float64) for name in names}

    def _at(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [one for one in self._all if settings.items() <= one["settings"].items()]


def frequency_against_scores(rows: Rows) -> "Figure":
    """Figures 5 and 16: a row of panels for each network, counts by score, and the median of each fifth in red."""
    points, scores = (
        Points(rows),
        {"avh": "AVH, scaled", "confidence": "confidence", "norm": "norm, scaled in its class"},
    )
    networks = points.networks
    with drawing(8.6, 2.7 * len(networks), panels=3 * len(networks), columns=3) as figure:
        for at, (axes, (network, score)) in enumerate(
            zip(figure.axes, ((n, s) for n in networks for s in scores), strict=True)
        ):
            rho = rows.number("rho", network=network, score=score, seed=0)
            _counts(axes, points.of(score, network=network, score=score))
            medians = [rows.number(f"median{one}", network=network, score=score, seed=0) for one in range(5)]
            heights = [math.nan if one is None else one.mean for one in medians]
            # A median of 0 or 1 is on the frame: the whole dot is drawn.
            axes.plot([low + 0.1 for low in FIVE_BINS[:-1]], heights, "--o", color=RED, markersize=4.5, clip_on=False)
            axes.set_title(
                f"{points.title(network)}, ρ = {rho.mean:+.3f}" if rho else points.title(network), fontsize=9
            )
            axes.set_ylabel(scores[score])
            if at >= 3 * (len(networks) - 1):
                axes.set_xlabel("human selection frequency")
    return figure


def granularity(rows: Rows) -> "Figure":
    """Figure 19: the same images at three granularities, for each network."""
    points = Points(rows)
    shown = [(network, group) for network in points.networks for group in rows.options("group", network=network)
             if "norm" in points.names(network=network, group=group)]  # fmt: skip
    with drawing(8.6, 2.9 * -(-len(shown) // 3), panels=len(shown), columns=3) as figure:
        for axes, (network, group) in zip(figure.axes, shown, strict=True):
            rho = rows.number("norm", network=network, group=group)
            _counts(axes, points.of("norm", network=network, group=group))
            axes.set_title(f"{points.title(network)}\n{group}" + (f", ρ = {rho.mean:+.3f}" if rho else ""), fontsize=9)
            axes.set_xlabel("human selection frequency")
            axes.set_ylabel("norm, scaled within these images")
    return figure


def _counts(axes: "Axes", found: Mapping[str, np.ndarray]) -> None:
    """Counts by human frequency and a score in [0, 1], dark for many, on a logarithmic scale."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    # One hue, which the red line differs from for every eye; a single image is pale, and not yet white.
    blues = ListedColormap(colormaps["Blues"](np.linspace(0.2, 1.0, 256)))
    counts, edges = np.zeros((BINS, BINS)), np.linspace(0, 1, BINS + 1)
    counts[(found["y"] * BINS).astype(int), (found["x"] * BINS).astype(int)] = found["count"]
    drawn = axes.pcolormesh(
        edges, edges, np.ma.masked_equal(counts, 0), cmap=blues, norm=LogNorm(1, max(2, counts.max()))
    )
    bar = axes.figure.colorbar(drawn, ax=axes, label="images")
    ticks = [10**power for power in range(int(np.log10(max(2, counts.max()))) + 1)]
    bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def cones(rows: Rows) -> "Figure":
    """Figures 2 and 8: test images in the plane of the two features, by class and by AVH."""
    points = Points(rows)
    images, weights = points.of("images"), points.of("weights")
    reach = 1.05 * float(np.hypot(images["x"], images["y"]).max())
    ends = {
        int(label): reach * _direction(x, y)
        for label, x, y in zip(*(weights[n] for n in ("label", "x", "y")), strict=True)
    }
    with drawing(8.6, 4.2, panels=2) as figure:
        for axes, title in zip(figure.axes, ("by class; w: the classes' weights", "by AVH"), strict=True):
            axes.set(
                aspect="equal", xlim=(-1.25 * reach, 1.25 * reach), ylim=(-1.25 * reach, 1.25 * reach), title=title
            )
            axes.set(xlabel="first feature", ylabel="second feature")
            for end in ends.values():
                axes.plot([0, end[0]], [0, end[1]], color=FAINT, linewidth=1.2, zorder=0)
        for label, end in ends.items():
            x, y = (images[name][images["label"] == label] for name in ("x", "y"))
            figure.axes[0].scatter(x, y, s=7, color=TEN[label % 10], linewidths=0)
            _write_names(figure.axes[0], label, x, y, end)
        coloured = figure.axes[1].scatter(images["x"], images["y"], c=images["avh"], s=7, cmap="viridis", linewidths=0)
        figure.colorbar(coloured, ax=figure.axes[1], label="AVH (light is hard)", shrink=0.8)
    return figure


def _write_names(axes: "Axes", label: int, x: np.ndarray, y: np.ndarray, end: np.ndarray) -> None:
    """The class at the end of its weights, and on its cone: colours alone tell ten classes apart badly."""
    centred: dict[str, Any] = {"color": INK, "ha": "center", "va": "center"}
    axes.text(
        1.12 * end[0], 1.12 * end[1], "w" + str(label).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")), **centred
    )
    if len(x):
        across, up = np.quantile(np.hypot(x, y), 0.67) * _direction(np.median(x), np.median(y))
        box = {"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": TEN[label % 10], "alpha": 0.85}
        axes.text(across, up, str(label), weight="bold", bbox=box, **centred)


def _direction(x: Any, y: Any) -> np.ndarray:
    return np.array([x, y], dtype=np.float64) / max(float(np.hypot(x, y)), np.finfo(np.float64).tiny)


def sphere(rows: Rows) -> "Figure":
    """Figures 3 and 7: the points seen from between the classes, by class, by AVH and by norm."""
    from matplotlib.patches import Circle

    found = Points(rows).of("points")
    with drawing(8.6, 2.6, panels=3, columns=3) as figure:
        for axes, name in zip(figure.axes, ("class", "AVH", "norm"), strict=True):
            axes.add_artist(Circle((0, 0), 1, fill=False, color=FAINT, linewidth=0.8))
            axes.set(aspect="equal", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), xlabel="across", ylabel="up")
            axes.set_title(f"by {name}", fontsize=9)
            if name == "class":
                for label, colour, mark in ((0, BLUE, "o"), (1, RED, "^")):
                    inside = found["label"] == label
                    axes.scatter(found["y"][inside], found["z"][inside], s=8, color=colour, marker=mark, linewidths=0)
                continue
            coloured = axes.scatter(found["y"], found["z"], c=found[name.lower()], s=8, cmap="viridis", linewidths=0)
            figure.colorbar(coloured, ax=axes, shrink=0.75, label=name)
    return figure


def _levels(rows: Rows, degradation: str) -> "Figure":
    """One panel a network: the share of images by AVH at each level, the median and the quartiles."""
    points, at = Points(rows), {"degradation": degradation}
    levels, networks = sorted(rows.options("level", **at)), points.networks
    with drawing(8.6, 0.4 + 2.6 * -(-len(networks) // 4), panels=len(networks), columns=4) as figure:
        for axes, network in zip(figure.axes, networks, strict=True):
            shapes = [points.of("avh", network=network, level=level, **at) for level in levels]
            largest = max(one["y"].max() for one in shapes)
            for place, one in enumerate(shapes):
                centres, share = (one["x"] + one["end"]) / 2, one["y"] / largest * 0.42
                axes.fill_betweenx(centres, place - share, place + share, color=BLUE, alpha=0.35, linewidth=0)
            low, median, high = (
                [
                    getattr(rows.number(f"avh_{name}", network=network, level=level, **at), "mean", math.nan)
                    for level in levels
                ]
                for name in ("low", "median", "high")
            )
            axes.vlines(range(len(levels)), low, high, color=INK, linewidth=2.2)
            axes.plot(range(len(levels)), median, "-o", color=RED, markersize=4.5, linewidth=1.4)
            axes.set_ylim(0, None)
            axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
            rho = rows.number("avh_spearman", network=network, **at)
            axes.set_title(points.title(network) + (f"\nρ = {rho.mean:+.2f}" if rho else ""), fontsize=9)
            axes.set_xlabel(f"level of {degradation}")
        figure.axes[0].set_ylabel("AVH: median, quartiles, all images")
    return figure


noise_levels, contrast_levels = (functools.partial(_levels, degradation=one) for one in ("noise", "contrast"))


def lengths(rows: Rows) -> "Figure":
    """Figure 20: the paper's formula for two classes on either side of the boundary, then each network."""
    from hardsight_studies.avh.pictures import NARROW, WIDE, binary_case

    tree = studies.get(rows.study).at(rows.preset)
    networks, norms = rows.options("network", factor=1.0), np.linspace(0, 60, 121)
    marks = {
        "right_confidence": (BLUE, "-o"),
        "wrong_confidence": (RED, "--s"),
        "right_avh": (GREEN, ":^"),
        "wrong_avh": (INK, "-.v"),
    }
    with drawing(8.6, 2.8 * -(-(2 + len(networks)) // 2), panels=2 + len(networks)) as figure:
        for axes, (title, own, other) in zip(
            figure.axes, (("label nearer", NARROW, WIDE), ("other class nearer", WIDE, NARROW)), strict=False
        ):
            confidence, avh = binary_case(norms, own, other)
            axes.plot(norms, confidence, color=BLUE, linewidth=1.8, label="confidence")
            axes.plot(norms, avh, "--", color=GREEN, linewidth=1.8, label="AVH")
            axes.set(ylim=(-0.03, 1.03), xlabel="feature norm, weights of length 1", ylabel="confidence, AVH")
            axes.set_title(f"formula, {title}: {math.degrees(own):.1f}° against {math.degrees(other):.1f}°", fontsize=9)
            axes.legend(fontsize=8)
        for axes, network in zip(figure.axes[2:], networks, strict=True):
            factors = sorted(rows.options("factor", network=network))
            for name, (colour, mark) in marks.items():
                numbers = [rows.number(name, network=network, factor=one) for one in factors]
                values = [math.nan if one is None else one.mean for one in numbers]
                axes.plot(factors, values, mark, color=colour, label=name.replace("_", ": "), markersize=4)
            axes.set_xscale("log", base=2)
            axes.set_xticks(factors, [f"{one:g}" for one in factors], fontsize=7)
            axes.set(
                title=value_title(tree, "network", network),
                xlabel="features made so many times as long",
                ylabel="mean over images",
            )
            axes.legend(fontsize=7)
    return figure
