"""Which figures a view fills, and the figures as files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.plotting import as_png
from hardsight.records import write_bytes
from hardsight.report import figures
from hardsight.report.reading import read_run
from hardsight.report.view import View, look_at


def figures_of(view: View) -> dict[str, tuple[Any, str]]:
    """Every figure that this view can fill, by name, each with the text that stands in for it."""
    made: dict[str, tuple[Any, str]] = {}
    for score, counted in view.histograms:
        groups = " and ".join(f"{name} labels" if name != "all" else "all samples" for name in counted.counts)
        description = f"Histogram of {score.title} for {groups}; {score.reading}."
        made[f"histogram-{len(made)}"] = figures.draw_histogram(score, counted), description
    chance = 1 / view.classes if view.classes else None
    if view.plane is not None:
        across, x, up, y = view.plane
        drawn = figures.draw_plane(across, x, up, y, view.groups, chance)
        marks = "one point a sample" if figures.drawn_as_points(x, y) else "hexagons that count the samples"
        made["plane"] = drawn, f"{up.title} against {across.title}, {marks}."
    if view.by_class is not None and view.labels is not None:
        score, counts, means = view.by_class
        level = chance if score.name in ("avh", "angular_visual_hardness") else None
        drawn = figures.draw_classes(score, view.labels.names, counts, means, level)
        made["classes"] = drawn, f"Mean {score.title} by class, hardest class first."
    if view.confusion is not None and view.labels is not None and len(view.labels.names) <= figures.MOST_CLASSES:
        pairs = view.confusion
        drawn = figures.draw_confusion(pairs.given, pairs.predicted, pairs.counts, view.labels.names)
        made["confusion"] = drawn, "Matrix of given label against predicted label."
    curves = curves_of(view)
    if curves:
        epochs = curves.pop("epoch", np.arange(1, 1 + len(next(iter(curves.values()), ()))))
        made["curves"] = figures.draw_curves(curves, epochs), f"Learning curves over {len(epochs)} epochs."
    return made


def curves_of(view: View) -> dict[str, np.ndarray]:
    """The numeric columns of the epochs, `epoch` among them; empty where nothing can be drawn."""
    table = view.run.epochs
    if table is None or not table.num_rows:
        return {}
    # A round counts as an epoch does, and is no measurement of it.
    fields = [field for field in table.schema if field.name != "round"]
    numeric = [f.name for f in fields if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)]
    columns = {name: table.column(name).cast(pa.float64()).to_numpy() for name in numeric}
    columns = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    return columns if set(columns) - {"epoch"} else {}


def write_figures(run: Path | str) -> list[Path]:
    """Save every figure of the page as `RUN/figures/NAME.png`; the paths, in the order of the page."""
    view = look_at(read_run(run))
    folder = Path(run) / "figures"
    names = {f"histogram-{at}": f"histogram-{_plain(score.name)}" for at, (score, _) in enumerate(view.histograms)}
    paths = []
    for name, (figure, _) in figures_of(view).items():
        paths.append(folder / f"{names.get(name, name)}.png")
        write_bytes(paths[-1], as_png(figure))
    return paths


def _plain(name: str) -> str:
    """A score's name as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name) or "_"
