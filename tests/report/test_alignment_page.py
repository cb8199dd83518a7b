"""The page of an alignment shows its numbers, asks the network for nothing, and lets no name write markup into it."""

import html.parser
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardsight.alignment import Column, align_scores
from hardsight.alignment.analysis import decimals, interval_text, notes, p_text
from hardsight.records import write_json, write_thumbnails
from hardsight.report import write_alignment_page
from hardsight.report.alignment_figures import _steps
from hardsight.report.alignment_page import SECTIONS, render_alignment
from hardsight.report.page import Picture, filled, pictures

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$\\frac{1}{",
    "{{ 7 * 7 }}",
    "猫 ‮ https://evil.example",
]


def results(
    names: list[str] | None = None, human: str = "hsf", classes: list[str] | None = None, **options: Any
) -> dict:
    generator = np.random.default_rng(0)
    frequency = generator.integers(0, 51, 300) / 50
    names = ["avh", "confidence", "norm"] if names is None else names
    scores = [
        Column(
            name,
            frequency * (0.5 if at else -0.5) + generator.normal(0, 0.2 + 0.1 * at, 300),
            ("easier" if at else "harder"),
        )
        for at, name in enumerate(names)
    ]
    labels = np.array(classes or ["cat", "dog", "frog"])[np.arange(300) % len(classes or "abc")]
    chosen = {"labels": labels, "correct": (frequency > 0.3).astype(float), "resamples": 30} | options
    found = align_scores(scores, Column(human, frequency, "easier"), generator=generator, **chosen)
    return json.loads(
        json.dumps(found | {"join": "300 ids match.", "join_incomplete": False, "left_out": {}, "seed": 0})
    )


def drawn(results: dict) -> dict[str, Picture]:
    """The pictures of an alignment's page by name."""
    return {one.name: one for one in pictures(filled(SECTIONS, results))}


class _Page(html.parser.HTMLParser):
    """Elements with their attributes; every element that opens must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data if self.open[-1:] != ["style"] else ""


def check_harmless(text: str) -> _Page:
    page = _Page(text)
    kinds = {tag for tag, _ in page.elements}
    assert not kinds & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "foreignobject"}
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
        assert not re.search(r"url\((?!#)", attributes.get("style", ""))
    return page


@pytest.fixture(scope="module")
def usual() -> dict:
    return results()


def test_the_page_is_whole_and_says_its_numbers(usual: dict, tmp_path: Path) -> None:
    write_json(tmp_path / "alignment.json", usual)
    path = write_alignment_page(tmp_path / "alignment.json")
    assert path == tmp_path / "alignment.html"
    text = path.read_text(encoding="utf-8")
    page = check_harmless(text)
    assert "://" not in text
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        if attributes.get("href"):
            assert attributes["href"][1:] in ids
    drawn = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(drawn) == 8
    assert all(one["aria-label"] and one["role"] == "img" for one in drawn)
    for score in usual["scores"]:
        for method in ("spearman", "pearson", "kendall"):
            assert decimals(score["correlations"][method]["coefficient"]) in page.words
        assert decimals(score["given_correctness"]["coefficient"]) in page.words
    for pair in usual["comparisons"]:
        assert p_text(pair["meng"]["p_value"]) in page.words
    for group in usual["classes"]["avh"]:
        assert decimals(group["correlation"]["coefficient"]) in page.words


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_writes_markup(hostile: str) -> None:
    found = results([hostile, "other"], human=hostile, classes=[hostile, "dog"], resamples=0)
    found |= {"left_out": {"x": hostile}, "join": hostile, "join_incomplete": True}
    page = check_harmless(render_alignment(found))
    assert "49" not in re.findall(r"\b7 \* 7\b|\b49\b", page.words)
    assert hostile.split()[0] in page.words


def test_the_check_rejects_a_harmful_page() -> None:
    for unsafe in ("<script>x</script>", '<p onclick="x">x</p>', '<a href="https://x.example">x</a>', "<p>"):
        with pytest.raises(AssertionError):
            check_harmless(f"<div>{unsafe}</div>")


def test_every_figure_labels_its_axes(usual: dict) -> None:
    figures = drawn(usual)
    assert list(figures) == ["strengths", "joint0", "joint1", "joint2", "comparisons", "bins", "classes", "agreement"]
    for name, one in figures.items():
        assert one.words
        figure = one.figure
        words = [text.get_text() for text in figure.texts]
        labels = [axes.get_xlabel() for axes in figure.axes] + words
        ticks = [tick.get_text() for axes in figure.axes for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())]
        assert any(labels) or name == "agreement"
        assert any(ticks)


def test_long_names_that_begin_alike_stay_apart() -> None:
    alike = [f"the hardness seen by a network called resnet-{depth}" for depth in (20, 56, 101)]
    figures = drawn(results(alike, classes=[f"a class of a long name, {kind}" for kind in "abc"]))
    for name, rows in {"strengths": 3, "comparisons": 3, "classes": 3, "agreement": 3}.items():
        ticks = [tick.get_text() for tick in figures[name].figure.axes[0].get_yticklabels()]
        assert len(ticks) == len(set(ticks)) == rows, name
    for name in ("bins", "classes"):
        assert len({axes.get_title(loc="left") for axes in figures[name].figure.axes}) == 3


def test_the_joint_histogram_draws_every_occupied_cell_once(usual: dict) -> None:
    figure = drawn(usual)["joint0"].figure
    cells = sum(int((patch.get_path().codes == 1).sum()) for patch in figure.axes[0].patches)
    assert cells == int((np.asarray(usual["scores"][0]["histogram"]["counts"]) > 0).sum())


@pytest.mark.parametrize("largest", [1, 2, 3, 10, 500, 10**6])
def test_steps_hold_every_count_once(largest: int) -> None:
    steps = _steps(largest)
    assert steps[0][0] == 1
    assert steps[-1][1] == largest
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(steps))


def test_what_is_missing_leaves_no_hole() -> None:
    alone = results(["avh"], resamples=0, labels=None, correct=None)
    page = check_harmless(render_alignment(alone))
    assert "Which score agrees better" not in page.words
    assert "Within each class" not in page.words
    assert "No intervals" in page.words
    kendall = check_harmless(render_alignment(results(method="kendall", resamples=4)))
    assert "the interval decides" in kendall.words


def test_notes_name_what_weakens_a_number() -> None:
    found = results(["avh", "confidence"], resamples=0)
    by_name = {score["name"]: score for score in found["scores"]}
    by_name["avh"]["direction"] = None
    by_name["confidence"]["correlations"]["spearman"]["coefficient"] = -0.1
    found |= {"join": "9 ids match; 2 are missing", "join_incomplete": True, "left_out": {"flat": "must vary"}}
    noted = notes(found)
    assert [name for name, _ in noted if name != "all"] == ["avh", "confidence", "flat"] or len(noted) > 3
    assert ("all", "9 ids match; 2 are missing") in noted
    words = check_harmless(render_alignment(found)).words
    for name, note in noted:
        assert f"{name}: {note}" in words
    assert not [name for name, note in notes(results(["avh"], resamples=0)) if "direction" in note]


def test_the_best_score_and_its_lead_come_first(usual: dict) -> None:
    words = check_harmless(render_alignment(usual)).words
    strengths = [score["correlations"]["spearman"]["coefficient"] for score in usual["scores"]]
    assert strengths == sorted(strengths, reverse=True)
    lead = usual["comparisons"][0]
    facts = words[: words.index("Agreement with people")]
    assert decimals(strengths[0]) in facts
    assert decimals(lead["difference"], 4) in facts
    assert interval_text(lead["interval"], 4) in facts


def test_disagreements_are_shown_with_their_pictures(usual: dict, tmp_path: Path) -> None:
    one = {
        "row": 0,
        "id": HOSTILE[0],
        "label": None,
        "score": 0.25,
        "human": 0.75,
        "model_rank": 0.1,
        "human_rank": 1.0,
    }
    other = one | {"id": "b", "label": "cat", "score": 0.5, "model_rank": 0.9, "human_rank": 0.2}
    name = usual["scores"][0]["name"]
    write_json(tmp_path / "alignment.json", usual | {"disagreements": {name: {"people": [one], "model": [other]}}})
    without = check_harmless(write_alignment_page(tmp_path / "alignment.json").read_text(encoding="utf-8"))
    assert {"people-harder", "model-harder"} <= {attributes.get("id") for _, attributes in without.elements}
    for text in ("0.25", "0.75", "0.900", "0.200", HOSTILE[0]):
        assert text in without.words
    write_thumbnails(tmp_path / "thumbnails.parquet", ["b"], [np.zeros((4, 4, 3), np.uint8)])
    text = write_alignment_page(tmp_path / "alignment.json").read_text(encoding="utf-8")
    assert re.findall('<img src="([^;]*);[^"]*" alt="([^"]*)"', text) == [("data:image/png", "Sample b, labelled cat")]


def test_numbers_as_text() -> None:
    assert (p_text(0.0), p_text(0.0123), p_text(None)) == ("< 1e-300", "0.012", "")
    assert (decimals(None), decimals(float("nan")), decimals(-0.12345)) == ("", "", "-0.123")
    assert interval_text({"low": None, "high": None}) == ""


def test_what_is_no_alignment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alignment.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="is not readable JSON"):
        write_alignment_page(path)
    path.write_text('{"scores": []}')
    with pytest.raises(ValueError, match="must hold the results of an alignment"):
        write_alignment_page(path)
    assert not path.with_suffix(".html").exists()
