"""Every study: its file is sound in every preset, its smoke run ends in its tables, and what is published builds."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hardsight_studies.engine import running, trainings
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.command import study_app
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.pages import PAGES, Scope, claims, filled
from hardsight_studies.engine.rows import PUBLISHED, path_of, read_rows
from hardsight_studies.engine.study import HOME
from typer.testing import CliRunner

HEADS = studies.heads()


def run(*arguments: object) -> Any:
    return CliRunner().invoke(study_app, [str(one) for one in arguments])


@pytest.fixture(params=HEADS, ids=[head.id for head in HEADS])
def study(request: pytest.FixtureRequest) -> studies.Study:
    return studies.load(request.param.path)


def test_a_smoke_run_ends_in_rows_and_tables(study: studies.Study, tmp_path: Path) -> None:
    done = run("run", study.id, "--output", tmp_path / "records", "--results", tmp_path)
    assert done.exit_code == 0, done.stderr
    rows = read_rows(path_of(study.id, tmp_path))
    assert rows
    assert not [row.error for row in rows if row.error]
    table = run("table", study.id, "--preset", "smoke", "--results", tmp_path)
    assert table.exit_code == 0, table.stderr
    again = run("run", study.id, "--output", tmp_path / "records", "--results", tmp_path)
    assert " s: " not in again.stdout, "nothing is computed twice"
    assert read_rows(path_of(study.id, tmp_path)) == rows
    figures = run("figures", study.id, "--preset", "smoke", "--results", tmp_path, "-o", tmp_path / "figures")
    assert figures.exit_code == 0, figures.stderr
    # A small preset may plan nothing of a figure's part.
    drawn, left_out = len(list(tmp_path.glob("figures/*.png"))), figures.stderr.count("has no points")
    assert drawn + left_out == len(study.tables("figure"))
    assert drawn or not study.tables("figure")


def test_every_preset_can_be_planned_and_every_hook_is_there(study: studies.Study) -> None:
    for preset in study.presets:
        runs = plan(study, preset)
        assert runs
        assert len({run.name for run in runs}) == len(runs)
        for one in () if {"compute", "run"} & study.tree.get("hooks", {}).keys() else runs:
            trainings.config_of(one)
    named = [
        *study.tree.get("hooks", {}).values(),
        *(one["function"] for one in study.tables("table") if "function" in one),
    ]
    for name in [*named, *(one["draw"] for one in study.tables("figure") if "draw" in one)]:
        assert callable(running.hook(name))


def test_published_rows_are_of_the_grid(study: studies.Study) -> None:
    rows = read_rows(path_of(study.id, PUBLISHED))
    axes = {*study.axes, *(name for row in rows for name in row.settings if study.tree.get("hooks", {}).get("rows"))}
    for row in rows:
        assert row.study == study.id
        assert row.preset in study.presets
        assert {*row.settings} <= axes


def test_every_results_file_is_a_studys() -> None:
    known = {head.id for head in HEADS}
    assert {path.stem for path in PUBLISHED.glob("*.jsonl")} <= known
    assert {path.stem for path in PUBLISHED.glob("*.parquet")} <= known


def test_its_page_is_filled_in_and_short(study: studies.Study) -> None:
    source = PAGES / f"{study.id}.md"
    if source.is_file():
        # Without its figures, which take most of the time: the smoke run draws them.
        page = filled(source.read_text(encoding="utf-8"), Scope(study), source.name)
        prose = [line for line in page.splitlines() if not line.startswith(("|", "<", "!["))]
        assert len(" ".join(prose).split()) <= 400
        assert claims(source.read_text(encoding="utf-8")), "what is compared is claimed"


def test_every_page_is_of_a_study() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} <= {"findings", "measured", *(head.id for head in HEADS)}


def test_every_line_of_results_can_be_made(study: studies.Study) -> None:
    from hardsight_studies.engine.summary import lines_of

    for line in lines_of(study, PUBLISHED):
        assert all(line[4:]), line


def test_listing_reads_no_more_than_heads_and_imports_no_torch() -> None:
    code = (
        "import sys; from hardsight_studies.engine.command import study_app; from typer.testing import CliRunner;"
        "found = CliRunner().invoke(study_app, ['list']); assert found.exit_code == 0, found.output;"
        "assert len(found.stdout.splitlines()) > 2; "
        "assert not {'torch', 'numpy', 'pyarrow', 'matplotlib'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_running_one_study_imports_no_other(tmp_path: Path) -> None:
    code = (
        "import sys; from hardsight_studies.engine.command import study_app; from typer.testing import CliRunner;"
        f"where = r'{tmp_path}';"
        "found = CliRunner().invoke(study_app, ['run', 'gr-table8', '--output', where, '--results', where]);"
        "assert found.exit_code == 0, found.output;"
        "print(*(name for name in sys.modules if name.startswith('hardsight_studies.') and '.engine' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_no_study_file_is_long() -> None:
    for path in [*HOME.glob("**/*.toml"), *HOME.glob("**/*.py")]:
        assert len(path.read_text().splitlines()) <= 310, path
