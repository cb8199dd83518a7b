"""Table 7 on tiny files of the public layout: training, features by tracklet, retrieval, the table."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run, plan
from hardsight_studies.engine.rows import read
from hardsight_studies.engine.running import run_study
from hardsight_studies.gr.mars import Tracklets, load_test_half, loop_of, measure, search, tiny, tracklets_of
from scipy.io import savemat
from torch import Tensor, nn

from hardsight import datasets

SMALL = {"resized": 20, "side": 16, "batch_size": 12}


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


def runs(preset: str, folder: Path | None = None) -> list[Run]:
    return plan(studies.get("gr-table7"), preset, folder)


def test_the_protocol_is_the_printed_one() -> None:
    config = runs("paper")[0].config
    assert (config["iterations"], config["halve_every"], config["optimizer"]["lr"]) == (50_000, 10_000, 0.01)
    assert config["data"] == {"resized": 256, "side": 227, "batch_size": 180}
    assert [run.settings["method"] for run in runs("paper")] == 3 * ["cce", "gr-8-0.5", "gce", "mae"]
    assert [run.seed for run in runs("paper")] == [0] * 4 + [1] * 4 + [2] * 4


def test_tracklets_average_their_frames(root: Path) -> None:
    data = datasets.load("mars", "gallery", root)
    device = torch.device("cpu")
    made = tracklets_of(Colours(), data, SMALL, device)
    assert made.numbers.tolist() == data.columns["tracklet"].unique().tolist()
    assert {-1, 0} < set(made.identities.tolist()), "junk and distractors are in the gallery"
    assert torch.allclose(made.features.norm(dim=1), torch.ones(len(made.numbers)))
    assert made.cameras[made.identities > 0].unique().tolist() == [2, 3], "the first camera's are queries"
    # Not one batch of frames after the other: another batch size, the same tracklets.
    other = tracklets_of(Colours(), data, SMALL | {"batch_size": 5}, device)
    torch.testing.assert_close(made.features, other.features, atol=1e-5, rtol=0)


def test_colours_find_people_again(root: Path) -> None:
    found = measure(SMALL, *load_test_half(root), Colours(), torch.device("cpu"))
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
    averages, first = search(everything, torch.tensor([3, 5]))
    # The other query, a distractor, the third camera: (1 + 1) / 2 and (1/2 + 2/3) / 2; itself is left out.
    assert averages.tolist() == pytest.approx([(1 + 7 / 12) / 2] * 2)
    assert first.tolist() == [1, 1]


def test_smoke_from_files_to_rows(tmp_path: Path) -> None:
    options = Options(say=lambda line: None)
    run_study(studies.get("gr-table7"), "smoke", tmp_path, output=tmp_path / "records", only=["method=cce"],
              options=options)  # fmt: skip
    (row,) = read("gr-table7", tmp_path, "smoke")
    assert (row.metrics["queries"], row.metrics["queries_without_match"]) == (4, 0)
    assert 0 <= row.metrics["cmc_1"] <= row.metrics["cmc_20"] <= 1


def message_of(root: Path, folder: Path) -> str:
    """The error with which a training is rejected; nothing may have been trained or written by then."""
    run = runs("smoke", folder)[0]
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        loop_of(run, root, Options())
    assert not run.folder.exists()
    return str(error.value)


def test_what_cannot_be_judged_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    info = tiny(tmp_path) / "MARS" / "info"
    (info / "query_IDX.mat").unlink()
    assert "query_IDX.mat" in message_of(tmp_path, tmp_path / "run")
    # Queries of junk (tracklets 1 to 3) have nothing to be found.
    savemat(info / "query_IDX.mat", {"query_IDX": np.array([[1, 2]])})
    assert "query" in message_of(tmp_path, tmp_path / "run")


def test_a_query_seen_by_one_camera_alone_counts_nowhere(tmp_path: Path) -> None:
    """Person 2 loses the cameras 2 and 3: three of four queries are left to be judged."""
    folder = tiny(tmp_path) / "MARS"
    for path in [*(folder / "bbox_test" / "0002").glob("0002C[23]*.jpg")]:
        path.unlink()
    found = measure(SMALL, *load_test_half(tmp_path), Colours(), torch.device("cpu"))
    assert (found["queries"], found["queries_without_match"]) == (4, 1)
    assert found["mean_average_precision"] > 0.8
