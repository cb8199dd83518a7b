"""Figures show the numbers they were given, and leave matplotlib as they found it."""

import re
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hardsight.plotting import _VARIABLES, as_svg
from hardsight.report import figures, write_figures
from hardsight.report.gallery import PageView
from hardsight.report.page import Picture, filled, pictures
from hardsight.report.reading import Score, read_run
from hardsight.report.sections import SECTIONS
from hardsight.report.view import histogram

Maker = Callable[..., Path]


def drawn(folder: Path) -> dict[str, Picture]:
    """The pictures of a record's page by name."""
    return {one.name: one for one in pictures(filled(SECTIONS, PageView(read_run(folder))))}


HARDNESS, CONFIDENCE = Score("avh", "Hardness", "harder"), Score("confidence", "Confidence", "easier")


def test_a_histogram_draws_the_shares_of_each_group() -> None:
    values = np.random.default_rng(0).random(200)
    counted = histogram(values, {"intact": values < 0.7, "flipped": values >= 0.7})
    assert counted is not None
    (axes,) = figures.draw_histogram(HARDNESS, counted).axes
    drawn = {patch.get_label(): patch.get_data().values for patch in axes.patches if not patch.get_fill()}
    assert set(drawn) == {f"{name} ({counted.counts[name].sum()})" for name in ("intact", "flipped")}
    for label, heights in drawn.items():
        np.testing.assert_allclose(heights, counted.shares(label.split()[0]))
    assert axes.get_ylim()[1] > max(heights.max() for heights in drawn.values())


@pytest.mark.parametrize("count", [figures.MOST_POINTS - 1, figures.MOST_POINTS + 2, 3 * figures.MOST_POINTS])
def test_the_plane_shows_samples_once_and_no_more_than_can_be_seen(count: int) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.random(count), generator.random(count)
    x[0], y[1] = np.nan, np.inf
    wrong = generator.random(count) < 0.2
    figure = figures.draw_plane(CONFIDENCE, x, HARDNESS, y, {"intact": ~wrong, "flipped": wrong}, 0.1)
    (axes,) = figure.axes
    places = [line.get_xydata() for line in axes.lines if line.get_linestyle() == "None"]
    shown = np.concatenate(places)
    assert len(np.unique(shown, axis=0)) == len(shown) == min(count - 2, figures.MOST_POINTS)


def test_classes_stand_hardest_first_whatever_the_direction() -> None:
    counts, means = np.array([4, 0, 2, 3]), np.array([0.2, np.nan, 0.9, 0.5])
    for score, order in ((HARDNESS, "cda"), (CONFIDENCE, "adc")):
        (axes,) = figures.draw_classes(score, list("abcd"), counts, means, None).axes
        assert "".join(label.get_text() for label in axes.get_yticklabels()) == order


def test_confusion_writes_the_counts_where_they_belong() -> None:
    given, predicted, counts = np.array([0, 0, 1]), np.array([0, 2, 1]), np.array([5, 3, 7])
    (axes,) = figures.draw_confusion(given, predicted, counts, ["a", "b", "c"]).axes
    written = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "5", (0, 2): "3", (1, 1): "7"}


def test_long_names_that_begin_alike_stay_apart() -> None:
    """Cut at their end, two of these diseases are one: a confusion of them would read as agreement."""
    names = ["Tomato___Tomato_Yellow_Leaf_Curl_Virus", "Tomato___Tomato_mosaic_virus", "Tomato___healthy", "rose"]
    (axes,) = figures.draw_confusion([0, 1], [1, 0], [5, 2], names).axes
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        drawn = [tick.get_text() for tick in ticks]
        assert len(set(drawn)) == 4
        assert all(len(text) <= 14 for text in drawn)
        assert drawn[2:] == ["Tomato___heal…", "rose"]
    (axes,) = figures.draw_classes(
        HARDNESS, [f"a class of a very long name, {at}" for at in "ab"], np.ones(2, int), np.array([0.2, 0.1]), None
    ).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a class of …ng name, a", "a class of …ng name, b"]


def test_curves_are_grouped_by_what_they_measure() -> None:
    columns = {name: np.arange(3.0) for name in ("train_loss", "test_loss", "train_accuracy", "learning_rate")}
    drawn = figures.draw_curves(columns, np.arange(1.0, 4.0))
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["loss", "accuracy", "learning rate"]
    assert [len(axes.lines) for axes in drawn.axes] == [2, 1, 1]


def test_what_is_measured_seldom_is_seen() -> None:
    nothing = np.full(12, np.nan)
    at_the_end, now_and_then = nothing.copy(), nothing.copy()
    at_the_end[-1], now_and_then[::4] = 0.5, 0.25
    (axes,) = figures.draw_curves({"end_accuracy": at_the_end, "few_accuracy": now_and_then}, np.arange(12.0)).axes
    end, few = axes.lines
    assert (end.get_xdata().tolist(), end.get_marker()) == ([11.0], "o")
    assert few.get_xdata().tolist() == [0.0, 4.0, 8.0]


@pytest.mark.parametrize("epochs", [1, 5])
def test_no_two_curves_of_a_panel_are_drawn_alike(epochs: int) -> None:
    names = ("train", "test", "corrupted", "intact", "clean", "noisy")
    columns = {f"{name}_accuracy": np.full(epochs, 0.5) for name in names}
    (axes,) = figures.draw_curves(columns, np.arange(1.0, epochs + 1)).axes
    looks = {(line.get_color(), line.get_linestyle() if epochs > 2 else line.get_marker()) for line in axes.lines}
    assert len(looks) == len(columns)


def test_a_column_without_a_number_gets_no_panel(make_record: Maker) -> None:
    folder = make_record()
    table = pa.table({"epoch": [1, 2], "train_loss": [2.0, 1.0], "beta": pa.array([None, None], pa.float64())})
    pq.write_table(table, folder / "epochs.parquet")
    figure = drawn(folder)["curves"].figure
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["loss"]
    pq.write_table(table.select(["epoch", "beta"]), folder / "epochs.parquet")
    assert "curves" not in drawn(folder)


def test_an_svg_takes_its_colours_from_the_page_and_keeps_its_ids_apart() -> None:
    values = np.arange(10.0)
    counted = histogram(values, {"intact": values < 5, "flipped": values >= 5})
    assert counted is not None
    name = "<b>#0072b2</b> & 'DejaVu Sans' $\\frac{ 猫"
    texts = [as_svg(figures.draw_histogram(Score("x", name, None), counted), name, at) for at in ("one", "two")]
    styles = " ".join(re.findall(r'style="([^"]*)"', texts[0]))
    assert not [colour for colour in _VARIABLES if colour in styles]
    assert "var(--ink)" in styles
    assert "var(--red)" in styles
    assert "&lt;b&gt;#0072b2&lt;/b&gt;" in texts[0]
    assert "<b>" not in texts[0]
    ids = [set(re.findall(r' id="([^"]*)"', text)) for text in texts]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_no_figure_of_the_page_has_a_colour_that_ignores_the_dark_theme(digits_record: Path) -> None:
    """White behind words whose ink turns pale hid the numbers at the bars."""
    found = drawn(digits_record)
    assert "classes" in found
    for name, one in found.items():
        styles = " ".join(re.findall(r'style="([^"]*)"', as_svg(one.figure, one.words, name)))
        assert not re.findall(r"#[0-9a-f]{3,8}\b", styles), name


def test_figures_are_saved_and_matplotlib_is_left_alone(digits_record: Path, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    for name in ("run.json", "samples.parquet", "epochs.parquet"):
        (folder / name).write_bytes((digits_record / name).read_bytes())
    before = dict(matplotlib.rcParams)
    paths = write_figures(folder)
    assert dict(matplotlib.rcParams) == before
    scores = ("avh", "confidence", "margin", "entropy", "loss", "norm")
    names = [f"histogram-{score}" for score in scores] + ["plane", "curves", "classes", "confusion"]
    assert paths == [folder / "figures" / f"{name}.png" for name in names]
    for path in paths:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            # On white, with something drawn on it.
            grey = np.asarray(picture.convert("L"))
            assert grey[0, 0] == 255
            assert grey.min() < 128


def test_file_names_come_from_scores_but_stay_in_the_folder(make_record: Maker) -> None:
    folder = make_record({"id": [1, 2], "../../evil/x": [0.1, 0.2]})
    assert write_figures(folder) == [folder / "figures" / "histogram-______evil_x.png"]


@pytest.mark.parametrize("far", [1e308, -1e308])
def test_numbers_at_the_end_of_their_type_are_drawn(far: float) -> None:
    """Differences of such numbers overflow, and matplotlib finds no ticks between them."""
    values = np.array([0.5, far, -far, 1.0])
    groups = {"intact": np.array([True, True, False, False]), "flipped": np.array([False, False, True, True])}
    figures_of_far = [
        figures.draw_curves({"train_loss": values, "seconds": values}, values),
        figures.draw_plane(CONFIDENCE, values, HARDNESS, values[::-1], groups, None),
    ]
    for figure in figures_of_far:
        assert "<svg" in as_svg(figure, "far", "p-")
