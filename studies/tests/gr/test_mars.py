"""Table 7 on tiny files of the public layout: training, features by tracklet, retrieval, the table."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hardsight_studies import Options, read_results, run_study
from hardsight_studies.framework import run_details
from hardsight_studies.gr.mars import (
    PRESETS,
    TABLE7,
    cells,
    judge,
    load_test_half,
    measure,
    search,
    session,
    table,
    tiny,
    tracklets_of,
)
from hardsight_studies.gr.retrieval import Tracklets
from scipy.io import savemat
from torch import Tensor, nn

from hardsight import datasets
from hardsight.training import Cell
from hardsight.training.record import RunRecord


class Colours(nn.Module):
    """Features are the mean colours less the grey: people of the tiny set are colours."""

    def forward_features(self, images: Tensor) -> Tensor:
        means = images.mean((2, 3))
        return means - means.mean(1, keepdim=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_features(images)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("mars"))


def test_the_protocol_is_the_printed_one() -> None:
    paper = PRESETS["paper"]
    assert (paper.iterations, paper.halve_every, paper.batch_size, paper.lr) == (50_000, 10_000, 180, 0.01)
    assert (paper.resized, paper.side) == (256, 227)
    assert [cell.settings["method"] for cell in cells("paper")] == 3 * ["cce", "gr-8-0.5", "gce", "mae"]
    assert [cell.settings["seed"] for cell in cells("paper")] == [0] * 4 + [1] * 4 + [2] * 4


def test_tracklets_average_their_frames(root: Path) -> None:
    data = datasets.load("mars", "gallery", root)
    settings, device = PRESETS["smoke"], torch.device("cpu")
    made = tracklets_of(Colours(), data, settings, device)
    assert made.numbers.tolist() == data.columns["tracklet"].unique().tolist()
    assert {-1, 0} < set(made.identities.tolist()), "junk and distractors are in the gallery"
    assert torch.allclose(made.features.norm(dim=1), torch.ones(len(made.numbers)))
    assert made.cameras[made.identities > 0].unique().tolist() == [2, 3], "the first camera's are queries"
    # Not one batch of frames after the other: another batch size, the same tracklets.
    other = tracklets_of(
        Colours(), data, PRESETS["cpu"].__class__("x", 1, 1, resized=20, side=16, batch_size=5), device
    )
    torch.testing.assert_close(made.features, other.features, atol=1e-5, rtol=0)


def test_colours_find_people_again(root: Path) -> None:
    found = measure(PRESETS["smoke"], *load_test_half(root), Colours(), torch.device("cpu"))
    assert found["queries"] == 4
    assert found["queries_without_match"] == 0
    assert found["mean_average_precision"] > 0.8
    assert found["cmc_1"] <= found["cmc_5"] <= found["cmc_20"]


def test_other_queries_of_a_person_are_looked_for_too() -> None:
    """MARS ranks every tracklet of the test half: what another camera saw is a match, also where it is a query."""
    angles = torch.tensor([0.0, 0.1, 0.25, 0.4])
    everything = Tracklets(
        torch.tensor([3, 5, 8, 9]),
        torch.tensor([7, 7, 0, 7]),
        torch.tensor([1, 2, 2, 3]),
        torch.stack([angles.cos(), angles.sin()], 1),
    )
    found = search(everything, torch.tensor([3, 5]))
    # The other query, a distractor, the third camera: (1 + 1) / 2 and (1/2 + 2/3) / 2; itself is left out.
    assert found.average_precisions.tolist() == pytest.approx([(1 + 7 / 12) / 2] * 2)
    assert found.cmc[1] == 1


def test_smoke_from_files_to_table(tmp_path: Path) -> None:
    options = Options(say=lambda line: None)
    run_study(TABLE7, "smoke", tmp_path / "records", tmp_path, only=["method=cce"], options=options)
    details = run_details(tmp_path / "records" / "method=cce,seed=0")
    assert details["status"] == "finished"
    assert details["results"]["queries"] == 4
    results = read_results(TABLE7, tmp_path, "smoke")
    ours = 100 * details["results"]["mean_average_precision"]
    assert f"| CCE | {ours:.1f} [58.1] |" in table(results)
    assert "| GR (β = 8, λ = 0.5) | – [72.8] | – [84.3] | – | – | – |" in table(results)
    assert "MAE" not in table(results), "what a preset does not plan is not missing"
    assert "Of 4 queries, 0 have no match" in table(results)


def refused(root: Path, folder: Path) -> str:
    """The sentence with which a training is refused; nothing may have been trained or written by then."""
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        session(PRESETS["smoke"], root, cells("smoke")[0], folder, Options())
    assert not folder.exists()
    return str(error.value)


def test_what_cannot_be_judged_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    info = tiny(tmp_path) / "MARS" / "info"
    (info / "query_IDX.mat").unlink()
    assert "only it says which tracklets are queries" in refused(tmp_path, tmp_path / "run")
    # Queries of junk (tracklets 1 to 3) have nothing to be found.
    savemat(info / "query_IDX.mat", {"query_IDX": np.array([[1, 2]])})
    assert "a person whom another camera saw" in refused(tmp_path, tmp_path / "run")


def test_a_query_seen_by_one_camera_alone_counts_nowhere(tmp_path: Path) -> None:
    """Person 2 loses the cameras 2 and 3: three of four queries are left to be judged."""
    folder = tiny(tmp_path) / "MARS"
    for path in [*(folder / "bbox_test" / "0002").glob("0002C[23]*.jpg")]:
        path.unlink()
    found = measure(PRESETS["smoke"], *load_test_half(tmp_path), Colours(), torch.device("cpu"))
    assert (found["queries"], found["queries_without_match"]) == (4, 1)
    assert found["mean_average_precision"] > 0.8


def test_seeds_are_shown_with_their_spread(tmp_path: Path) -> None:
    names = ("mean_average_precision", "cmc_1", "cmc_5", "cmc_10", "cmc_20")
    for seed, value in ((0, 0.5), (1, 0.6)):
        cell = Cell({"method": "cce", "seed": seed})
        record = RunRecord(tmp_path / cell.name)
        record.begin(name=cell.name, seed=seed, config={}, device="cpu", class_names=[])
        record.finish(dict.fromkeys(names, value) | {"queries": 4, "queries_without_match": 1})
    results = {
        "preset": "paper", "cells": 2, "cells_planned": 12, "seeds": [0, 1], "hardware": ["H"], "date": "2026-01-01",
        "versions": {"torch": "2"}, **judge("paper", tmp_path),
    }  # fmt: skip
    assert "| CCE | 55.0 ± 7.1 [58.1] | 55.0 ± 7.1 [73.8] | 55.0 ± 7.1 |" in table(results)
    assert "OSM+CAA 72.4 and 84.7" in table(results)
