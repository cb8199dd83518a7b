"""Figures: learning curves as the TOML declares them, or what a function of the study draws from its rows."""

import json
import re
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

_COLOURS = (INK, RED, BLUE, GREEN, PURPLE)
_PATTERNS: tuple[Any, ...] = ("-", (0, (5, 1.5)), "-.", (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
# Distinguished by colour and, in print, by the line's pattern: 25 lines, no two alike.
STYLES = [
    {"color": _COLOURS[place], "linestyle": _PATTERNS[(place + turn) % 5]} for turn in range(5) for place in range(5)
]
Points = list[dict[str, Any]]


def make_figure(study: Study, rows: Rows, name: str | None = None) -> "Figure":
    """A figure of the study, by name; left out, its first."""
    about = study.entry("figure", name)
    if not rows.where(**about.get("where", {})):
        raise NotMeasuredError(f"figure {about['name']} of {study.id} has no points in preset {rows.preset}")
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

    A line is the mean over the seeds that have it at an x. `paper` names, by series, the table whose printed number, in
    percent, is a cross at a line's end; drawn of the paper's preset alone, since no other compares.
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
                printed = about.get("paper", {}).get(name) if rows.preset == "paper" else None
                table = None if printed is None else study.entry("table", printed)
                for title, style in lines.items():
                    mine = [one for one in inside if one["series"] == name and _title(tree, by, one) == title]
                    _line(axes, mine, title, style)
                    if table is not None and mine:
                        _cross(axes, table, max(mine, key=lambda one: one["x"]), style)
                if table is not None:
                    axes.plot([], [], "x", color=INK, label="theirs, at the end")
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


def _cross(axes: "Axes", table: Tree, last: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    """What the paper prints of this line's settings, where it prints anything."""
    column, row = (
        ",".join(text(last["settings"].get(axis)) for axis in table.get(of, [])) for of in ("columns", "rows")
    )
    printed = re.match(r"\d+(\.\d+)?", table.get("paper", {}).get(column, {}).get(row, ""))
    if printed is not None:
        axes.plot(last["x"], float(printed[0]) / 100, "x", color=style["color"], markersize=7)


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
