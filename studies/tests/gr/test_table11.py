"""GR's Table 11: the printed identity, and a second training on the first one's predictions."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hardsight_studies.framework import Options, run_details
from hardsight_studies.gr import table11
from hardsight_studies.gr.judged import cell_of
from hardsight_studies.gr.table3 import TABLE3
from hardsight_studies.gr.table11 import AGAIN, PAPER, TABLE11, again_of, cells, compute, follows, judge, table
from hardsight_studies.gr.trainings import gr
from hardsight_studies.results_file import read_results
from hardsight_studies.running import run_study

from hardsight.training import Cell, NonFiniteLossError
from hardsight.training.record import RunRecord


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_the_printed_fits_add_up_for_gr_and_not_for_cce(rate: float) -> None:
    for (at, method), (_, _, corrupted, _, clean, noisy, _) in PAPER.items():
        if at == rate:
            miss = abs(follows(rate, clean, noisy) - corrupted)
            assert (miss < 0.5) == (method != "cce"), (method, miss)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gr-table11")
    run_study(TABLE11, "smoke", folder / "records", folder / "results", options=Options(say=lambda line: None))
    return folder


def test_the_second_training_learns_the_predictions_of_the_first(smoke: Path) -> None:
    first, _, again = (smoke / "records" / cell.name for cell in cells("smoke"))
    assert again.name.endswith(f"stage={AGAIN},seed=0")
    source, later = (pq.read_table(place / "samples.parquet") for place in (first, again))
    # The record still holds the labels that were given.
    assert later["label"].to_pylist() == source["label"].to_pylist()
    predicted, true, given = (source[name].to_numpy() for name in ("predicted", "clean_label", "label"))
    said = run_details(again)["results"]
    assert said["correction_wrong_before"] == int((given != true).sum())
    assert said["correction_wrong_after"] == int((predicted != true).sum())
    gains = said["correction_repaired"] - said["correction_damaged"]
    assert gains == said["correction_wrong_before"] - said["correction_wrong_after"]
    # Trained on the predictions, it agrees with them more than with the labels.
    agreement = (later["predicted"].to_numpy() == predicted).mean()
    assert agreement > (later["predicted"].to_numpy() == given).mean()


def test_the_table_says_what_was_repaired(smoke: Path) -> None:
    results = read_results(TABLE11, smoke / "results", "smoke")
    printed = table(results)
    again = smoke / "records" / cells("smoke")[2].name
    said = run_details(again)["results"]
    before, after = (
        100 * said[f"correction_wrong_{name}"] / said["correction_samples"] for name in ("before", "after")
    )
    assert f"take the wrong ones from {before:.1f} % to {after:.1f} %" in printed
    assert "misses the fit of all by at most" in printed
    best = 100 * said["test_accuracy_best"]
    assert f"| {100 * said['test_accuracy']:.1f} ({best:.1f}) [89.3] |" in printed


@pytest.mark.parametrize("preset", ["smoke", "cpu", "paper"])
def test_no_first_training_is_made_twice(preset: str) -> None:
    """Those of the paper's size are Table 3's, down to the folder of their records."""
    first = [cell for cell in cells(preset) if "stage" not in cell.settings]
    assert all(again_of(cell).name in {one.name for one in cells(preset)} or preset == "smoke" for cell in first)
    if preset == "paper":
        assert {cell.name for cell in first} <= {cell.name for cell in TABLE3.cells("paper")}
    assert TABLE11.records == TABLE3.id


def test_trainings_as_long_as_the_authors_code_have_a_table_of_their_own(smoke: Path) -> None:
    results = read_results(TABLE11, smoke / "results", "smoke")
    for name in list(results["accuracies"]):
        results["accuracies"][name.replace("method=cce", "method=cce,protocol=long")] = results["accuracies"][name]
    results["preset"] = "paper"
    printed = table(results)
    _, _, longer = printed.partition("**Long: 154 epochs**")
    last = 100 * results["accuracies"]["rate=0.2,method=cce"]["last"]["mean"]
    assert f"| {last:.1f} [76.8] |" in longer
    assert "| 40 % | GR (β = 12, λ = 0.5) | – | – |" in longer
    assert "As the authors' code trains" not in printed


def test_the_result_says_what_is_fitted_and_what_training_again_gains() -> None:
    def number(value: float) -> dict[str, Any]:
        return {"mean": value, "sd": None, "values": [value]}

    def fitted(right: float, wrong: float, last: float) -> dict[str, Any]:
        return {key: number(one) for key, one in (("clean", right), ("noisy", wrong), ("last", last), ("best", last))}

    key, again = (
        f"rate=0.4,method={gr(16, 1)},protocol=long",
        f"rate=0.4,method={gr(16, 1)},protocol=long,stage={AGAIN}",
    )
    results = {
        "preset": "paper", "cells": 2, "cells_planned": 99, "seeds": [0], "hardware": ["H"], "date": "2026-01-01",
        "versions": {"torch": "2"}, "curves": {}, "failed": {}, "wrong_labels": {},
        "accuracies": {"rate=0.4,method=cce,protocol=long": fitted(0.954, 0.397, 0.66), key: fitted(0.908, 0.042, 0.8)},
    }  # fmt: skip
    assert table(results).startswith(
        "**Result.** In 154 epochs, at 40 % noise, CCE fits 39.7 % of the wrong labels and GR 4.2 % (paper: 81.1 and "
        "7.5); of the right ones 95.4 and 90.8 % (paper: 97.0 and 94.8). Training again on the predictions is not "
        "measured yet.\n"
    )
    results["accuracies"][again] = fitted(0.9, 0.05, 0.83)
    assert "(paper: 97.0 and 94.8). Training again on the predictions gains, in points: at 40 % noise GR (β = 16, " in (
        table(results)
    )
    assert "GR (β = 16, λ = 1) +3.0 (paper +2.0)." in table(results)
    del results["accuracies"][key]
    assert table(results).startswith("**Result.** Too little is measured for an answer."), (
        "of CCE alone nothing is said"
    )


def test_corrections_are_judged_over_seeds(tmp_path: Path) -> None:
    for seed, after in ((0, 10), (1, 30)):
        cell = again_of(cell_of(0.4, "cce", seed))
        record = RunRecord(tmp_path / cell.name)
        record.begin(name=cell.name, seed=seed, config={}, device="cpu", class_names=[])
        numbers = {"correction_samples": 100, "correction_wrong_before": 40, "correction_wrong_after": after}
        record.finish(numbers | {"test_accuracy": 0.5})
    shares = judge("paper", tmp_path)["wrong_labels"][f"rate=0.4,method=cce,stage={AGAIN}"]
    assert shares["after"]["values"] == [0.1, 0.3]
    assert shares["before"]["mean"] == 0.4


def test_a_training_again_brings_its_first_one_along(smoke: Path, tmp_path: Path) -> None:
    said: list[str] = []
    shutil.copytree(smoke / "records", tmp_path / "records")
    for cell in cells("smoke"):
        if cell.settings["method"] == gr(12, 0.5):
            shutil.rmtree(tmp_path / "records" / cell.name)
    options = Options(say=said.append)
    run_study(TABLE11, "smoke", tmp_path / "records", tmp_path / "results", only=[f"stage={AGAIN}"], options=options)
    place = cells("smoke")[2].name
    ours, theirs = (run_details(folder / "records" / place)["results"] for folder in (tmp_path, smoke))
    assert json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize("known", [True, False], ids=["for good", "just now"])
def test_a_first_training_that_failed_keeps_only_its_own_second_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """`known`: whether its record says so from the start, or it fails in the same call."""
    trained: list[str] = []

    def first(method: str) -> tuple[Cell, Path]:
        cell = cell_of(0.4, method, 0)
        return cell, tmp_path / cell.name

    def again(method: str) -> tuple[Cell, Path]:
        cell = again_of(cell_of(0.4, method, 0))
        return cell, tmp_path / cell.name

    def record(cell: Cell, folder: Path) -> None:
        made = RunRecord(folder)
        made.begin(name=cell.name, seed=0, config={}, device="cpu", class_names=[])
        if cell.settings["method"] == "cce":
            made.finish({})
        else:
            made.fail("the loss is not a finite number")

    def train_cells(mine: Sequence[tuple[Cell, Path]], *_: object) -> None:
        trained.extend(cell.name for cell, _ in mine)
        for cell, folder in mine:
            record(cell, folder)
        if any(cell.settings["method"] != "cce" for cell, _ in mine):
            raise NonFiniteLossError("one of them")

    monkeypatch.setattr(table11, "train_cells", train_cells)
    if known:
        for method in ("cce", gr(16, 1)):
            record(*first(method))
    said: list[str] = []
    compute("smoke", [again(method) for method in (gr(16, 1), "cce")], Options(say=said.append))
    assert again("cce")[0].name in trained
    assert again(gr(16, 1))[0].name not in trained
    assert (first(gr(16, 1))[0].name in trained) == (not known), "it has failed for good"
    assert said == [f"skipped {again(gr(16, 1))[0].name}: the training whose predictions it would learn has failed"]
