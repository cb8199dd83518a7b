"""GR's Table 11: a second training on the first one's predictions, and the printed identity."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run, plan
from hardsight_studies.engine.rows import read
from hardsight_studies.engine.running import run_study
from hardsight_studies.gr import again
from hardsight_studies.gr.again import AGAIN, PAPER, compute, first_of, fits

from hardsight.records import read_run
from hardsight.training import NonFiniteLossError
from hardsight.training.record import RunRecord


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_the_printed_fits_add_up_for_gr_and_not_for_ce(rate: float) -> None:
    for (at, method), (_, _, corrupted, _, clean, noisy, *_) in PAPER.items():
        if at == rate:
            miss = abs((1 - rate) * clean + rate * noisy - corrupted)
            assert (miss < 0.5) == (method != "cce"), (method, miss)


def train(folder: Path, *only: str) -> list[str]:
    said: list[str] = []
    run_study(studies.get("gr-table11"), "smoke", folder, output=folder / "records", only=only,
              options=Options(say=said.append))  # fmt: skip
    return said


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gr-table11")
    train(folder)
    return folder


def second(folder: Path) -> Run:
    return next(run for run in plan(studies.get("gr-table11"), "smoke", folder / "records") if "stage" in run.settings)


def test_the_second_training_learns_the_predictions_of_the_first(smoke: Path) -> None:
    run = second(smoke)
    source, later = (pq.read_table(one.folder / "samples.parquet") for one in (first_of(run), run))
    # The record still holds the labels that were given.
    assert later["label"].to_pylist() == source["label"].to_pylist()
    predicted, true, given = (source[name].to_numpy() for name in ("predicted", "clean_label", "label"))
    details = read_run(run.folder)
    assert details is not None
    said = details["results"]
    assert said["correction_wrong_before"] == int((given != true).sum())
    assert said["correction_wrong_after"] == int((predicted != true).sum())
    gains = said["correction_repaired"] - said["correction_damaged"]
    assert gains == said["correction_wrong_before"] - said["correction_wrong_after"]
    # Trained on the predictions, it agrees with them more than with the labels.
    agreement = (later["predicted"].to_numpy() == predicted).mean()
    assert agreement > (later["predicted"].to_numpy() == given).mean()


def test_the_table_has_both_trainings_in_one_line(smoke: Path) -> None:
    rows = read("gr-table11", smoke, "smoke")
    heads, lines = fits(rows)
    shown = dict(zip(heads, lines[-1], strict=True))
    last = {stage: rows.number("last", method="gr-12-0.5", stage=stage) for stage in (None, AGAIN)}
    assert shown["last"] == f"{100 * float(last[None]):.1f} [87.8]"
    assert shown["trained again"].startswith(f"{100 * float(last[AGAIN]):.1f} (")
    assert shown["trained again"].endswith(") [89.3]")


def test_a_training_again_brings_its_first_one_along(smoke: Path, tmp_path: Path) -> None:
    shutil.copytree(smoke / "records", tmp_path / "records")
    for run in (second(tmp_path), first_of(second(tmp_path))):
        shutil.rmtree(run.folder)
    train(tmp_path, f"stage={AGAIN}")
    ours, theirs = (read_run(second(folder).folder) for folder in (tmp_path, smoke))
    assert ours is not None
    assert theirs is not None
    assert str(ours["results"]) == str(theirs["results"])


@pytest.mark.parametrize("known", [True, False], ids=["for good", "just now"])
def test_a_first_training_that_failed_keeps_only_its_own_second_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """`known`: whether its record says so from the start, or it fails in the same call."""
    trained: list[str] = []
    runs = {run.settings["method"]: run for run in plan(studies.get("gr-table11"), "cpu", tmp_path)
            if "stage" in run.settings}  # fmt: skip
    broken, whole = runs["gr-12-0.5"], runs["cce"]

    def record(run: Run) -> None:
        made = RunRecord(run.folder)
        made.begin(name=run.name, seed=0, config={}, device="cpu", class_names=[])
        if run.settings["method"] == "cce":
            made.finish({})
        else:
            made.fail("the loss is not a finite number")

    def trained_in_memory(mine: Sequence[Run], *_: object) -> None:
        trained.extend(run.name for run in mine)
        for run in mine:
            record(run)
        if any(run.settings["method"] != "cce" for run in mine):
            raise NonFiniteLossError("one of them")

    monkeypatch.setattr(again, "train", trained_in_memory)
    if known:
        for run in (broken, whole):
            record(first_of(run))
    said: list[str] = []
    compute([broken, whole], "cpu", Options(say=said.append))
    assert whole.name in trained
    assert broken.name not in trained
    assert (first_of(broken).name in trained) == (not known), "it has failed for good"
    assert len(said) == 1
    assert broken.name in said[0]
