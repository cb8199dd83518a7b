"""The pages of the studies say what the results files say."""

from pathlib import Path

import pytest

from hardsight.studies import Study, studies
from hardsight.studies.framework import read_results, results_path
from hardsight.studies.page import studies_page, study_page

ROOT = Path(__file__).parents[2]


def test_the_index_is_up_to_date() -> None:
    assert (ROOT / "docs" / "studies.md").read_text() == studies_page(ROOT / "results"), "run `make docs`"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_the_page_is_up_to_date_and_its_figures_are_there(study: Study) -> None:
    page = ROOT / "docs" / "studies" / f"{study.id}.md"
    assert page.read_text() == study_page(study, ROOT / "results"), "run `make docs`"
    if study.figures is not None and "Not measured yet." not in page.read_text():
        for name in study.figures(read_results(study, ROOT / "results")):
            assert (page.parent / f"{study.id}-{name}.png").is_file(), "run `make docs`"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_study_that_was_not_run_says_so(study: Study, tmp_path: Path) -> None:
    assert "Not measured yet." in study_page(study, tmp_path)
    assert "not yet" in studies_page(tmp_path)


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_page_says_where_nothing_of_the_papers_size_is_measured(study: Study) -> None:
    measured = results_path(study, "paper", ROOT / "results").is_file()
    count = len(study.cells("paper"))
    said = f"Preset `paper`: {'its one cell is not' if count == 1 else f'none of its {count} cells is'} measured yet."
    assert (said in study_page(study, ROOT / "results")) != measured
