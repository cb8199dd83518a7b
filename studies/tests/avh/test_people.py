"""The networks that people are held against: their cells, what is recorded of the test images, and going on."""

import copy
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies import Options
from hardsight_studies.avh import further_scores, people
from hardsight_studies.avh.agreement import read_answers, seeds_planned
from hardsight_studies.avh.further_scores import Snapshots, further_columns
from hardsight_studies.avh.people_looks import PEOPLE, ImageWatch, Votes
from hardsight_studies.configured import train_cells
from hardsight_studies.framework import PRESETS, run_details
from hardsight_studies.outputs import Outputs, outputs_of

from hardsight import datasets, models
from hardsight.alignment import correlate
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics.gradients import variance_of_gradients
from hardsight.hardness import SCORES
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import build


@pytest.mark.parametrize("preset", PRESETS)
def test_every_cell_can_be_made(preset: str) -> None:
    cells = people.cells(preset)
    assert len({cell.name for cell in cells}) == len(cells)
    parts = people.public_cells(preset) + people.trained_cells(preset)
    assert {cell.name for cell in parts} == {cell.name for cell in cells}
    for cell in people.trained_cells(preset):
        config = build(TrainingConfig, people.configuration(people.PRESETS[preset], cell))
        assert config.model.name in models.names()
        assert config.model.options.keys() <= models.options(config.model.name).keys()
        assert people.title_of(people.key_of(cell)) != config.model.name, "give it a title"


def test_the_most_valuable_cells_come_first_and_train_together() -> None:
    first = people.cells("paper")[: people.PRESETS["paper"].at_once]
    assert {cell.settings["network"] for cell in first} == {"resnet20"}
    assert [cell.settings["seed"] for cell in first] == [0, 1, 2, 3, 4]


def test_every_network_has_five_seeds_and_keeps_the_names_of_its_records() -> None:
    planned = seeds_planned(people.cells("paper"))
    assert planned == dict.fromkeys(("resnet20", "cnn13", "resnet56", "vgg19_bn", "alexnet", "densenet121"), 5)
    names = [cell.name for cell in people.cells("paper")]
    # Records that exist are found by these names.
    assert names[0] == "network=resnet20,weights=trained,seed=0"
    assert "network=resnet56,weights=public" in names
    assert names[-1] == "network=densenet121,weights=trained,seed=4"


def test_every_score_that_a_test_image_can_have_is_recorded(people_smoke: Path) -> None:
    table = pq.read_table(people_smoke / people.cells("smoke")[0].name / PEOPLE)
    # A second split needs a second training, a detector known label errors: every other registered score is there.
    assert set(SCORES) - set(table.column_names) == {"second_split_forgetting", "detector"}
    assert len(table) == len(set(table["id"].to_pylist())) == people.PRESETS["smoke"].data["limit"]


@pytest.mark.parametrize("cell", people.cells("smoke"), ids=lambda cell: cell.name)
def test_what_was_recorded_on_the_way_fits_what_was_evaluated(people_smoke: Path, cell: people.Cell) -> None:
    table = pq.read_table(people_smoke / cell.name / PEOPLE)
    epochs = pq.read_table(people_smoke / cell.name / "epochs.parquet")
    # Each epoch's accuracy is a mean over images, the correctness of an image a mean over epochs.
    assert np.mean(table["correctness"]) == pytest.approx(np.mean(epochs["test_accuracy"]), abs=1e-6)
    np.testing.assert_allclose(table["avh_last"], table["avh"], atol=2e-4)
    np.testing.assert_allclose(table["loss_last"], table["loss"], atol=1e-4)
    rows = np.array(table["probabilities_mean"].to_pylist())
    own = rows[np.arange(len(table)), table["label"]]
    np.testing.assert_allclose(own, table["confidence_mean"], atol=1e-4)
    answers = read_answers(people_smoke / cell.name / PEOPLE)
    for name, score in (("avh_agreement", "avh"), ("loss_agreement", "confidence"), ("norm_agreement", "norm")):
        # Recorded in double precision, kept in single: a few neighbours may have changed places.
        expected = correlate(answers.scores[score], answers.people).coefficient
        assert epochs[name].to_pylist()[-1] == pytest.approx(expected, abs=1e-4)


def test_watching_changes_nothing_in_the_training(people_smoke: Path, tmp_path: Path) -> None:
    cell = people.cells("smoke")[0]
    of = people.PRESETS["smoke"]
    train_cells([(cell, tmp_path / "alone")], Options(), lambda one: people.configuration(of, one))
    alone, watched = (run_details(place)["results"] for place in (tmp_path / "alone", people_smoke / cell.name))
    assert alone == watched


def test_people_who_are_missing_are_missed_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> Votes:
        raise FileNotFoundError("cifar10h-counts.npy")

    monkeypatch.setattr(people, "human_votes", nobody)
    cell = people.cells("smoke")[0]
    with pytest.raises(FileNotFoundError, match="cifar10h-counts"):
        people.compute("smoke", [(cell, tmp_path / cell.name)], Options())
    assert not (tmp_path / cell.name / "epochs.parquet").exists()


class GoneError(Exception):
    """Stands for a machine that went away."""


def test_an_interrupted_training_goes_on_to_the_same_record(
    people_smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = people.cells("smoke")[1]
    look = ImageWatch.epoch

    def stop(watch: ImageWatch, model: torch.nn.Module, epoch: int) -> dict[str, float]:
        found = look(watch, model, epoch)
        if epoch == 2:
            # The look is on disk, the checkpoint is not: the epoch comes again.
            raise GoneError
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ImageWatch, "epoch", stop)
        with pytest.raises(GoneError):
            people.compute("smoke", [(cell, tmp_path / cell.name)], Options())
    assert [place.name for place in (tmp_path / cell.name).glob("watch-*")] == ["watch-2"]
    people.compute("smoke", [(cell, tmp_path / cell.name)], Options())
    whole, resumed = (pq.read_table(place / cell.name / PEOPLE) for place in (people_smoke, tmp_path))
    assert resumed.equals(whole)
    assert not list((tmp_path / cell.name).glob("watch-*"))
    assert not list((tmp_path / cell.name).glob("snapshot-*"))


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
    snapshots = Snapshots(tmp_path, 6)
    assert sorted(snapshots.at) == [1, 2, 4, 5, 6]
    for epoch, model in zip((1, 3, 4, 6), (models_at[0], models_at[0], models_at[1], models_at[2]), strict=True):
        snapshots.take(model, epoch)
    assert [path.stem for path in snapshots.files()] == ["snapshot-1", "snapshot-4", "snapshot-6"]
    monkeypatch.setattr(further_scores, "_GRADIENTS_AT_ONCE", 3)
    model = models_at[-1]
    before = {name: values.clone() for name, values in model.state_dict().items()}
    seen = outputs_of(model, few)
    found = further_columns(model, few, seen, 2, snapshots.files())
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
    snapshots.clear()
    assert not snapshots.files()


def test_a_lost_look_is_refused(tmp_path: Path, few: DeviceLoader) -> None:
    watch = ImageWatch(tmp_path, few, Votes(torch.ones(3), torch.ones(3)), epochs=5, copies=1)
    nothing = Outputs(torch.arange(3), torch.zeros(3), torch.ones(3, 2), torch.ones(3, 4), torch.ones(4, 2), None)
    with pytest.raises(ValueError, match="must hold the looks at epoch 4; it ends at 0"):
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
    table, answers = pq.read_table(tmp_path / PEOPLE), read_answers(tmp_path / PEOPLE)
    assert results["test_accuracy"] == answers.accuracy > 0.85
    expected = torch.from_numpy(answers.logits).softmax(1)[torch.arange(200), data.labels]
    np.testing.assert_allclose(answers.scores["confidence"], expected, atol=1e-5)
    assert len(np.unique(table["confidence"])) < 200 == len(np.unique(answers.scores["confidence"]))
    np.testing.assert_array_equal(
        answers.people, datasets.human_selection_frequency(data.columns["human_votes"], data.labels)
    )
