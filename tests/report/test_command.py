"""`hardsight report`: a path on success, one sentence and exit code 2 on bad input."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hardsight.cli.results import report

Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    made = typer.Typer(pretty_exceptions_enable=False)
    made.command()(report)
    return made


def test_writes_the_page_beside_the_record(app: typer.Typer, make_record: Maker) -> None:
    folder = make_record({"id": [1, 2], "label": [0, 1], "avh": [0.1, 0.3]})
    done = CliRunner().invoke(app, [str(folder)])
    assert done.exit_code == 0
    assert done.stdout == f"report: {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_paths_for_machines(app: typer.Typer, make_record: Maker, tmp_path: Path) -> None:
    folder, page = make_record({"id": [1, 2], "avh": [0.1, 0.3]}), tmp_path / "deep" / "page.html"
    done = CliRunner().invoke(app, [str(folder), "--output", str(page), "--figures", "--json"])
    assert done.exit_code == 0
    figure = folder / "figures" / "histogram-avh.png"
    assert json.loads(done.stdout) == {"report": str(page), "figures": [str(figure)]}
    assert page.is_file()
    assert figure.is_file()


@pytest.mark.parametrize("bad", ["missing", "empty", "truncated", "json"])
def test_bad_input_is_one_sentence(app: typer.Typer, make_record: Maker, tmp_path: Path, bad: str) -> None:
    folder = make_record({"id": [1], "avh": [0.1]})
    if bad == "missing":
        folder = tmp_path / "nowhere"
    if bad == "empty":
        folder = tmp_path / "empty"
        folder.mkdir()
    if bad == "truncated":
        whole = (folder / "samples.parquet").read_bytes()
        (folder / "samples.parquet").write_bytes(whole[: len(whole) // 2])
    if bad == "json":
        (folder / "run.json").write_text("{'kind'")
    done = CliRunner().invoke(app, [str(folder)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hardsight: ")
    assert done.stderr.count("\n") == 1
    assert str(folder) in done.stderr
    assert not (folder / "report.html").exists()
