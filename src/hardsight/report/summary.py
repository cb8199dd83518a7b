"""One wide picture that tells a run at a glance: the suspected wrong labels, and the score that finds them."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from hardsight.plotting import BLUE, INK, RED, as_png, drawing
from hardsight.records import write_bytes
from hardsight.report.figures import fill_histogram, shortened
from hardsight.report.numbers import Histogram
from hardsight.report.reading import Score, read_run
from hardsight.report.view import Card, ScoreLine, View

_COLUMNS, _ROWS = 6, 3


def write_summary_picture(run: Path | str, path: Path | str) -> Path:
    """One PNG of 1600 x 700 pixels for the top of a README, on white."""
    view = View(read_run(run))
    ranking = view.suspects
    drawn = {score.name: (score, counted) for score, counted in view.histograms}
    names = [*([ranking.score.name] if ranking else []), view.ranked_by]
    lines = [line for name in names for line in view.lines if line.score.name == name]
    line = next((line for line in [*lines, *view.lines] if line.score.name in drawn), None)
    if ranking is None or line is None:
        raise ValueError(f"{run} has no suspected labels to picture: samples.parquet needs 'label' and a score column")
    with drawing(16.0, 7.0, panels=0) as figure:
        figure.set_layout_engine("constrained", rect=(0.008, 0.015, 0.984, 0.97))
        parts: Any = figure.subfigures(1, 2, width_ratios=(1.25, 1), wspace=0.03)
        _cards(parts[0], ranking.cards[: _COLUMNS * _ROWS])
        _histogram(parts[1], line, *drawn[line.score.name])
        write_bytes(path, as_png(figure, dots_per_inch=100))
    return Path(path)


def _cards(part: Any, cards: list[Card]) -> None:
    part.suptitle("Most suspicious labels:  given → expected", fontsize=18, x=0.02, ha="left")
    grid = part.subplots(_ROWS, _COLUMNS)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, card in zip(grid.flat, cards, strict=False):
        picture = _pixels(card.picture) if card.picture else np.full((1, 1, 3), 235, np.uint8)
        axes.imshow(picture, interpolation="nearest")
        change = [shortened(name, 12) for name in (card.given, card.expected) if name]
        long = sum(map(len, change)) > 10
        axes.set_title(("\n→ " if long else " → ").join(change), fontsize=14 if long else 16, loc="center")
        verdict, colour = _verdict(card)
        axes.text(0.5, -0.04, verdict, transform=axes.transAxes, ha="center", va="top", fontsize=12, color=colour)


def _verdict(card: Card) -> tuple[str, str]:
    if card.flipped is None:
        return "", INK
    return ("✓ was flipped", RED) if card.flipped else ("label is right", BLUE)


def _histogram(part: Any, line: ScoreLine, score: Score, counted: Histogram) -> None:
    known = "" if line.auroc is None else f":  AUROC {line.auroc:.3f}"
    part.suptitle(f"{score.title}, of every sample{known}", fontsize=18, x=0.02, ha="left")
    axes = part.subplots()
    fill_histogram(axes, score, counted)
    axes.xaxis.label.set_size(15)
    axes.yaxis.label.set_size(15)
    axes.tick_params(labelsize=13)
    if axes.get_legend() is not None:
        axes.legend(fontsize=16, loc="upper right", ncols=2)


def _pixels(uri: str) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as picture:
        return np.asarray(picture.convert("RGB"))
