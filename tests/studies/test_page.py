"""The pages of the studies say what the results files say."""

import dataclasses
from pathlib import Path

import pytest

from hardsight.studies import Study, get_study, page, studies
from hardsight.studies.page import studies_page, study_page, write_pages
from hardsight.studies.results_file import results_path

ROOT = Path(__file__).parents[2]


def test_the_index_is_up_to_date() -> None:
    assert (ROOT / "docs" / "studies.md").read_text() == studies_page(ROOT / "results"), "run `make docs`"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_the_page_is_up_to_date_and_its_figures_are_there(study: Study) -> None:
    made, path = study_page(study, ROOT / "results"), ROOT / "docs" / "studies" / f"{study.id}.md"
    assert path.read_text() == made.text, "run `make docs`"
    for name in made.figures:
        assert (path.parent / f"{study.id}-{name}.png").is_file(), "run `make docs`"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_study_that_was_not_run_says_so(study: Study, tmp_path: Path) -> None:
    assert "Not measured yet." in study_page(study, tmp_path).text
    assert "not yet" in studies_page(tmp_path)


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_page_says_where_nothing_of_the_papers_size_is_measured(study: Study) -> None:
    measured = results_path(study, "paper", ROOT / "results").is_file()
    count = len(study.cells("paper"))
    said = f"Preset `paper`: {'its one cell is not' if count == 1 else f'none of its {count} cells is'} measured yet."
    assert (said in (ROOT / "docs" / "studies" / f"{study.id}.md").read_text()) != measured


def test_a_figure_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = get_study("avh-figure3")
    draw, drawn = study.figures, []
    assert draw is not None
    counted = dataclasses.replace(study, figures=lambda results: drawn.append(results["preset"]) or draw(results))
    monkeypatch.setattr(page, "studies", lambda: [counted])
    names = {path.name for path in write_pages(ROOT / "results", tmp_path)}
    assert len(drawn) == 1
    assert {"studies.md", "avh-figure3.md", "avh-figure3-figures3-7.png"} == names
