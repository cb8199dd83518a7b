"""Runs that are trainings by configuration: their records, what is measured beside them, and the clock."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Clock, Options, OutOfTime
from hardsight_studies.engine.grid import Run, plan
from hardsight_studies.engine.rows import read_rows
from hardsight_studies.engine.running import write_results
from hardsight_studies.engine.trainings import Hooks, Training, train, write_record
from torch import nn

from hardsight.records import read_run

# Two epochs on some of scikit-learn's digits, with wrong labels.
DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "limit": 256, "batch_size": 64},
    "model": {"name": "digits_cnn"},
    "noise": {"kind": "symmetric", "rate": 0.25},
    "epochs": 2,
}


def runs(folder: Path, count: int) -> list[Run]:
    return [Run({"seed": seed}, {**DIGITS, "seed": seed}, folder / f"seed={seed}") for seed in range(count)]


def test_what_hooks_measure_is_in_the_record(tmp_path: Path) -> None:
    def after_epoch(training: Training, epoch: int, row: dict[str, float | int]) -> None:
        row["pixels"] = training.test.images[0].numel()

    def measure(training: Training, model: nn.Module) -> dict[str, float]:
        assert not list(training.folder.glob("measured"))
        (training.folder / "measured").touch()
        return {"head": float(torch.as_tensor(len(model.head.weight)))}

    train(runs(tmp_path, 1), Options(), Hooks(after_epoch, measure))
    details = read_run(tmp_path / "seed=0")
    assert details is not None
    assert details["status"] == "finished"
    assert details["results"]["head"] == 10
    assert details["results"]["noisy_accuracy"] < details["results"]["clean_accuracy"]
    assert pq.read_table(tmp_path / "seed=0" / "epochs.parquet")["pixels"].to_pylist() == [64, 64]


def test_together_equals_alone(tmp_path: Path) -> None:
    train(runs(tmp_path / "together", 2), Options())
    for run in runs(tmp_path / "alone", 2):
        train([run], Options())
        alone, together = read_run(run.folder), read_run(tmp_path / "together" / run.name)
        assert alone is not None
        assert together is not None
        assert alone["results"] == together["results"]


def test_a_clock_that_ran_out_leaves_no_finished_record(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        train(runs(tmp_path, 1), Options(clock=Clock.of(0.0)))
    details = read_run(tmp_path / "seed=0")
    assert details is None or details["status"] != "finished"


def test_a_failure_for_good_has_a_row_and_one_that_may_be_tried_again_has_none(tmp_path: Path) -> None:
    study, device = studies.get("avh-table3"), torch.device("cpu")
    first, second, third = plan(study, "smoke", tmp_path / "runs")[:3]
    write_record(first, {"accuracy": 0.5}, device)
    write_record(second, {}, device, error="loss is not a finite number")
    write_record(third, {}, device, error="out of time")
    about = json.loads((third.folder / "run.json").read_text())
    (third.folder / "run.json").write_text(json.dumps({**about, "retry": True}))
    found = read_rows(write_results(study, "smoke", tmp_path / "results", tmp_path / "runs"))
    assert {row.error for row in found} == {None, "loss is not a finite number"}
    assert len(found) == 2
