"""The pictures of AMC-Loss's figures, from points and rows alone."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.datasets.cifar import CIFAR10_CLASSES
from hardsight.plotting import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.engine.rows import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The digits of Figure 1; ten classes by colour and by marker.
_SHOWN_IN_FIGURE1 = (0, 1, 2, 3, 6)
_COLOURS, _MARKERS = (BLUE, RED, GREEN, PURPLE, INK), ("o", "^")
_TITLES = {"cross-entropy": "cross-entropy", "euclidean": "+ Euclidean", "amc": "+ AMC",
           "euclidean-0.1": "+ Euclidean, weight 0.1", "amc-0.1": "+ AMC, weight 0.1"}  # fmt: skip
Panels = dict[str, list[dict[str, Any]]]


def circle(rows: Rows) -> "Figure":
    """Figure 1: two features of some training and test samples, both axes to one scale."""
    panels: Panels = {}
    for one in rows.points.to_pylist():
        if one["label"] in _SHOWN_IN_FIGURE1:
            panels.setdefault(f"{'training' if one['series'] == 'train' else 'test'} images", []).append(one)
    return _scatter(panels)


def sphere(rows: Rows) -> "Figure":
    """Figure 4: three features on the unit sphere."""
    return _scatter(_by_loss(rows))


def view(rows: Rows) -> "Figure":
    """Figure 5: many features by t-SNE."""
    return _scatter(_by_loss(rows), unit="t-SNE, no unit")


def _by_loss(rows: Rows) -> Panels:
    """A panel for each data set and loss, with what the paper prints inside its pictures."""
    panels: Panels = {}
    for one in rows.points.to_pylist():
        settings = json.loads(one["settings"])
        here = rows.where(**settings, seed=one["seed"])[0].metrics
        quality = f"homogeneity {here['cluster_homogeneity']:.3f}, completeness {here['cluster_completeness']:.3f}"
        title = f"{settings['data']}, {_TITLES[settings['loss']]}\n{quality}"
        panels.setdefault(title, []).append(one)
    order = list(_TITLES.values())
    return dict(sorted(panels.items(), key=lambda of: order.index(of[0].partition("\n")[0].partition(", ")[2])))


def _scatter(panels: Panels, *, unit: str | None = None) -> "Figure":
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    every = [one for mine in panels.values() for one in mine]
    solid = every[0].get("z") is not None
    cifar = any("cifar10" in one["settings"] for one in every)
    names = CIFAR10_CLASSES if cifar else [str(digit) for digit in range(10)]
    with drawing(3.1 * columns, 3.2 * lines, 0) as figure:
        for place, (title, mine) in enumerate(panels.items(), 1):
            axes: Any = figure.add_subplot(lines, columns, place, projection="3d" if solid else None)
            if solid:
                _globe(axes)
            elif unit:
                axes.set(xticks=[], yticks=[], xlabel=unit)
            else:
                _plane(axes, max(abs(one[side]) for one in every for side in "xy"))
            for at, label in enumerate(sorted({int(one["label"]) for one in every})):
                sides = [[one[side] for one in mine if one["label"] == label] for side in ("xyz" if solid else "xy")]
                style = {"color": _COLOURS[at % 5], "marker": _MARKERS[at // 5 % 2], "label": names[label]}
                axes.scatter(*sides, s=9, alpha=0.7, linewidths=0, **style)
            axes.set_title(title, fontsize=9)
        handles = figure.axes[-1].get_legend_handles_labels()
        figure.legend(*handles, loc="outside right center", fontsize=8, title="class", markerscale=2)
    return figure


def _plane(axes: Any, reach: float) -> None:
    """Two features around their origin, both to one scale: an angle looks like what it is."""
    axes.axhline(0, color=FAINT)
    axes.axvline(0, color=FAINT)
    sides = (-1.05 * reach, 1.05 * reach)
    axes.set(xlabel="first feature", ylabel="second feature", xlim=sides, ylim=sides, aspect="equal")


def _globe(axes: Any) -> None:
    """The whole unit sphere, so that features in a corner of it look like it; what lies behind is paler."""
    around, up = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(-np.pi / 2, np.pi / 2, 13))
    sides = np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)
    axes.plot_wireframe(*sides, color=FAINT, linewidth=0.4)
    axes.set(xlim=(-0.75, 0.75), ylim=(-0.75, 0.75), zlim=(-0.75, 0.75), box_aspect=(1, 1, 1))
    axes.set_axis_off()


def maps(rows: Rows) -> "Figure":
    """Figure 6: a row for each data set and loss, a column for each class, the map of its first test image."""
    grids: dict[tuple[str, str], dict[int, dict[tuple[int, int], float]]] = {}
    for one in rows.points.to_pylist():
        settings = json.loads(one["settings"])
        grid = grids.setdefault((settings["data"], settings["loss"]), {}).setdefault(int(one["label"]), {})
        grid[int(one["y"]), int(one["x"])] = one["value"]
    order = list(_TITLES)
    ordered = sorted(grids.items(), key=lambda of: (of[0][0], order.index(of[0][1])))
    columns = max(len(classes) for classes in grids.values())
    with drawing(0.85 * columns + 1.6, 0.95 * len(grids) + 0.5, columns * len(grids), columns) as figure:
        for axes in figure.axes:
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
        for line, ((data, loss), classes) in enumerate(ordered):
            for column, (label, grid) in enumerate(sorted(classes.items())):
                axes = figure.axes[line * columns + column]
                height, width = (1 + max(place[side] for place in grid) for side in (0, 1))
                values = [[grid[y, x] for x in range(width)] for y in range(height)]
                shown = axes.imshow(values, cmap="viridis", vmin=0, vmax=100)
                axes.set_title(CIFAR10_CLASSES[label] if data == "cifar10" else str(label), fontsize=8)
            figure.axes[line * columns].set_ylabel(f"{data}\n{_TITLES[loss]}", fontsize=7)
        bar = figure.colorbar(shown, ax=figure.axes, fraction=0.02, pad=0.01, ticks=(0, 50, 100))
        bar.set_label("% of the map's largest", fontsize=8)
    return figure


def weight_and_margin(rows: Rows) -> "Figure":
    """Figure 7: accuracy against the weight and against the margin, a row for each schedule; dots are runs."""
    schedules = rows.options("schedule")
    with drawing(7.4, 2.9 * len(schedules), 2 * len(schedules)) as figure:
        for line, schedule in enumerate(schedules):
            base = rows.number("test_accuracy", schedule=schedule, weight=0.0)
            # The printed λ of 0.1 has this weight; its margins are varied.
            printed = 10.0 if schedule.startswith("script") else 0.1
            sides = (
                ("weight", {"margin": 0.5}, [one for one in rows.options("weight", schedule=schedule) if one]),
                ("margin", {"weight": printed}, rows.options("margin", schedule=schedule, weight=printed)),
            )
            for axes, (axis, where, values) in zip(figure.axes[2 * line :], sides, strict=False):
                where = {"schedule": schedule, **where}
                found = {x: rows.number("test_accuracy", **where, **{axis: x}) for x in sorted(values)}
                known = {x: number for x, number in found.items() if number is not None}
                for x, number in known.items():
                    shares = [100 * one for one in number.values]
                    axes.plot([x] * number.count, shares, ".", color=INK, markersize=3)
                means = {x: 100 * number.mean for x, number in known.items()}
                axes.plot(list(means), list(means.values()), "o-", color=BLUE)
                if base is not None:
                    axes.axhline(100 * base.mean, color=RED, linestyle="--", label="cross-entropy alone")
                axes.set(xlabel="weight" if axis == "weight" else "margin in radians", ylabel="test accuracy in %")
            weights = [one for one in rows.options("weight", schedule=schedule) if one]
            figure.axes[2 * line].set(xscale="log", title=schedule)
            figure.axes[2 * line].set_xticks(weights, [f"{one:g}" for one in weights])
            figure.axes[2 * line].minorticks_off()
        figure.axes[0].legend(fontsize=8)
    return figure
