"""`hardsight bench`: rows are appended; an unknown op and a machine without a GPU are refused in one sentence."""

import csv
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from hardsight.cli.bench import bench
from hardsight.kernels.benchmark import Measured, append, cases

ROW = Measured("op", "2 x 3", "bfloat16", "ours", 1.0, 0.9, 1.1, 4.0, "a GPU", "2", "3", "3.11", "2026-01-01")


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(bench)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stderr


def test_rows_are_appended_under_one_head(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.csv"
    append([ROW], path)
    append([ROW, ROW], path)
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert {row["median_ms"] for row in rows} == {"1.0"}


def test_every_op_has_a_benchmark_of_its_name() -> None:
    assert {op for op, _, _ in cases()} == {
        "angular_scores",
        "angular_cross_entropy",
        "rescaled_cross_entropy",
        "rescaled_linear_cross_entropy",
        "pairwise_angular_contrast",
    }


def test_an_unknown_op_is_refused_in_one_sentence() -> None:
    code, said = run("--only", "angles")
    assert code == 2
    assert "--only must be one of" in said
    assert said.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    code, said = run("--output", str(tmp_path / "results.csv"))
    assert code == 2
    assert "needs a CUDA device" in said
    assert not (tmp_path / "results.csv").exists()
