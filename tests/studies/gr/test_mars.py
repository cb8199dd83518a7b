"""Table 7 on tiny files of the public layout: training, features by tracklet, retrieval, the table."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hardsight import datasets
from hardsight.studies import Options, read_results, run_study
from hardsight.studies.framework import run_details
from hardsight.studies.gr.mars import PRESETS, TABLE7, cells, measure, search, table, tiny, tracklets_of
from hardsight.studies.gr.retrieval import Tracklets


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
    assert [cell.settings["method"] for cell in cells("paper")] == ["cce", "gr-8-0.5", "gce", "mae"]


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
    found = measure(PRESETS["smoke"], root, Colours(), torch.device("cpu"))
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
    assert "| MAE | – [12.0] | – [26.0] | – |" in table(results)
