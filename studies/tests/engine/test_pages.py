"""Pages: numbers are filled in from the rows, and a claim that the rows do not support stops the build."""

from pathlib import Path
from typing import Any

import pytest
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.expressions import NotMeasuredError
from hardsight_studies.engine.pages import Scope, build_pages, filled
from hardsight_studies.engine.rows import Row, path_of, write_rows
from hardsight_studies.engine.summary import results_page

STUDY = """
title = "Rates"
question = "Which is better?"
paper = "GR Table 99"
[axes]
rate = [0.2, 0.4]
method = ["cce", "gr"]
seed = [0, 1]
[metrics]
last = "test_accuracy"
[presets.cpu]
[presets.paper]
[[table]]
name = "accuracy"
rows = ["method"]
columns = ["rate"]
cell = "{last:.1%}"
paper = { "0.4" = { cce = "60.9", gr = "83.3±0.2" } }
[[result]]
paper = "{{ paper('accuracy', 'gr', 0.4) }}"
ours = "{{ last(method='gr', rate=0.4) | percent }}"
verdict = { holds = "last(method='gr', rate=0.4) > last(method='cce', rate=0.4)", "does not hold" = "True" }
"""


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scope:
    (tmp_path / "gr").mkdir()
    (tmp_path / "gr" / "gr-table99.toml").write_text(STUDY)
    monkeypatch.setattr(studies, "HOME", tmp_path)

    def row(preset: str, method: str, rate: float, seed: int, last: float) -> Row:
        return Row("gr-table99", preset, {"method": method, "rate": rate}, seed, {"last": last}, "cpu", {"torch": "2"})

    values = {("gr", 0): 0.83345, ("gr", 1): 0.84345, ("cce", 0): 0.61, ("cce", 1): 0.60}
    rows = [row("paper", method, 0.4, seed, value) for (method, seed), value in values.items()]
    write_rows(path_of("gr-table99", tmp_path), [*rows, row("cpu", "gr", 0.2, 0, 0.1)])
    return Scope(studies.get("gr-table99"), tmp_path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{ last(method='gr', rate=0.4) | percent }}", "83.8 ± 0.7"),
        ("{{ last(method='gr', rate=0.4, seed=0) | percent }}", "83.3"),
        ("{{ last(method='gr', rate=0.4, seed=0) | .4f }}", "0.8335"),
        ("{{ last(method='gr', preset='cpu') | percent0 }}", "10"),
        ("{{ last(method='gr', rate=0.4) - last(method='cce', rate=0.4) | points }}", "+23.3"),
        ("{{ [last(method=one, rate=0.4, seed=1) for one in options('method')] | percent }}", "60.0 / 84.3"),
        ("{{ max(values(last, rate=0.4)) | percent }}", "83.8"),
        ("{{ paper('accuracy', 'gr', 0.4) }}", "83.3"),
        ("{{ last(method='gr', rate=0.4, study='gr-table99') | .1% }}", "83.8 ± 0.7"),
        ("a <!-- claim: last(method='gr', rate=0.4) > 0.8 -->b", "ab"),
    ],
)
def test_what_is_filled_in(text: str, wanted: str, scope: Scope) -> None:
    assert filled(text, scope) == wanted


def test_a_table_and_its_provenance_are_filled_in(scope: Scope) -> None:
    text = filled("{{ table }}\n\n{{ provenance }}", scope)
    assert "| gr | – | 83.8 ± 0.7 [83.3±0.2] |" in text
    assert "4 of 8 runs" in text
    assert "seeds 0, 1" in text


def test_a_claim_that_no_longer_holds_stops_the_build(scope: Scope, tmp_path: Path) -> None:
    page, claim = tmp_path / "gr-table99.md", "last(method='gr', rate=0.4) < last(method='cce', rate=0.4)"
    page.write_text(f"# Rates\n\nGR is worse.\n<!-- claim: {claim} -->\n")
    with pytest.raises(ValueError) as stopped:  # noqa: PT011 (what it names is asserted below)
        build_pages(tmp_path / "site", results=tmp_path, pages=tmp_path)
    assert claim in str(stopped.value)
    assert "gr-table99.md" in str(stopped.value)
    assert not (tmp_path / "site" / page.name).exists()
    page.write_text(page.read_text().replace("<", ">").replace(">!--", "<!--"))
    assert [one.read_text() for one in build_pages(tmp_path / "site", results=tmp_path, pages=tmp_path)] == [
        "# Rates\n\nGR is worse.\n"
    ]


@pytest.mark.parametrize(
    ("claim", "named"),
    [
        ("last(method='gr', rate=0.2) > 0", "rate=0.2"),
        ("last(method='gr', rate=0.2, preset='smoke') > 0", "smoke"),
    ],
)
def test_a_claim_about_runs_that_are_not_measured_names_them(claim: str, named: str, scope: Scope) -> None:
    with pytest.raises(NotMeasuredError, match=named):
        filled(f"<!-- claim: {claim} -->", scope, "page.md")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{{ lst(method='gr', rate=0.4) }}", "'last'"),
        ("{{ last(methd='gr', rate=0.4) }}", "'method'"),
        ("{{ last(method='gr', rate=0.4) | precent }}", "'percent'"),
        ("{{ last(rate=0.4) }}", "method"),
        ("{{ diference(1, 2) }}", "'difference'"),
        ("{{ table('acuracy') }}", "'accuracy'"),
        ("<!-- claim: last(method='gr', rate=0.4) -->", "true or false"),
        ("{{ last(method='gr', study='gr-table98') }}", "'gr-table99'"),
    ],
)
def test_a_slip_comes_with_what_was_meant(text: str, named: str, scope: Scope) -> None:
    with pytest.raises(ValueError, match=named):
        filled(text, scope, "page.md")


def test_a_page_of_no_study_is_refused(scope: Scope, tmp_path: Path) -> None:
    (tmp_path / "gr-table9.md").write_text("# None\n")
    with pytest.raises(ValueError, match="gr-table99"):
        build_pages(tmp_path / "site", results=tmp_path, pages=tmp_path)


def test_results_are_one_line_each_with_the_first_true_verdict(scope: Scope, tmp_path: Path) -> None:
    def line() -> list[str]:
        found = next(one for one in results_page(tmp_path).splitlines() if one.startswith("| gr-table99"))
        return [part.strip() for part in found.strip("|").split("|")]

    assert line() == ["gr-table99", "GR Table 99", "Rates", "83.3", "83.8 ± 0.7", "2", "holds"]
    path = path_of("gr-table99", tmp_path)
    path.write_text(path.read_text().replace('"last": 0.8', '"last": 0.1'))
    assert line()[-1] == "does not hold"
    rows: Any = [one for one in path.read_text().splitlines() if '"preset": "smoke"' in one]
    path.write_text("\n".join(rows))
    assert line() == ["gr-table99", "GR Table 99", "Rates"], "planned"
