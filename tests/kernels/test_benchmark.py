"""`hardsight bench`: rows are appended; an unknown op and a machine without a GPU are rejected in one sentence."""

import csv
import importlib.metadata
import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from hardsight import benchmark
from hardsight.benchmark import Measured, append, cases
from hardsight.cli.demo import bench

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


def test_variants_are_timed_in_turns_so_that_all_meet_a_cool_and_a_warm_device(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def timed(work: Callable[[], str]) -> list[float]:
        turns.append(work())
        return [float(len(turns))] * 5

    monkeypatch.setattr(benchmark, "_peak", lambda work: math.nan if work() == "too large" else 1.0)
    monkeypatch.setattr(benchmark, "_times", timed)
    works = {"floor": lambda: "floor", "ours": lambda: "ours", "plain": lambda: "too large"}
    found = benchmark.measure(works)
    assert turns == ["floor", "ours"] * benchmark.ROUNDS
    assert found["floor"] == ([3.0, 1.0, 5.0], 1.0), "median and percentiles"
    assert found["ours"][0] == [4.0, 2.0, 6.0]
    assert all(math.isnan(one) for one in (*found["plain"][0], found["plain"][1]))


def test_an_unknown_op_is_rejected_in_one_sentence() -> None:
    code, said = run("--only", "angles")
    assert code == 2
    assert "only must be one" in said
    assert said.count("\n") == 1


def test_what_was_measured_before_an_interruption_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.csv"

    def interrupted(only: str | None, compiled: bool, seen: Callable[[Measured], None]) -> list[Measured]:
        seen(ROW)
        raise ValueError("the cable was pulled")

    monkeypatch.setattr(benchmark, "run", interrupted)
    assert run()[0] == 2
    assert not path.exists(), "recorded without --save"
    assert run("--save", str(path)) == (2, "hardsight: the cable was pulled\n")
    with path.open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 1


def test_a_variant_without_numbers_is_null_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    too_large = replace(ROW, median_ms=math.nan, p20_ms=math.nan, p80_ms=math.nan, peak_mib=math.nan)
    monkeypatch.setattr(benchmark, "run", lambda only, compiled, seen: [too_large])
    app = typer.Typer()
    app.command()(bench)
    done = CliRunner().invoke(app, ["--json"])
    assert '"median_ms": null' in done.stdout
    assert json.loads(done.stdout)[0]["peak_mib"] is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    code, said = run("--save", str(tmp_path / "results.csv"))
    assert code == 2
    assert "needs a CUDA device" in said
    assert not (tmp_path / "results.csv").exists()


def test_other_packages_are_timed_where_they_run_and_named_where_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "linear_cross_entropy.py"
    spec = importlib.util.spec_from_file_location("linear_cross_entropy_benchmark", path)
    others = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(others)

    def version(package: str) -> str:
        if package == "quack-kernels":
            raise importlib.metadata.PackageNotFoundError(package)
        return "1.2"

    def loss_or_class(*given: torch.Tensor) -> object:
        """Called without tensors it is a class that makes a loss, as Liger's is."""
        return given[0].sum() if given else loss_or_class

    def found_in(module: str, name: str) -> object:
        if module == "liger_kernel.ops.cutedsl.ops":
            raise ImportError("no compiler")
        return loss_or_class

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(others, "_from", found_in)
    monkeypatch.setattr(others, "_try", lambda loss: loss(*torch.ones(3, 2, 2)))
    with pytest.warns(UserWarning, match=r"liger-kernel 1\.2 is not timed: no compiler"):
        found = dict(others.linear_cross_entropies())
    assert list(found) == ["Liger 1.2", "cut-cross-entropy 1.2"]
    assert found["cut-cross-entropy 1.2"](*torch.ones(3, 2, 2)) == 4
