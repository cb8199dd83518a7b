"""Figures: learning curves as the TOML declares them, or what a function of the study draws from its rows."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.plotting import BLUE, FAINT, GREEN, INK, PURPLE, RED, as_png, drawing
from hardsight.records import write_bytes
from hardsight_studies.engine.expressions import NotMeasuredError
from hardsight_studies.engine.grid import matches
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.study import Study, Tree, text
from hardsight_studies.engine.tables import axis_title, value_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguished by colour and, in print, by the line's pattern.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": INK, "linestyle": "-"},
    {"color": RED, "linestyle": (0, (5, 1.5))},
    {"color": BLUE, "linestyle": "-."},
    {"color": GREEN, "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": PURPLE, "linestyle": (0, (1, 1))},
    *({"color": color, "linestyle": (0, (1, 3))} for color in (INK, RED, BLUE, GREEN)),
)
Points = list[dict[str, Any]]


def make_figure(study: Study, rows: Rows, name: str | None = None) -> "Figure":
    """A figure of the study, by name; left out, its first."""
    about = study.entry("figure", name)
    if "draw" in about:
        from hardsight_studies.engine.running import hook

        return hook(about["draw"])(rows)  # type: ignore[no-any-return]
    return _curves(study, rows, about)


def save(figure: "Figure", path: Path) -> Path:
    """The figure as a PNG."""
    write_bytes(path, as_png(figure))
    return path


def _curves(study: Study, rows: Rows, about: Tree) -> "Figure":
    """One row of panels for each value of `panels`, one panel for each series of `y`, one line for each point of `by`.

    A line is the mean over the seeds that have it at an x.
    """
    tree, by, panels = study.at(rows.preset), about.get("by", []), about.get("panels", [])
    points = [{**one, "settings": json.loads(one["settings"])} for one in rows.points.to_pylist()]
    points = [one for one in points if matches(one["settings"], about.get("where", {}))]
    if not points:
        raise NotMeasuredError(f"figure {about['name']} of {study.id} has no points in preset {rows.preset}")
    across = _titles(tree, panels, points, named=True)
    lines = dict(zip(_titles(tree, by, points), STYLES, strict=False))
    series: Mapping[str, str] = about["y"]
    with drawing(4.6 * len(series), 2.7 * len(across) + 0.2, len(series) * len(across), len(series)) as figure:
        for at, (panel, inside) in enumerate(across.items()):
            for column, (name, label) in enumerate(series.items()):
                axes = figure.axes[at * len(series) + column]
                for title, style in lines.items():
                    _line(axes, [one for one in inside if one["series"] == name and _title(tree, by, one) == title],
                          title, style)  # fmt: skip
                axes.set_title(panel)
                axes.set_xlabel(about.get("x", "epoch"))
                axes.set_ylabel(label)
                axes.tick_params(color=FAINT)
            handles, names = axes.get_legend_handles_labels()
            wrapped = [textwrap.fill(one, 24) for one in names]
            axes.legend(handles, wrapped, fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def _line(axes: "Axes", points: Points, title: str, style: Mapping[str, Any]) -> None:
    by_x: dict[float, list[float]] = {}
    for one in points:
        by_x.setdefault(one["x"], []).append(one["y"])
    if by_x:
        places = sorted(by_x)
        heights = [sum(by_x[place]) / len(by_x[place]) for place in places]
        axes.plot(places, heights, label=title, linewidth=1.3, marker="o" if len(places) < 3 else None, **style)


def _titles(tree: Tree, axes: Sequence[str], points: Points, *, named: bool = False) -> dict[str, Points]:
    """The points by their title, in the order of the axes' values."""
    listed = {axis: [text(value) for value in tree.get("axes", {}).get(axis, [])] for axis in axes}

    def place(one: Mapping[str, Any]) -> list[int]:
        words = [(listed[axis], text(one["settings"].get(axis))) for axis in axes]
        return [values.index(word) if word in values else len(values) for values, word in words]

    found: dict[str, Points] = {}
    for one in sorted(points, key=place):
        found.setdefault(_title(tree, axes, one, named=named), []).append(one)
    return found


def _title(tree: Tree, axes: Sequence[str], point: Mapping[str, Any], *, named: bool = False) -> str:
    """The values of the axes at a point, with the axes' own titles where they are `named`."""
    values = {axis: value_title(tree, axis, point["settings"].get(axis)) for axis in axes}
    words = [f"{axis_title(tree, axis)} {value}" if named else value for axis, value in values.items() if value]
    return ", ".join(words)
