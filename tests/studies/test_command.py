"""`hardsight study`: list, table, import, and one sentence for what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hardsight.cli.study import study_app
from hardsight.studies import get_study, read_results
from hardsight.studies.transport import pack


def run(*arguments: object) -> Any:
    return CliRunner().invoke(study_app, [str(one) for one in arguments])


def test_list_names_the_studies() -> None:
    assert run("list").stdout.startswith("label-errors\t")
    assert '"id": "label-errors"' in run("list", "--json").stdout


def test_table_prints_the_results(smoke: Any) -> None:
    done = run("table", "label-errors", "--results", smoke.results)
    assert done.exit_code == 0
    assert "| `el2n_mean` |" in done.stdout
    printed = json.loads(run("table", "label-errors", "--results", smoke.results, "--json").stdout)
    assert printed == read_results(get_study("label-errors"), smoke.results)


def test_run_finds_everything_done_and_packs_it(smoke: Any, tmp_path: Path) -> None:
    done = run(
        *("run", "label-errors", "--output", smoke.records, "--results", tmp_path),
        *("--pack-to", tmp_path / "packed", "--limit-seconds", 60),
    )
    assert done.exit_code == 0
    assert "packed into 1 files; left out: nothing" in done.stdout


def test_import_unpacks_and_judges(smoke: Any, tmp_path: Path) -> None:
    packed = pack(get_study("label-errors"), "smoke", smoke.records, tmp_path / "packed")
    done = run(
        *("import", "label-errors", *packed.files, "--preset", "smoke"),
        *("--output", tmp_path / "records", "--results", tmp_path),
    )
    assert done.exit_code == 0
    assert f"{len(get_study('label-errors').cells('smoke'))} cells" in done.stdout
    assert (tmp_path / "label-errors-smoke.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "lable-errors"), "nearest are: label-errors"),
        (("table", "label-errors", "--results", "nowhere"), "were looked for in nowhere"),
        (("run", "label-errors", "--preset", "huge"), "preset must be one of"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
