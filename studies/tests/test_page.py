"""The pages of the studies say what the results files say."""

import dataclasses
from pathlib import Path

import pytest
from hardsight_studies import Study, get_study, page, studies
from hardsight_studies.page import studies_page, study_page, write_pages
from hardsight_studies.results_file import results_path

ROOT = Path(__file__).parents[2]


def test_the_index_is_up_to_date() -> None:
    assert (ROOT / "docs" / "studies.md").read_text() == studies_page(ROOT / "studies" / "results"), "run `make docs`"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_the_page_is_up_to_date_and_its_figures_are_there(study: Study) -> None:
    made, path = study_page(study, ROOT / "studies" / "results"), ROOT / "docs" / "studies" / f"{study.id}.md"
    assert path.read_text() == made.text, "run `make docs`"
    for name in made.figures:
        assert (path.parent / f"{study.id}-{name}.png").is_file(), "run `make docs`"


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_study_that_was_not_run_says_so(study: Study, tmp_path: Path) -> None:
    assert "Not measured yet." in study_page(study, tmp_path).text
    assert "not yet" in studies_page(tmp_path)


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_page_says_where_nothing_of_the_papers_size_is_measured(study: Study) -> None:
    measured = results_path(study, "paper", ROOT / "studies" / "results").is_file()
    count = len(study.cells("paper"))
    said = f"Preset `paper`: {'its one cell is not' if count == 1 else f'none of its {count} cells is'} measured yet."
    assert (said in (ROOT / "docs" / "studies" / f"{study.id}.md").read_text()) != measured


def told(table: str, about: str = "A question.\n\n**How it was made.** So.") -> str:
    """The page of a study that prints this table."""
    study = dataclasses.replace(get_study("avh-figure3"), about=about, table=lambda results: table, figures=None)
    return study_page(study, ROOT / "studies" / "results").text.split("\n\n", 1)[1].split("\n<details>")[0]


def test_the_result_follows_the_question() -> None:
    assert told("**Result.** Yes.\n\nPreset `cpu`.\n\n| a |\n") == (
        "A question.\n\n**Result.** Yes.\n\n**How it was made.** So.\n\nPreset `cpu`.\n\n| a |\n"
    )


@pytest.mark.parametrize("then", ["Preset `cpu`.\n", "**Terms.** One.\n\nPreset `cpu`.\n"])
def test_what_belongs_to_the_result_goes_with_it(then: str) -> None:
    said = "**Result.** Two answers:\n\n- yes\n- no\n\n**H1** is the third."
    assert told(f"Before.\n\n{said}\n\n{then}") == (
        f"A question.\n\n{said}\n\n**How it was made.** So.\n\nBefore.\n\n{then}"
    )


@pytest.mark.parametrize("then", ["Numbers:\n\n| a |\n\nPreset `cpu`.\n", "| a |\n", "More.\n"])
def test_what_leads_to_a_table_stays_with_it(then: str) -> None:
    assert told(f"**Result.** Yes.\n\n{then}") == (
        f"A question.\n\n**Result.** Yes.\n\n**How it was made.** So.\n\n{then}"
    )


def test_a_page_without_a_result_has_the_table_last() -> None:
    assert told("Numbers, no **Result.** of theirs.\n") == (
        "A question.\n\n**How it was made.** So.\n\nNumbers, no **Result.** of theirs.\n"
    )


@pytest.mark.parametrize("study", studies(), ids=lambda study: study.id)
def test_a_result_is_told_once_and_before_the_figures(study: Study) -> None:
    made = study_page(study, ROOT / "studies" / "results")
    shown = made.text.split("\n<details>")[0]
    assert shown.count("\n**Result.**") <= 1
    for name in made.figures:
        assert shown.find("\n**Result.**") < shown.index(f"![{name}]")


def test_a_figure_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = get_study("avh-figure3")
    draw, drawn = study.figures, []
    assert draw is not None
    counted = dataclasses.replace(study, figures=lambda results: drawn.append(results["preset"]) or draw(results))
    monkeypatch.setattr(page, "studies", lambda: [counted])
    names = {path.name for path in write_pages(ROOT / "studies" / "results", tmp_path)}
    assert len(drawn) == 1
    assert {"studies.md", "avh-figure3.md", "avh-figure3-figures3-7.png"} == names
