"""From the TOML to the printed table: what the engine reads, runs, keeps and shows."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.command import study_app
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Number, Row, merge, read, read_points, read_rows, write_rows
from hardsight_studies.engine.running import completed, row_of, run_study
from hardsight_studies.engine.study import text
from hardsight_studies.engine.trainings import write_record
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

DIGITS = """
title = "Digits"
question = "Does it run?"
[base]
epochs = 1
data = { name = "digits", limit = 256, batch_size = 64 }
model.name = "digits_cnn"
[axes]
rate = [0.0, 0.25]
seed = [0, 1]
[axis]
rate = { key = "noise.rate", format = "{:.0%}" }
[base.noise]
kind = "symmetric"
[metrics]
last = "test_accuracy"
[presets.smoke]
at_once = 2
[[table]]
name = "accuracy"
rows = ["rate"]
cell = "{last:.1%}"
"""


def run(*arguments: object) -> Any:
    return CliRunner().invoke(study_app, [str(one) for one in arguments])


def test_a_smoke_run_ends_in_a_printed_table(tmp_path: Path) -> None:
    folders = ("--output", tmp_path / "records", "--results", tmp_path / "results")
    done = run("run", "gr-table8", "--preset", "smoke", *folders)
    assert done.exit_code == 0, done.stderr
    rows = read_rows(tmp_path / "results" / "gr-table8.jsonl")
    assert len(rows) == 4
    table = run("table", "gr-table8", "--results", tmp_path / "results").stdout
    for row in rows:
        assert f"{100 * row.metrics['last']:.1f} ({100 * row.metrics['best']:.1f})" in table


def row(seed: int | None = 0, date: str = "2026-01-01", **metrics: Any) -> Row:
    return Row("study", "cpu", {"rate": 0.4}, seed, metrics, "cpu", {"torch": "2.13.0"}, date)


def test_merging_is_putting_lines_together(tmp_path: Path) -> None:
    ours, theirs = [row(0, last=0.1), row(1, last=0.2)], [row(1, "2026-02-02", last=0.3), row(2, last=0.4)]
    write_rows(tmp_path / "a", ours)
    write_rows(tmp_path / "b", theirs)
    (tmp_path / "both").write_text((tmp_path / "a").read_text() + (tmp_path / "b").read_text())
    both = read_rows(tmp_path / "both")
    assert [one.metrics["last"] for one in both] == [0.1, 0.3, 0.4]
    assert both == merge([*ours, *theirs]) == merge([*theirs, *ours]) == merge([*both, *both])


SETTINGS = st.dictionaries(st.text(max_size=3), st.integers(0, 3) | st.floats(0, 1) | st.text(max_size=3), max_size=2)
ROWS = st.lists(
    st.builds(
        Row,
        study=st.just("study"),
        preset=st.sampled_from(["cpu", "paper"]),
        settings=SETTINGS,
        seed=st.none() | st.integers(0, 2),
        metrics=st.dictionaries(st.text(max_size=3), st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        date=st.sampled_from(["", "2026-01-01", "2026-02-02"]),
    ),
    max_size=6,
)


@given(ROWS, ROWS)
def test_merging_parts_first_changes_nothing(ours: list[Row], theirs: list[Row]) -> None:
    merged = merge([*ours, *theirs])
    assert merge([*merge(ours), *merge(theirs)]) == merged == merge(merged)
    assert len({row.key for row in merged}) == len(merged)
    for row in merged:
        assert row.date == max(one.date for one in [*ours, *theirs] if one.key == row.key)


INTERVAL = {"value": 0.5, "low": 0.4, "high": 0.7, "over": "images"}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({0: 0.5, 1: 0.7}, Number(0.6, 0.1 * 2**0.5, 2, (0.5, 0.7), (0, 1))),
        ({None: {"mean": 0.6, "sd": 0.1, "count": 5, "seeds": [0, 1]}}, Number(0.6, 0.1, 5, (), (0, 1))),
        ({None: INTERVAL}, Number(0.5, low=0.4, high=0.7, over="images")),
        ({3: INTERVAL}, Number(0.5, low=0.4, high=0.7, over="images")),
        ({0: INTERVAL, 1: {**INTERVAL, "value": 0.7}}, Number(0.6, 0.1 * 2**0.5, 2, (0.5, 0.7), (0, 1))),
    ],
)
def test_a_number_of_what_rows_hold(values: dict[int | None, Any], wanted: Number) -> None:
    found = Number.of(values)
    assert (found.mean, found.count, found.values, found.low, found.high) == (
        pytest.approx(wanted.mean), wanted.count, wanted.values, wanted.low, wanted.high,
    )  # fmt: skip
    assert found.sd == pytest.approx(wanted.sd)


def test_what_could_not_be_measured_is_null_in_its_row(tmp_path: Path) -> None:
    made = Run({"seed": 0}, {}, tmp_path / "records" / "seed=0")
    write_record(made, {"last": float("nan"), "best": np.float32(0.5)}, torch.device("cpu"))
    row = completed(row_of(made, {"last": float("nan"), "best": np.float32(0.5)}), "study", "cpu", [made])
    assert row.metrics == {"last": None, "best": 0.5}
    write_rows(tmp_path / "study.jsonl", [row])
    assert read_rows(tmp_path / "study.jsonl") == [row]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": "1,b=2"}, {"a": "1", "b": "2"}, False),
        ({"a": 0.1234567}, {"a": 0.1234568}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": 0, "b": 1}, {"b": 1.0, "a": 0.0}, True),
    ],
)
def test_rows_are_kept_apart_by_their_settings(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    rows = [Row("study", "cpu", settings, 0, {}) for settings in (one, other)]
    assert len(merge(rows)) == 2 - same


@pytest.mark.parametrize(
    ("value", "key"), [(0.4, "0.4"), (0.0, "0"), (1e-6, "1e-06"), (0.1234567, "0.1234567"), (True, "true"), ("a", "a")]
)
def test_a_value_as_a_key_of_toml(value: Any, key: str) -> None:
    assert text(value) == key


@given(ROWS)
def test_what_is_written_is_read(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.jsonl"
        write_rows(path, rows)
        assert read_rows(path) == merge(rows)


@pytest.mark.parametrize(
    "damaged",
    [
        row(1).line()[:40],
        row().line().replace('"seed": 0', '"seed": "0"'),
        row().line().replace('"settings"', '"setting"'),
        row(last=0.5).line().replace("0.5", '"high"'),
        row(last=0.5).line().replace("0.5", "NaN"),
        row(last=0.5).line().replace("0.5", "1e400"),
        row(last=0.5).line().replace("0.5", "9" * 400),
        row(last=0.5).line().replace("0.5", "[]"),
        row(last=0.5).line().replace("0.5", '{"mean": "0.5", "count": 1}'),
        row(last=0.5).line().replace("0.5", '{"low": 0.5}'),
        row().line()[:-1] + ', "error": 5}',
        "[1]",
        "[" * 100_000,
        "\x1b[31m",
    ],
)
def test_a_damaged_line_names_file_and_line(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "gr-table8.jsonl"
    path.write_text(f"{row().line()}\n{damaged}\n{row(2).line()}\n")
    with pytest.raises(ValueError, match=r"gr-table8\.jsonl, line 2"):
        read_rows(path)
    said = run("table", "gr-table8", "--results", tmp_path)
    assert said.exit_code == 2
    assert "\x1b" not in said.stderr
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"gr-table8\.jsonl"):
        read_rows(path)


POINT = {"preset": "cpu", "settings": '{"supervision": "cce"}', "seed": 0, "series": "weight", "x": 0.5, "y": 1.0}


@pytest.mark.parametrize(
    "change",
    [{"preset": None}, {"settings": "[1]"}, {"settings": "{"}, {"x": "wide"}, {"y": [1.0]}, {"y": None}],
    ids=str,
)
def test_damaged_points_name_their_file(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "gr-figure1.parquet"
    pq.write_table(pa.Table.from_pylist([POINT]), path)
    assert read_points("gr-figure1", tmp_path).num_rows == 1
    pq.write_table(pa.Table.from_pylist([POINT | change]), path)
    with pytest.raises(ValueError, match=r"gr-figure1\.parquet"):
        read_points("gr-figure1", tmp_path)
    pq.write_table(pa.Table.from_pylist([POINT]).drop_columns([*change]), path)
    with pytest.raises(ValueError, match=f"it lacks {next(iter(change))}"):
        read_points("gr-figure1", tmp_path)


@pytest.mark.parametrize(
    ("change", "near"),
    [
        (('rows = ["rate"]', 'rows = ["rat"]'), "rate"),
        (("{last:.1%}", "{lost:.1%}"), "last"),
        (("[presets.smoke]", "[presets.smok]"), "smoke"),
        (("cell = ", "cel = "), "cell"),
        (("[metrics]", "[metric]"), "metrics"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(change: tuple[str, str], near: str, tmp_path: Path) -> None:
    (tmp_path / "digits.toml").write_text(DIGITS)
    studies.load(tmp_path / "digits.toml")
    (tmp_path / "digits.toml").write_text(DIGITS.replace(*change))
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        studies.load(tmp_path / "digits.toml")


def test_runs_whose_data_are_not_there_stop_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARDSIGHT_DATA", str(tmp_path))
    text = DIGITS.replace("seed = [0, 1]", 'data = ["mnist", "digits"]')
    (tmp_path / "digits.toml").write_text(text.replace("[axis]\n", '[axis]\ndata = { key = "data.name" }\n'))
    study = studies.load(tmp_path / "digits.toml")
    said: list[str] = []
    for at_once in (1, 4):
        out = tmp_path / str(at_once)
        options = Options(at_once=at_once, say=said.append)
        run_study(study, "smoke", out, output=out / "runs", options=options)
        assert [row.settings["data"] for row in read_rows(out / "digits.jsonl")] == ["digits", "digits"]
    assert sum("left out" in line and "data=mnist" in line for line in said) == 4
    with pytest.raises(FileNotFoundError, match="mnist"):
        run_study(study, "smoke", tmp_path, output=tmp_path / "runs", only=["data=mnist"], options=options)


def test_a_misspelt_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"preset.*cppu.*cpu"):
        read("gr-table8", preset="cppu")
