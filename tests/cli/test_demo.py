"""The demo: the flipped labels are found, the record and the page are there, bad input is one sentence."""

import json
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hardsight.claims import claim
from hardsight.cli import app
from hardsight.demo import DemoResult, run_demo
from hardsight.report import samples_shown


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> DemoResult:
    return run_demo(tmp_path_factory.mktemp("demo"), epochs=8, progress=False)


def test_the_flipped_labels_are_found(result: DemoResult) -> None:
    by_name = {one.score: one for one in result.detections}
    assert result.detections[0].auroc >= 0.95
    # The ranking's own scores were chosen without the clean labels and must be as good.
    assert all(by_name[name].auroc >= 0.95 for name in result.ranked_by.split(" and "))
    assert by_name["avh"].auroc >= 0.9
    assert result.found >= 0.8 * result.flipped
    assert result.test_accuracy >= 0.9


def test_it_leaves_a_complete_record(result: DemoResult) -> None:
    run = json.loads((result.folder / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["results"]["label_issues"]["estimated"] == result.estimated
    samples = pq.read_table(result.folder / "samples.parquet")
    assert len(samples) == result.samples
    assert sum(
        a != b for a, b in zip(samples["label"].to_pylist(), samples["clean_label"].to_pylist(), strict=True)
    ) == (result.flipped)
    assert {"avh", "confidence", "aum", "el2n_mean", "forgetting_events"} <= set(samples.column_names)
    assert len(pq.read_table(result.folder / "epochs.parquet")) == 8


def test_the_page_and_the_terminal_name_the_same_suspects(result: DemoResult) -> None:
    first = [str(one) for one in result.suspects["id"].to_pylist()[:24]]
    assert samples_shown(result.folder)[:24] == first
    assert result.report is not None
    page = result.report.read_text()
    assert re.findall(r"id (\d+)</span>", page)[:24] == first
    assert f"; {result.found} of them were" in page
    assert f"<dd>{result.estimated}</dd>" in page
    assert page.count("data:image/png;base64") >= len(samples_shown(result.folder)) > result.estimated


def test_where_no_label_was_flipped_nothing_is_said_of_flipped_ones(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["demo", "--epochs", "2", "--noise", "0", "--output", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    assert "although" not in told.stdout
    assert "AUROC" not in told.stdout


def test_without_the_packages_of_a_page_the_findings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    told = CliRunner().invoke(app, ["demo", "--epochs", "1", "--output", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    assert "suspicious labels" in told.output
    assert "pip install jinja2 matplotlib" in told.output


def test_the_same_seed_gives_the_same_scores(result: DemoResult, tmp_path: Path) -> None:
    again = run_demo(tmp_path, epochs=8, progress=False)
    assert pq.read_table(tmp_path / "samples.parquet").equals(pq.read_table(result.folder / "samples.parquet"))
    assert again.suspects.equals(result.suspects)


def test_from_the_command_line(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["demo", "--epochs", "1", "--output", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    for word in ("flipped on purpose", "suspicious labels", "AUROC", "report.html"):
        assert word in told.output
    machine = CliRunner().invoke(app, ["demo", "--epochs", "1", "--json", "--output", str(tmp_path / "again")])
    assert json.loads(machine.stdout)["samples"] == 1438


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--noise", "1.5"], "--noise must lie in"),
        (["--noise", "nan"], "--noise must lie in"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--seed", str(10**30)], "--seed must be at least 0 and fit 63 bits"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    refused = CliRunner().invoke(app, ["demo", *arguments, "--output", str(tmp_path / "run")])
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_file_where_the_folder_should_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for output in (tmp_path / "taken", tmp_path / "taken" / "run"):
        refused = CliRunner().invoke(app, ["demo", "--epochs", "1", "--output", str(output)])
        assert refused.exit_code == 2
        assert str(tmp_path / "taken") in refused.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_folder_in_use_is_left_to_the_other(result: DemoResult) -> None:
    before = {path: path.read_bytes() for path in sorted(result.folder.rglob("*")) if path.is_file()}
    with claim(result.folder / ".training") as mine:
        assert mine
        refused = CliRunner().invoke(app, ["demo", "--epochs", "1", "--output", str(result.folder)])
    assert refused.exit_code == 2
    assert f"training in {result.folder}" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert {path: path.read_bytes() for path in sorted(result.folder.rglob("*")) if path.is_file()} == before


def test_the_folder_is_held_until_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def write(folder: Path) -> Path:
        with claim(folder / ".training") as mine:
            held.append(not mine)
        return folder / "report.html"

    monkeypatch.setattr("hardsight.report.write_report", write)
    run_demo(tmp_path / "run", epochs=1, progress=False)
    assert held == [True]
    assert not (tmp_path / "run" / ".training").exists()


def test_the_record_of_something_else_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"kind": "training", "config": {"data": {"name": "cifar10"}}}')
    refused = CliRunner().invoke(app, ["demo", "--epochs", "1", "--output", str(tmp_path)])
    assert refused.exit_code == 2
    assert [one for one in ("--output must be", f"; {tmp_path} holds") if one not in refused.stderr] == []
    assert not refused.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
