"""The page of the studies says what the results files say."""

from pathlib import Path

from hardsight.studies.page import studies_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "studies.md").read_text() == studies_page(ROOT / "results"), "run `make docs`"


def test_a_study_that_was_not_run_says_so(tmp_path: Path) -> None:
    assert "Not measured yet." in studies_page(tmp_path)
