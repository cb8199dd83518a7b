"""The trainings behind GR's tables: configurations of every cell, and what records become."""

import importlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies.framework import PRESETS, Options, Study
from hardsight_studies.gr import STUDIES
from hardsight_studies.gr.judged import curve, judge_cells, key_of, percent, shown_accuracy
from hardsight_studies.gr.tables import failures
from hardsight_studies.gr.trainings import _LOSSES, PRINTED, TITLES, gr, knobs, loss_of, title_of

from hardsight import models
from hardsight.losses.registry import Sizes
from hardsight.training import Cell, objectives
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import build
from hardsight.training.sweeps import FINISHED

TRAINED = ["protocol", "table2", "table3", "table4", "table5", "table11", "table12"]


def study_of(name: str) -> Study:
    return next(one for one in STUDIES if one.id == f"gr-{name}")


def configurations(name: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, TrainingConfig]:
    """What a study would train, by cell, without training it."""
    found: dict[str, TrainingConfig] = {}

    def caught(mine: Any, options: Any, configure: Any, hooks: Any = None) -> None:
        found.update({cell.name: build(TrainingConfig, configure(cell)) for cell, _ in mine})

    module = importlib.import_module(f"hardsight_studies.gr.{name}")
    monkeypatch.setattr(module, "train_cells", caught)
    if name == "table11":
        # Second trainings wait for the first ones, which are not made here.
        monkeypatch.setattr(module, "status_of", lambda folder: FINISHED)
    study = study_of(name)
    study.compute(preset, [(cell, Path("none") / cell.name) for cell in study.cells(preset)], Options())
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TRAINED)
def test_every_cell_is_a_training_that_can_be_made(name: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = configurations(name, preset, monkeypatch)
    cells = study_of(name).cells(preset)
    assert sorted(made) == sorted(cell.name for cell in cells)
    kept = {
        (one.model.name, str(one.model.options), one.loss.name, str(one.loss.options)): one for one in made.values()
    }
    for config in kept.values():
        # Every network knows its options, every loss too.
        assert set(config.model.options) <= set(models.options(config.model.name))
        objectives.make_loss(config.loss.name, config.loss.options, Sizes(4, 10, 8), "loss")
    assert len({json.dumps(one.as_dict(), sort_keys=True) for one in made.values()}) >= len(cells) - (
        len(cells) // 2 if name == "table11" else 0
    ), "two cells would train the same"


def test_the_printed_protocol_is_section_4_1() -> None:
    config = build(TrainingConfig, PRINTED.tree(gr(16, 1), 0.4, 3))
    assert (config.data.name, config.data.batch_size, config.data.shift, config.data.flip) == ("cifar10", 128, 4, True)
    assert (config.optimizer.lr, config.optimizer.momentum, config.optimizer.weight_decay) == (0.1, 0.9, 1e-4)
    assert (config.noise.kind, config.noise.rate, config.seed) == ("symmetric", 0.4, 3)
    assert config.loss.options == {"beta": 16.0, "lam": 1.0, "reduction": "weight", "epsilon": 1e-6}
    steps = 50_000 // 128
    falls = [epoch * steps for epoch in config.schedule.milestones]
    assert falls == pytest.approx([5000, 10_000, 15_000], rel=0.02)
    assert config.epochs * steps == pytest.approx(20_000, rel=0.01)


@pytest.mark.parametrize("name", TRAINED)
def test_every_table_of_the_papers_size_has_seeds_and_begins_with_one(name: str) -> None:
    seeds = [cell.settings["seed"] for cell in study_of(name).cells("paper")]
    assert {0, 1, 2} <= {*seeds}
    assert not any(seeds[:4])


def test_what_failed_is_named_with_its_reason_beside_the_seeds_that_lived() -> None:
    error = "no finite loss at step 5 (epoch 1), in the batch with ids 1, 2, 3"
    failed = {f"rate=0.4,method=cce,seed={seed}": error for seed in (1, 2)}
    assert failures({"failed": failed}) == (
        "Failed, and in no mean: `rate=0.4,method=cce`, seed 1, 2 (no finite loss at step 5 (epoch 1))."
    )
    assert failures({"failed": {}}) == failures({}) == ""
    study = study_of("table3")
    assert "Failed, and in no mean: `rate=0.4,method=gr-16-1`, seed 0" in study.table(fabricated(study, "paper", 1))


def test_names_of_methods() -> None:
    assert gr(8, 0.5) == "gr-8-0.5"
    assert knobs("gr-8-0.5") == (8.0, 0.5)
    assert knobs("boot-hard") is None
    assert title_of("gr-12-2") == "GR (β = 12, λ = 2)"
    assert set(TITLES) == set(_LOSSES)


def test_corrections_know_the_rate_and_sl_its_data() -> None:
    forward = loss_of("forward", 0.4, "cifar100")
    made = objectives.make_loss(forward["name"], forward["options"], Sizes(4, 5, 8), "loss")
    assert made.transition[0].tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1])
    assert loss_of("sl", 0.4, "cifar100")["options"] == {"alpha": 6.0, "beta": 0.1}
    assert "options" not in loss_of("sl", 0.4, "cifar10")
    assert "options" not in _LOSSES["forward"], "one cell's rate must not reach the next"


def record(folder: Path, cell: Cell, status: str = "finished", epochs: int = 0, **results: float) -> None:
    place = folder / cell.name
    place.mkdir(parents=True)
    details = {"status": status, "results": results, "error": "the loss is not a finite number"}
    (place / "run.json").write_text(json.dumps(details))
    if epochs:
        numbers = [round(0.01 * at, 4) for at in range(epochs)]
        columns = {"epoch": list(range(1, epochs + 1)), "test_accuracy": numbers, "train_accuracy": numbers}
        pq.write_table(pa.table(columns), place / "epochs.parquet")


def test_judging_means_over_seeds_and_names_what_failed(tmp_path: Path) -> None:
    cells = [Cell({"rate": 0.4, "method": "cce", "seed": seed}) for seed in range(3)]
    broken = Cell({"rate": 0.4, "method": "gr-8-0.5", "seed": 0})
    record(tmp_path, cells[0], epochs=2, test_accuracy=0.6, test_accuracy_best=0.7, noisy_accuracy=float("nan"))
    record(tmp_path, cells[1], test_accuracy=0.8, test_accuracy_best=0.9, noisy_accuracy=float("nan"))
    record(tmp_path, broken, status="failed")
    found = judge_cells([*cells, broken], tmp_path)
    assert set(found["accuracies"]) == {"rate=0.4,method=cce"}
    numbers = found["accuracies"][key_of(cells[0])]
    assert numbers["last"] == {"mean": 0.7, "sd": 0.1414, "values": [0.6, 0.8]}
    assert numbers["best"]["mean"] == 0.8
    assert "noisy" not in numbers, "where all labels are right there are no wrong ones to fit"
    assert percent(numbers["last"]) == "70.0 ± 14.1"
    assert shown_accuracy(found, "rate=0.4,method=gr-8-0.5", "last") == "failed"
    assert shown_accuracy(found, "rate=0.4,method=gr-8", "last") == ""
    assert found["failed"] == {broken.name: "the loss is not a finite number"}
    assert found["curves"]["rate=0.4,method=cce"]["epoch"] == [1, 2]


@pytest.mark.parametrize("epochs", [1, 39, 40, 41, 51, 513])
def test_curves_are_short_and_end_with_the_last_epoch(tmp_path: Path, epochs: int) -> None:
    cell = Cell({"seed": 0})
    record(tmp_path, cell, epochs=epochs)
    found = curve(tmp_path / cell.name)
    assert len(found["epoch"]) <= 41
    assert found["epoch"][-1] == epochs
    assert found["test"] == [round(0.01 * (epoch - 1), 4) for epoch in found["epoch"]]
    assert curve(tmp_path / "not there") == {}


def fabricated(study: Study, preset: str, count: int) -> dict[str, Any]:
    """Results as if the first `count` cells were finished, each with other numbers, and the next had failed."""
    cells = study.cells(preset)
    names = ("last", "best", "corrupted", "intact", "clean", "noisy")
    values = torch.linspace(0.3, 0.9, max(1, count)).tolist()
    number = [{"mean": round(value, 4), "sd": None, "values": [round(value, 4)]} for value in values]
    module = importlib.import_module(f"hardsight_studies.gr.{study.id.removeprefix('gr-')}")
    protocols = getattr(module, "PROTOCOLS", getattr(module, "BASES", {preset: PRINTED}))
    failed = {cell.name: "no finite number" for cell in cells[count : count + 1]}
    return {
        "preset": preset, "cells": count, "cells_planned": len(cells), "seeds": [0], "hardware": ["H"],
        "date": "2026-01-01", "versions": {"torch": "2"}, "wrong_labels": {},
        "protocol": {"data": protocols[preset].data, "model": protocols[preset].model, "epochs": 30},
        "accuracies": {key_of(cell): dict.fromkeys(names, number[at]) for at, cell in enumerate(cells[:count])},
        "curves": {
            key_of(cell): {"epoch": [1, 2], "test": [0.1, values[at]], "train": [0.1, 0.2]}
            for at, cell in enumerate(cells[:count])
        },
        "failed": failed,
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 3, 9])
@pytest.mark.parametrize("name", TRAINED)
def test_partly_finished_results_have_a_table_and_figures(name: str, count: int) -> None:
    study = study_of(name)
    count = min(count, len(study.cells("paper")))
    results = fabricated(study, "paper", count)
    printed = study.table(results)
    assert f"{count} of {len(study.cells('paper'))} cells" in printed
    assert printed.count("\n\n") >= 1
    for at in range(count):
        last = 100 * results["accuracies"][key_of(study.cells("paper")[at])]["last"]["mean"]
        # The trainings on predictions of Table 11 stand in one column; everything else shows its own last accuracy.
        assert f"{last:.1f}" in printed, study.cells("paper")[at].name
    drawn = study.figures(results) if study.figures else {}
    assert all(figure.axes for figure in drawn.values())
    if study.figures and count > 1:
        assert drawn
    if count == 0:
        assert not drawn
