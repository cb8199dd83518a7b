"""The study of label errors: what its cells leave, how they are judged, and that nothing is computed twice."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from hardsight_studies import Options, get_study, judge_study, read_results, run_study
from hardsight_studies.clock import Clock
from hardsight_studies.detection import detect, detect_all, suspicions, wrong_labels
from hardsight_studies.framework import spread
from hardsight_studies.label_errors import OUT_OF_FOLD, PRESETS, cells, out_of_fold, table
from hardsight_studies.noisy_runs import _on_device, given_labels, halves

from hardsight.cleaning.combined import combined_scores
from hardsight.hardness import SCORES, model_scores
from hardsight.training.sweeps import status_of

STUDY = get_study("label-errors")


def test_every_cell_is_a_finished_record(smoke: Any) -> None:
    assert [status_of(smoke.records / cell.name) for cell in cells("smoke")] == ["finished"] * 10
    assert len(smoke.said) == 5


def test_a_whole_run_leaves_every_score_and_its_outputs(smoke: Any) -> None:
    place = smoke.records / cells("smoke")[0].name
    samples = pq.read_table(place / "samples.parquet")
    names = set(samples.column_names)
    assert names >= {score.name for score in model_scores()}
    assert names >= {"el2n_mean", "aum", "avh_mean", "ranks_with_neighbours", "smoothed_posterior"}
    outputs = safetensors.torch.load((place / "outputs.safetensors").read_bytes())
    assert outputs["features"].shape == (600, 64)
    assert outputs["logits"].shape == (3, 600, 10)
    assert outputs["features"].dtype == torch.float16


def test_combinations_can_be_made_again_from_the_record_alone(smoke: Any) -> None:
    place = smoke.records / cells("smoke")[0].name
    samples = pq.read_table(place / "samples.parquet")
    outputs = safetensors.torch.load((place / "outputs.safetensors").read_bytes())
    labels = torch.from_numpy(samples["label"].to_numpy().copy())
    again = combined_scores(suspicions(samples), outputs["features"].float(), outputs["logits"].float(), labels)
    kept = suspicions(samples)
    for name, values in again.items():
        # The outputs are half precision: single ranks move, the order as a whole does not.
        assert np.corrcoef(values, kept[name])[0, 1] > 0.99, name


def test_the_last_snapshot_is_the_trained_model(smoke: Any) -> None:
    place = smoke.records / cells("smoke")[0].name
    samples = pq.read_table(place / "samples.parquet")
    logits = safetensors.torch.load((place / "outputs.safetensors").read_bytes())["logits"][-1].float()
    labels = torch.from_numpy(samples["label"].to_numpy().copy())
    confidence = logits.softmax(1)[torch.arange(600), labels]
    np.testing.assert_allclose(confidence.numpy(), samples["confidence"].to_numpy(), atol=2e-2)


def test_no_sample_is_judged_by_a_network_that_trained_on_it() -> None:
    labels = torch.randint(4, (101,), generator=torch.Generator().manual_seed(0))
    first, second = halves(labels, 0)
    assert torch.equal(torch.cat([first, second]).sort().values, torch.arange(101))
    assert (labels[first].bincount() - labels[second].bincount()).abs().max() <= 1


def test_images_on_a_device_are_those_asked_for_wherever_they_lie() -> None:
    images, device = torch.zeros(6, 1, 2, 2), torch.device("meta")
    whole = _on_device(images, device)
    assert _on_device(images, device) is whole, "once for all cells"
    # At the same address, as a set that is read when another one is gone may be.
    assert _on_device(images[:4], device).shape == (4, 1, 2, 2)


def test_the_halves_cover_the_set_with_probabilities(smoke: Any) -> None:
    probabilities, samples = out_of_fold(smoke.records, "symmetric20", 0) or (None, None)
    assert samples["id"].to_pylist() == list(range(600))
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=5e-3)
    assert out_of_fold(smoke.records, "symmetric20", 1) is None


def test_the_results_are_those_of_the_records(smoke: Any) -> None:
    results = read_results(STUDY, smoke.results, "smoke")
    assert (results["cells"], results["cells_planned"], results["seeds"]) == (10, 10, [0, 1])
    assert set(results) >= {"date", "hardware", "versions", "settings"}
    judged = [
        detect_all(pq.read_table(smoke.records / cell.name / "samples.parquet"))["aum"].average_precision
        for cell in cells("smoke")
        if cell.settings["noise"] == "symmetric20" and cell.settings["kind"] == "whole"
    ]
    found = results["noises"]["symmetric20"]["aum"]["average_precision"]
    assert found["values"] == pytest.approx(judged, abs=1e-4)
    assert found["mean"] == pytest.approx(np.mean(judged), abs=1e-4)
    assert found["sd"] == pytest.approx(np.std(judged, ddof=1), abs=1e-4)
    probabilities, samples = out_of_fold(smoke.records, "symmetric20", 0) or (None, None)
    doubt = 1 - probabilities[np.arange(600), samples["label"].to_numpy()]
    expected = detect(wrong_labels(samples), doubt).auroc
    assert results["noises"]["symmetric20"][OUT_OF_FOLD]["auroc"]["values"] == pytest.approx([expected], abs=1e-4)


def test_a_stronger_network_of_the_same_name_leaves_the_same_bits_and_is_shown_apart(smoke: Any) -> None:
    weak, strong = (smoke.records / f"noise=symmetric20,seed=0,kind={kind}" for kind in ("whole", "stronger"))
    assert (weak / "samples.parquet").read_bytes() == (strong / "samples.parquet").read_bytes()
    results = read_results(STUDY, smoke.results)
    first = results["noises"]["symmetric20"]["training_and_margin"]["average_precision"]["values"][0]
    assert results["stronger"]["symmetric20"]["training_and_margin"]["average_precision"]["values"] == [first]
    assert "forgetting_events" not in results["stronger"]["symmetric20"]
    printed = table(results)
    assert printed.count("`forgetting_events`") == 3
    assert "stronger network, `digits_cnn`" in printed


def test_a_score_finds_wrong_labels_far_above_chance(smoke: Any) -> None:
    scores = read_results(STUDY, smoke.results)["noises"]["symmetric20"]
    assert scores["el2n_mean"]["auroc"]["mean"] > 0.8
    assert scores["snapshot_el2n"]["auroc"]["mean"] > 0.8


def test_running_again_computes_only_what_is_missing(smoke: Any, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    shutil.copytree(smoke.records, folder)
    lost = cells("smoke")[5].name
    before = (folder / lost / "samples.parquet").read_bytes()
    shutil.rmtree(folder / lost)
    said: list[str] = []
    run_study(STUDY, "smoke", folder, tmp_path / "results", options=Options(say=said.append))
    assert len(said) == 1
    assert lost in said[0]
    # Trained alone, and two at a time: the same bits.
    assert (folder / lost / "samples.parquet").read_bytes() == before


def test_a_combination_thought_of_later_is_judged_from_the_outputs(smoke: Any, tmp_path: Path) -> None:
    cell = cells("smoke")[0]
    shutil.copytree(smoke.records / cell.name, tmp_path / "records" / cell.name)
    path = tmp_path / "records" / cell.name / "samples.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["training_and_neighbours", "smoothed_last_posterior"]), path)
    found = json.loads(judge_study(STUDY, "smoke", tmp_path / "records", tmp_path).read_text())["noises"]["symmetric20"]
    before = read_results(STUDY, smoke.results)["noises"]["symmetric20"]
    for name in ("training_and_neighbours", "smoothed_last_posterior"):
        first = before[name]["average_precision"]["values"][0]
        assert found[name]["average_precision"]["values"] == pytest.approx([first], abs=2e-2)


def test_it_stops_when_the_clock_runs_out_and_says_what_is_left(tmp_path: Path) -> None:
    said: list[str] = []
    options = Options(clock=Clock.of(0.0), say=said.append)
    with pytest.raises(ValueError, match="at least one finished cell"):
        run_study(STUDY, "smoke", tmp_path, tmp_path, options=options)
    assert said == ["out of time: 10 of 10 cells are left for next time"]


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="got 'label-error', did you mean 'label-errors'"):
        get_study("label-error")
    with pytest.raises(ValueError, match="preset must be one of smoke, cpu, paper; got 'full'"):
        run_study(STUDY, "full", ".", ".")
    with pytest.raises(ValueError, match="cells must match a cell of label-errors, such as noise=symmetric20"):
        run_study(STUDY, "smoke", ".", ".", only=["worse"])


def test_the_table_shows_ours_beside_the_first_measurement() -> None:
    number = {"mean": 0.7912, "sd": 0.0031, "values": [0.79, 0.79, 0.79]}
    scores = {"el2n_mean": dict.fromkeys(("auroc", "average_precision", "precision_at_count"), number)}
    results = {
        "preset": "paper", "cells": 9, "cells_planned": 54, "seeds": [0, 1, 2], "hardware": ["H"], "date": "2026-01-01",
        "versions": {"torch": "2"}, "wrong_labels": {"aggre": 0.09},
        "noises": {"aggre": scores, "random1": scores, "worse": scores},
    }  # fmt: skip
    printed = table(results)
    ours = "0.791 ± 0.003"
    assert f"| `el2n_mean` | {ours} | {ours} | {ours} | 0.782 / 0.890 / 0.937 |" in printed
    assert "| score | aggre (9 % wrong) | random1 | worse |" in printed


def test_the_table_begins_with_what_holds_of_the_claim() -> None:
    def number(*values: float) -> dict[str, Any]:
        return {"average_precision": spread(values), "auroc": spread(values), "precision_at_count": spread(values)}

    scores = {"el2n_mean": number(0.8, 0.9), OUT_OF_FOLD: number(0.7), "cleanlab_label_quality": number(0.7002)}
    results = {
        "preset": "paper", "cells": 9, "cells_planned": 54, "seeds": [0, 1], "hardware": ["H"], "date": "2026-01-01",
        "versions": {"torch": "2"}, "wrong_labels": {},
        "noises": {"aggre": scores, "worse": scores | {OUT_OF_FOLD: number(0.9)}},
    }  # fmt: skip
    printed = table(results)
    assert "two runs on halves on 1 of 2 noises, in average precision" in printed
    assert "(means over the seeds that each has): aggre +0.150, worse -0.050." in printed
    assert "differs from their self-confidence by 0.1998 at most" in printed
    results["noises"]["aggre"] = scores | {"avh": number(0.6)}
    results["noises"]["worse"] = results["noises"]["worse"] | {"avh": number(0.5)}
    assert table(results).startswith(
        "**Result.** Of the 2 scores of one run, `el2n_mean` finds wrong labels best on people's label errors, with a "
        "mean average precision of 0.850; `avh` has 0.550."
    )
    assert "the mean over up to 2 seeds" in printed
    # Nothing is said of what is not measured.
    assert "told half the truth" not in printed
    assert "`training_and_margin`" not in printed
    results["noises"] = {"aggre": {"el2n_mean": number(0.8)}}
    assert "All numbers are of one seed." in table(results)


@pytest.mark.data
def test_the_noises_have_their_published_rates(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hardsight import datasets

    train = datasets.load("cifar10n", root=data_root)
    rates = {
        kind: float((given_labels(train, kind, 0) != train.labels).float().mean()) for kind in PRESETS["paper"].noises
    }
    expected = {"aggre": 0.09, "random1": 0.172, "worse": 0.402, "symmetric40": 0.4, "symmetric20": 0.2}
    assert rates == pytest.approx(expected | {"asymmetric40": 0.2}, abs=5e-3)


def test_paper_cells_come_in_order_of_value() -> None:
    names = [tuple(cell.settings.values()) for cell in cells("paper")]
    assert names[:4] == [(one, 0, "whole") for one in ("aggre", "random1", "worse", "symmetric40")]
    assert len(names) == len(set(names)) == 60
    assert [kind for _, _, kind in names].index("stronger") == 18
    assert [kind for _, _, kind in names].index("fold0") == 24


def test_scores_of_a_record_are_known_or_say_their_direction(smoke: Any) -> None:
    schema = pq.read_schema(smoke.records / cells("smoke")[0].name / "samples.parquet")
    for field in schema:
        if (field.metadata or {}).get(b"kind") == b"score" and field.name not in SCORES:
            assert field.metadata[b"direction"] == b"larger is harder"
    about = json.loads((smoke.records / cells("smoke")[0].name / "run.json").read_text())
    assert about["config"]["noise"] == "symmetric20"
