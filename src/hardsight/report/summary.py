"""One wide picture that tells a run at a glance: the suspected wrong labels, and the score that finds them."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from hardsight.report.canvas import BLUE, INK, RED, drawing, save_png
from hardsight.report.figures import fill_histogram, shortened
from hardsight.report.numbers import Histogram
from hardsight.report.reading import read_run
from hardsight.report.view import Card, View, look_at

_COLUMNS, _ROWS = 6, 3


def write_summary_picture(run: Path | str, path: Path | str) -> Path:
    """One PNG of 1600 x 700 pixels for the top of a README, on white."""
    view = look_at(read_run(run))
    best = view.best
    counted = next((counted for score, counted in view.histograms if best and score.name == best.name), None)
    if view.suspects is None or counted is None:
        raise ValueError(f"{run} has no suspected labels to picture: samples.parquet needs 'label' and a score column")
    with drawing(16, 7, panels=0) as figure:
        left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1), wspace=0.03)
        _strip(left, view)
        _histogram(right, view, counted)
        save_png(figure, path, dots_per_inch=100)
    return Path(path)


def _strip(part: Any, view: View) -> None:
    assert view.suspects is not None
    cards = view.suspects.cards[: _COLUMNS * _ROWS]
    pictures = view.run.thumbnails([card.id for card in cards])
    part.suptitle("Most suspicious labels:  given → expected", fontsize=18, x=0.02, ha="left")
    grid = part.subplots(_ROWS, _COLUMNS)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, card in zip(grid.flat, cards, strict=False):
        picture = _pixels(pictures[card.id]) if card.id in pictures else np.full((1, 1, 3), 235, np.uint8)
        axes.imshow(picture, interpolation="nearest")
        change = [shortened(name, 9) for name in (card.given, card.expected) if name]
        axes.set_title(" → ".join(change), fontsize=16, loc="center")
        verdict, colour = _verdict(card)
        axes.text(0.5, -0.04, verdict, transform=axes.transAxes, ha="center", va="top", fontsize=12, color=colour)


def _verdict(card: Card) -> tuple[str, str]:
    if card.flipped is None:
        return "", INK
    return ("✓ was flipped", RED) if card.flipped else ("label is right", BLUE)


def _histogram(part: Any, view: View, counted: Histogram) -> None:
    line = next((line for line in view.lines if view.best and line.score.name == view.best.name), None)
    assert view.best is not None
    title = view.best.title
    if line is not None and line.auroc is not None:
        title += f" finds them: AUROC {line.auroc:.3f}"
    part.suptitle(title, fontsize=18, x=0.02, ha="left")
    axes = part.subplots()
    fill_histogram(axes, view.best, counted)
    axes.xaxis.label.set_size(15)
    axes.yaxis.label.set_size(15)
    axes.tick_params(labelsize=13)
    if axes.get_legend() is not None:
        axes.legend(fontsize=16, loc="best")


def _pixels(uri: str) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as picture:
        return np.asarray(picture.convert("RGB"))
