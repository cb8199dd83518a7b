"""The networks that people are compared with: what is recorded of the test images, and going on."""

import copy
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from hardsight_studies.avh import people, watching
from hardsight_studies.avh.choice import read_answers
from hardsight_studies.avh.watching import PEOPLE, ImageWatch, Votes, further_columns
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.trainings import train
from hardsight_studies.outputs import Outputs, outputs_of

from hardsight import datasets, models
from hardsight.alignment import correlate
from hardsight.datasets.loader import DeviceLoader
from hardsight.hardness import SCORES
from hardsight.hardness.several_passes import variance_of_gradients
from hardsight.records import read_run


def elsewhere(run: Run, folder: Path) -> Run:
    """The same run with another record."""
    return Run(run.settings, run.config, folder / run.name)


def test_every_score_that_a_test_image_can_have_is_recorded(people_runs: list[Run]) -> None:
    table = pq.read_table(people_runs[0].folder / PEOPLE)
    # A second split needs a second training, a detector known label errors: every other registered score is there.
    assert set(SCORES) - set(table.column_names) == {"second_split_forgetting", "detector"}
    assert len(table) == len(set(table["id"].to_pylist())) == people_runs[0].config["data"]["limit"]


def test_what_was_recorded_on_the_way_fits_what_was_evaluated(people_runs: list[Run]) -> None:
    for run in people_runs:
        table, epochs = (pq.read_table(run.folder / name) for name in (PEOPLE, "epochs.parquet"))
        # Each epoch's accuracy is a mean over images, the correctness of an image a mean over epochs.
        assert np.mean(table["correctness"]) == pytest.approx(np.mean(epochs["test_accuracy"]), abs=1e-6)
        np.testing.assert_allclose(table["avh_last"], table["avh"], atol=2e-4)
        np.testing.assert_allclose(table["loss_last"], table["loss"], atol=1e-4)
        rows = np.array(table["probabilities_mean"].to_pylist())
        own = rows[np.arange(len(table)), table["label"]]
        np.testing.assert_allclose(own, table["confidence_mean"], atol=1e-4)
        answers = read_answers(run.folder)
        for name, score in (("avh_agreement", "avh"), ("loss_agreement", "confidence"), ("norm_agreement", "norm")):
            # Recorded in double precision, kept in single: a few neighbours may have changed places.
            expected = correlate(answers.scores[score], answers.people).coefficient
            assert epochs[name].to_pylist()[-1] == pytest.approx(expected, abs=1e-4)


def test_watching_changes_nothing_in_the_training(people_runs: list[Run], tmp_path: Path) -> None:
    alone = elsewhere(people_runs[0], tmp_path)
    train([alone], Options(say=str))
    first, second = (read_run(run.folder) or {} for run in (alone, people_runs[0]))
    assert first["results"] == second["results"]


def test_people_who_are_missing_are_missed_before_the_training(
    people_runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(name: str) -> Votes:
        raise FileNotFoundError("cifar10h-counts.npy")

    monkeypatch.setattr(people, "human_votes", nobody)
    run = elsewhere(people_runs[0], tmp_path)
    with pytest.raises(FileNotFoundError, match="cifar10h-counts"):
        people.compute([run], "smoke", Options(say=str))
    assert not (run.folder / "epochs.parquet").exists()


class GoneError(Exception):
    """Stands for a machine that went away."""


def test_an_interrupted_training_goes_on_to_the_same_record(
    people_runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, look = elsewhere(people_runs[1], tmp_path), ImageWatch.epoch

    def stop(watch: ImageWatch, model: torch.nn.Module, epoch: int) -> dict[str, float]:
        found = look(watch, model, epoch)
        if epoch == 2:
            # The look is on disk, the checkpoint is not: the epoch comes again.
            raise GoneError
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ImageWatch, "epoch", stop)
        with pytest.raises(GoneError):
            people.compute([run], "smoke", Options(say=str))
    assert [place.name for place in run.folder.glob("watch-*")] == ["watch-2"]
    people.compute([run], "smoke", Options(say=str))
    whole, resumed = (pq.read_table(one.folder / PEOPLE) for one in (people_runs[1], run))
    assert resumed.equals(whole)
    assert not list(run.folder.glob("watch-*"))
    assert not list(run.folder.glob("snapshot-*"))


@pytest.fixture
def few() -> DeviceLoader:
    """Seven small images of two classes, in batches of four."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8, generator=generator)
    return DeviceLoader(images, torch.tensor([0, 1, 0, 1, 0, 1, 0]), batch_size=4, shuffle=False, std=[64.0])


def test_further_scores_of_a_network(few: DeviceLoader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models_at = [models.create("digits_cnn", num_classes=2) for _ in range(3)]
    for model in models_at:
        model.eval()
    paths = [tmp_path / f"snapshot-{at}.safetensors" for at in range(3)]
    for path, model in zip(paths, models_at, strict=True):
        path.write_bytes(safetensors.torch.save(model.state_dict()))
    monkeypatch.setattr(watching, "_GRADIENTS_AT_ONCE", 3)
    model = models_at[-1]
    before = {name: values.clone() for name, values in model.state_dict().items()}
    seen = outputs_of(model, few)
    found = further_columns(model, few, seen, 2, paths)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    images = torch.cat([batch.images for batch in few])
    states = [copy.deepcopy(one.state_dict()) for one in models_at]
    # In groups of three or all at once, float32 sums in another order.
    whole = variance_of_gradients(model, states, images, few.labels)
    torch.testing.assert_close(found["vog"], whole, rtol=1e-4, atol=1e-5)
    # The loader itself still hands out the images as they are, and copies are the same for every network.
    torch.testing.assert_close(torch.cat([batch.images for batch in few]), images)
    assert torch.equal(found["allsh"], further_columns(model, few, seen, 2)["allsh"])
    assert (found["allsh"] > 0).all()
    assert "vog" not in further_columns(model, few, seen, 2)


def test_a_lost_look_is_refused(tmp_path: Path, few: DeviceLoader) -> None:
    watch = ImageWatch(tmp_path, few, Votes(torch.ones(3), torch.ones(3)), epochs=5, copies=1)
    nothing = Outputs(torch.arange(3), torch.zeros(3), torch.ones(3, 2), torch.ones(3, 4), torch.ones(4, 2), None)
    with pytest.raises(ValueError, match=r"epoch 4.* 0"):
        watch._record(nothing, 5)


def test_neighbours_vote_by_their_own_class() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 3, (60,), generator=generator)
    data = datasets.ArrayDataset(images=images, labels=labels, class_names=("a", "b", "c"), name="three", split="all")
    found = people.neighbour_votes(data, voters=5)
    pixels = images.flatten(1).double()
    for at in range(60):
        distances = (pixels - pixels[at]).square().sum(1)
        distances[at] = torch.inf
        nearest = labels[distances.argsort()[:5]]
        assert found[at].tolist() == [int((nearest == one).sum()) for one in range(3)]


def test_votes_are_those_for_the_labelled_class() -> None:
    votes = torch.tensor([[3, 1, 0], [0, 0, 7]])
    data = datasets.ArrayDataset(
        images=torch.zeros(2, 1, 2, 2, dtype=torch.uint8), labels=torch.tensor([1, 2]), class_names=("a", "b", "c"),
        name="three", split="test", columns={"human_votes": votes},
    )  # fmt: skip
    found = people.votes_on(data)
    assert found.frequency.tolist() == [0.25, 1.0]
    expected = datasets.human_selection_frequency(votes, data.labels)
    assert torch.equal(found.of(torch.tensor([1, 0])).frequency, expected.flip(0))


@pytest.mark.data
def test_a_public_network_keeps_confidences_apart_that_tie_in_float32(data_root: Path, tmp_path: Path) -> None:
    data = datasets.load("cifar10h", "test", data_root).subset(torch.arange(200))
    model = models.load_cifar10_resnet(20, data_root / "cifar-10-batches-bin" / "resnets.safetensors")
    results = people.write_public(tmp_path, model, data, torch.device("cpu"), batch_size=100)
    table, answers = pq.read_table(tmp_path / PEOPLE), read_answers(tmp_path)
    assert results["test_accuracy"] == answers.correct.mean() > 0.85
    expected = torch.from_numpy(answers.logits).softmax(1)[torch.arange(200), data.labels]
    np.testing.assert_allclose(answers.scores["confidence"], expected, atol=1e-5)
    assert len(np.unique(table["confidence"])) < 200 == len(np.unique(answers.scores["confidence"]))
    np.testing.assert_array_equal(
        answers.people, datasets.human_selection_frequency(data.columns["human_votes"], data.labels)
    )
