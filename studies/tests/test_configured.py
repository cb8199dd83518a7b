"""Cells that are trainings by configuration: their records, what is measured beside them, and the clock."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies import Options
from hardsight_studies.clock import Clock, OutOfTime
from hardsight_studies.configured import CellTraining, Hooks, train_cells
from hardsight_studies.framework import run_details
from torch import nn

from hardsight.training import Cell


def digits(cell: Cell) -> dict[str, Any]:
    """Two epochs on some of scikit-learn's digits, with wrong labels."""
    return {
        "data": {"name": "digits", "limit": 256, "batch_size": 64},
        "model": {"name": "digits_cnn"},
        "noise": {"kind": "symmetric", "rate": 0.25},
        "epochs": 2,
        "seed": cell.settings["seed"],
    }


def cells(folder: Path, count: int) -> list[tuple[Cell, Path]]:
    made = [Cell({"seed": seed}) for seed in range(count)]
    return [(cell, folder / cell.name) for cell in made]


def test_what_hooks_measure_is_in_the_record(tmp_path: Path) -> None:
    def after_epoch(training: CellTraining, epoch: int, row: dict[str, float | int]) -> None:
        row["pixels"] = training.test.images[0].numel()

    def measure(training: CellTraining, model: nn.Module) -> dict[str, float]:
        assert not list(training.folder.glob("measured"))
        (training.folder / "measured").touch()
        return {"head": float(torch.as_tensor(len(model.head.weight)))}

    train_cells(cells(tmp_path, 1), Options(), digits, Hooks(after_epoch, measure))
    details = run_details(tmp_path / "seed=0")
    assert details["status"] == "finished"
    assert details["results"]["head"] == 10
    assert details["results"]["noisy_accuracy"] < details["results"]["clean_accuracy"]
    assert pq.read_table(tmp_path / "seed=0" / "epochs.parquet")["pixels"].to_pylist() == [64, 64]


def test_together_equals_alone(tmp_path: Path) -> None:
    train_cells(cells(tmp_path / "together", 2), Options(), digits)
    for cell, place in cells(tmp_path / "alone", 2):
        train_cells([(cell, place)], Options(), digits)
        assert run_details(place)["results"] == run_details(tmp_path / "together" / cell.name)["results"]


def test_a_clock_that_ran_out_leaves_no_finished_record(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        train_cells(cells(tmp_path, 1), Options(clock=Clock.of(0.0)), digits)
    assert run_details(tmp_path / "seed=0")["status"] == "running"


def test_begin_may_change_the_labels_that_are_trained_on(tmp_path: Path) -> None:
    def begin(training: CellTraining) -> None:
        training.batches.set_labels(torch.zeros_like(training.batches.labels))

    train_cells(cells(tmp_path, 1), Options(), digits, Hooks(begin=begin))
    samples = pq.read_table(tmp_path / "seed=0" / "samples.parquet")
    assert set(samples["predicted"].to_pylist()) == {0}
    assert len(set(samples["label"].to_pylist())) == 10
