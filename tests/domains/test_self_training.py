"""Self-training on two small domains: it adapts, it resumes to the same bits, its record says what happened."""

import dataclasses
import errno
import itertools
import json
import math
import operator
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from hardsight import models, records
from hardsight.claims import claim
from hardsight.cleaning import find_label_issues
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.interface import ArrayDataset
from hardsight.domains import looking
from hardsight.domains.looking import ROUND_COLUMNS, Signs
from hardsight.domains.selection import SELECTORS, Selector
from hardsight.domains.self_training import SelfTrained, SelfTraining
from hardsight.losses import GradientRescaling, MentorNetPD
from hardsight.training import Loop, NonFiniteLossError
from hardsight.training.record import RunRecord

QUICK: dict[str, Any] = {"rounds": 3, "source_epochs": 3, "batch_size": 24, "steps_per_epoch": 12}


def weights(model: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_bits(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_it_adapts_and_the_target_labels_are_never_used(domains: Any, small: Callable[..., nn.Module]) -> None:
    plan = SelfTraining("avh", rounds=5, source_epochs=6, batch_size=24, epochs_per_round=2)
    done = plan.fit(small(), domains.source, domains.target, test=domains.test)
    accuracies = [row["accuracy"] for row in done.rounds]
    assert len(accuracies) == 6
    assert accuracies[-1] > accuracies[0] + 0.03
    assert done.rounds[-1]["test_accuracy"] > done.rounds[0]["test_accuracy"]
    hidden = domains.target.with_labels(torch.full((150,), -1))
    blind = plan.fit(small(), domains.source, hidden)
    assert same_bits(weights(done.model), weights(blind.model))
    assert blind.rounds[-1]["accuracy"] is None
    assert [row["selected"] for row in blind.rounds] == [row["selected"] for row in done.rounds]


@pytest.mark.parametrize("name", SELECTORS)
def test_every_selector_trains(name: str, domains: Any, small: Callable[..., nn.Module]) -> None:
    done = SelfTraining(name, **QUICK).fit(small(), domains.source, domains.target)
    assert [row["round"] for row in done.rounds] == [0, 1, 2, 3]
    assert all(row["train_loss"] < 10 for row in done.epochs)
    assert done.selection is not None
    assert bool(done.selection.selected.any())


def test_selectors_part_ways_and_the_seed_decides(domains: Any, small: Callable[..., nn.Module]) -> None:
    runs = {
        (name, seed): weights(SelfTraining(name, seed=seed, **QUICK).fit(small(), *domains[:2]).model)
        for name, seed in (("cbst", 0), ("crst-mrkld", 0), ("crst-lrent", 0), ("cbst", 1))
    }
    again = weights(SelfTraining("cbst", **QUICK).fit(small(), *domains[:2]).model)
    assert same_bits(again, runs["cbst", 0])
    others = [one for key, one in runs.items() if key != ("cbst", 0)]
    assert not any(same_bits(again, other) for other in others)


def test_soft_labels_reach_the_loss_as_they_were_made(domains: Any, small: Callable[..., nn.Module]) -> None:
    """Weights that differ in some bit would not show it: soft and hard labels are added up in different ways."""
    given = []

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        given.append(labels)
        return nn.functional.cross_entropy(logits, labels)

    plan = SelfTraining(Selector("soft", entropy_weight=1.0), rounds=1, source_epochs=0, batch_size=24, loss=loss)
    made = plan.fit(small(), *domains[:2]).selection
    assert made is not None
    assert made.soft is not None
    soft = {tuple(row) for row in made.soft[made.selected].tolist()}
    assert max(map(max, soft)) < 0.9
    source, target = (torch.cat([part.split(12)[at] for part in given]).tolist() for at in (0, 1))
    assert {tuple(row) for row in target} <= soft
    assert {max(row) for row in source} == {1.0}


def test_the_callers_random_states_stay(domains: Any, small: Callable[..., nn.Module]) -> None:
    before = torch.get_rng_state()
    SelfTraining("cbst", **QUICK).fit(small(), *domains[:2])
    assert torch.equal(torch.get_rng_state(), before)


class Interrupted(KeyboardInterrupt):
    pass


@pytest.mark.parametrize(
    ("selector", "regenerate", "stop_at"),
    [("avh", "round", 2), ("avh", "epoch", 1), ("crst", "epoch", 1), ("crst", "round", 0)],
)
def test_resumed_equals_uninterrupted(
    selector: str, regenerate: Any, stop_at: int, domains: Any, small: Callable[..., nn.Module], tmp_path: Path
) -> None:
    # Slow enough that a selector still differs from CBST, so that there are pictures of it.
    slow = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    plan = SelfTraining(selector, regenerate=regenerate, optimizer=slow, **QUICK | {"epochs_per_round": 2})
    whole = plan.fit(small(), *domains[:2], test=domains.test, folder=tmp_path / "whole")

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == stop_at:
            raise Interrupted

    with pytest.raises(Interrupted):
        plan.fit(small(), *domains[:2], test=domains.test, folder=tmp_path / "parts", after_round=interrupt)
    assert json.loads((tmp_path / "parts" / "run.json").read_text())["status"] == "interrupted"
    # Another network's weights: all that counts comes from the checkpoint.
    resumed = plan.fit(small(seed=9), *domains[:2], test=domains.test, folder=tmp_path / "parts")
    assert same_bits(weights(whole.model), weights(resumed.model))
    assert resumed.rounds == whole.rounds
    drop = ["seconds"]
    tables = [pq.read_table(tmp_path / one / "epochs.parquet").drop_columns(drop) for one in ("whole", "parts")]
    assert tables[0].equals(tables[1])
    for file in ("rounds", "selected", "samples", "thumbnails"):
        one, other = (pq.read_table(tmp_path / name / f"{file}.parquet") for name in ("whole", "parts"))
        assert one.equals(other)


@pytest.mark.parametrize("selector", ["avh", "crst"])
def test_stopped_within_a_round_it_goes_on_with_the_labels_of_that_round(
    selector: str, domains: Any, small: Callable[..., nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SelfTraining(selector, **QUICK | {"epochs_per_round": 2})
    whole = plan.fit(small(), *domains[:2])
    close = Loop._close_epoch

    def interrupt(loop: Loop, epoch: int) -> None:
        if loop.epochs == 6 and epoch == 4:
            raise Interrupted
        close(loop, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_close_epoch", interrupt)
        with pytest.raises(Interrupted):
            plan.fit(small(), *domains[:2], folder=tmp_path)
    said: list[str] = []
    resumed = plan.fit(small(seed=9), *domains[:2], folder=tmp_path, say=said.append)
    assert said[0] == "going on after round 1"
    assert same_bits(weights(whole.model), weights(resumed.model))
    assert resumed.rounds == whole.rounds
    assert resumed.selected.equals(whole.selected)


def test_a_loss_with_a_memory_is_resumed_with_it(domains: Any, small: Callable[..., nn.Module], tmp_path: Path) -> None:
    """MentorNet's threshold follows the batches, and its curriculum the share of all rounds that is done."""

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise Interrupted

    def fit(folder: str, **options: Any) -> tuple[SelfTrained, MentorNetPD]:
        loss = MentorNetPD()
        plan = SelfTraining("cbst", loss=loss, **QUICK)
        return plan.fit(small(), *domains[:2], folder=tmp_path / folder, **options), loss

    whole, kept = fit("whole")
    with pytest.raises(Interrupted):
        fit("parts", after_round=interrupt)
    resumed, loss = fit("parts")
    assert float(loss.progress) == pytest.approx(2 / 3)
    assert same_bits(weights(loss), weights(kept))
    assert same_bits(weights(resumed.model), weights(whole.model))


@pytest.mark.parametrize("selector", ["avh", "crst"])
def test_a_finished_run_started_again_gives_back_what_it_gave(
    selector: str, domains: Any, small: Callable[..., nn.Module], tmp_path: Path
) -> None:
    plan = SelfTraining(selector, **QUICK)
    first, again = (plan.fit(small(seed), *domains[:2], folder=tmp_path) for seed in (0, 9))
    assert same_bits(weights(first.model), weights(again.model))
    assert first.rounds == again.rounds
    assert first.selected.equals(again.selected)
    for one, other in zip(first.selection, again.selection, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_labels_of_every_epoch_or_every_round(domains: Any, small: Callable[..., nn.Module]) -> None:
    options = QUICK | {"epochs_per_round": 2}
    by_round = SelfTraining("cbst", **options).fit(small(), *domains[:2])
    by_epoch = SelfTraining("cbst", regenerate="epoch", **options).fit(small(), *domains[:2])
    assert [row["round"] for row in by_round.rounds] == [0, 1, 2, 3]
    assert [row["round"] for row in by_epoch.rounds] == [0, 0, 1, 1, 2, 2, 3]
    assert [row["portion"] for row in by_epoch.rounds] == [0.2, 0.2, 0.25, 0.25, 0.3, 0.3, None]
    assert [row["round"] for row in by_round.epochs] == [0, 0, 0, 1, 1, 2, 2, 3, 3]


@pytest.fixture
def recorded(domains: Any, small: Callable[..., nn.Module], tmp_path: Path) -> SelfTrained:
    plan = SelfTraining("avh", **QUICK)
    return plan.fit(small(), *domains[:2], test=domains.test, folder=tmp_path / "run", name="pale")


def test_the_record_holds_what_the_paper_prints(recorded: SelfTrained, domains: Any) -> None:
    assert recorded.folder is not None
    about = json.loads((recorded.folder / "run.json").read_text())
    assert (about["kind"], about["status"], about["name"]) == ("adaptation", "finished", "pale")
    assert about["config"]["selector"]["name"] == "avh"
    rounds = pq.read_table(recorded.folder / "rounds.parquet")
    assert rounds.column_names == list(ROUND_COLUMNS)
    assert rounds.to_pylist() == recorded.rounds
    selected = pq.read_table(recorded.folder / "selected.parquet").to_pylist()
    truth = dict(zip(domains.target.ids.tolist(), domains.target.labels.tolist(), strict=True))
    for row in recorded.rounds[:-1]:
        mine = [one for one in selected if one["round"] == row["round"]]
        assert len(mine) == row["selected"]
        right = [one["pseudo_label"] == truth[one["id"]] for one in mine]
        assert sum(right) / len(mine) == pytest.approx(row["true_positive_rate"])
        for name in ("avh", "confidence", "norm"):
            assert sum(one[name] for one in mine) / len(mine) == pytest.approx(row[name], rel=1e-5)
        beyond = [hit for one, hit in zip(mine, right, strict=True) if not one["by_cbst"]]
        assert (len(beyond), sum(beyond)) == (row["beyond_cbst"], row["beyond_cbst_right"])
    table = pq.read_table(recorded.folder / "samples.parquet")
    with pytest.raises(ValueError, match="scored against the predicted class"):
        find_label_issues(table)
    samples = table.to_pylist()
    hits = [[one["predicted"] == one["label"] for one in samples if one["label"] == each] for each in range(3)]
    assert [sum(one) / len(one) for one in hits] == pytest.approx(recorded.rounds[-1]["class_accuracy"])
    assert recorded.rounds[-1]["class_mean_accuracy"] == pytest.approx(sum(sum(one) / len(one) for one in hits) / 3)


def test_cbst_selects_nothing_beyond_itself_and_avh_leaves_pictures(
    recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    assert recorded.folder is not None
    assert recorded.rounds[0]["beyond_cbst"] > 0
    table = pq.read_table(recorded.folder / "thumbnails.parquet")
    first = [one for one in pq.read_table(recorded.folder / "selected.parquet").to_pylist() if one["round"] == 0]
    only = {one["id"] for one in first if not one["by_cbst"] and one["label"] == one["pseudo_label"]}
    assert set(table["id"].to_pylist()) <= only
    plain = SelfTraining("cbst", **QUICK).fit(small(), *domains[:2])
    assert [row["beyond_cbst"] for row in plain.rounds[:-1]] == [0, 0, 0]
    # The same source model: the first looks of both are the same look.
    assert plain.rounds[0]["accuracy"] == recorded.rounds[0]["accuracy"]


def test_points_any_model_and_any_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (200,), generator=generator)
    points = torch.randn(200, 3, generator=generator) + 3 * labels.unsqueeze(1)
    data = ArrayDataset(images=points, labels=labels, class_names=("left", "right"), name="points", split="all")
    moved = dataclasses.replace(data, images=points + torch.tensor([0.0, 1.5, -1.0]), name="moved")
    steep = partial(torch.optim.SGD, lr=0.2)
    for share in (None, 0.4):
        torch.manual_seed(0)
        model = models.create("mlp", num_classes=2, in_channels=3, hidden=(8,))
        plan = SelfTraining("avh", loss=GradientRescaling(beta=2.0), optimizer=steep, target_share=share, **QUICK)
        assert plan.fit(model, data, moved).rounds[-1]["accuracy"] > 0.9


def test_a_full_disk_is_told_and_the_run_goes_on_from_there(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SelfTraining("avh", **QUICK)
    whole = plan.fit(small(), *domains[:2], folder=tmp_path / "whole")
    write, folder = RunRecord.write_epochs, tmp_path / "parts"

    def full(record: RunRecord, rows: list[Any]) -> None:
        if record.folder == folder and len(rows) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(record, rows)

    monkeypatch.setattr(RunRecord, "write_epochs", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*parts'"):
        plan.fit(small(), *domains[:2], folder=folder)
    about = json.loads((folder / "run.json").read_text())
    assert (about["status"], about["retry"]) == ("failed", True)
    assert about["error"] == f"[Errno 28] No space left on device: '{folder}'"
    monkeypatch.setattr(RunRecord, "write_epochs", write)
    killed = records.tag().rpartition("-")[0] + "-1"
    (folder / f".rounds.draft-{killed}-0123abcd.parquet").touch()
    (folder / ".rounds-of-mine.parquet").touch()
    again = plan.fit(small(9), *domains[:2], folder=folder)
    assert same_bits(weights(whole.model), weights(again.model))
    about = json.loads((folder / "run.json").read_text())
    assert about["status"] == "finished"
    assert not {"error", "retry"} & set(about)
    # What a killed process left half-written goes; what is somebody else's stays.
    assert [path.name for path in folder.glob(".*")] == [".rounds-of-mine.parquet"]


def test_a_loss_that_is_no_number_has_failed_for_good(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path
) -> None:
    steep = partial(torch.optim.SGD, lr=1e30)
    with pytest.raises(NonFiniteLossError):
        SelfTraining("avh", optimizer=steep, **QUICK | {"source_epochs": 0}).fit(small(), *domains[:2], folder=tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    assert (about["status"], about["retry"]) == ("failed", False)


@pytest.mark.parametrize("lost_after", [0, 2])
def test_outputs_that_are_no_numbers_have_failed_for_good(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path, lost_after: int
) -> None:
    """Weights may be finite, and large enough for outputs that are not; at the end too, where nothing is selected."""
    plan = SelfTraining("cbst", **QUICK | {"rounds": 2, "source_epochs": 0})
    model = small()

    def lose(module: nn.Module, inputs: Any, logits: torch.Tensor) -> torch.Tensor | None:
        return None if module.training or len(looks) < lost_after else logits.index_fill(0, torch.tensor([1]), math.nan)

    looks: list[dict[str, Any]] = []
    model.last.register_forward_hook(lose)
    with pytest.raises(NonFiniteLossError, match=f"of 150 target samples after round {lost_after}: the training has"):
        plan.fit(model, *domains[:2], folder=tmp_path, after_round=looks.append)
    about = json.loads((tmp_path / "run.json").read_text())
    assert (about["status"], about["retry"]) == ("failed", False)


def test_a_folder_in_which_another_adapts_is_refused(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with claim(folder / ".training"), pytest.raises(ValueError, match="another process is training in"):
        SelfTraining("avh", **QUICK).fit(small(), *domains[:2], folder=folder)
    assert not (folder / "run.json").exists()
    SelfTraining("avh", **QUICK).fit(small(), *domains[:2], folder=folder)
    assert (folder / "run.json").is_file()
    assert not (folder / ".training").exists()


def test_a_round_without_samples_keeps_the_model_and_stops_or_goes_on(
    domains: Any, small: Callable[..., nn.Module]
) -> None:
    """A portion of 0.001 of 150 samples is none; with 0.3 more it is some."""
    said: list[str] = []
    options: dict[str, Any] = {"portion": 0.001, "rounds": 2, "source_epochs": 0, "batch_size": 24}
    model = small()
    before = weights(model)
    stopped = SelfTraining("cbst", **options).fit(model, *domains[:2], say=said.append)
    assert same_bits(before, weights(model))
    sentence = "round 1: no target sample was selected; the model of the last round is kept, and training stops"
    assert stopped.notes[-1] == sentence
    assert sentence in said
    assert [row["selected"] for row in stopped.rounds] == [0, None]
    went_on = SelfTraining("cbst", when_empty="go_on", portion_step=0.3, **options).fit(model, *domains[:2])
    assert went_on.notes[0].endswith("kept, and the next round comes")
    assert [row["round"] for row in went_on.rounds] == [0, 1, 2]
    assert went_on.rounds[1]["selected"] > 0
    assert not same_bits(before, weights(model))


def test_every_round_says_how_much_changed(
    domains: Any, small: Callable[..., nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions: list[list[int]] = []
    look_once = looking.look

    def look(*arguments: Any) -> Any:
        seen = look_once(*arguments)
        predictions.append(seen.evidence.softmax.argmax(1).tolist())
        return seen

    monkeypatch.setattr(looking, "look", look)
    done = SelfTraining("cbst", **QUICK).fit(small(), *domains[:2])

    def same(one: list[int], other: list[int]) -> float:
        return sum(map(operator.eq, one, other)) / len(one)

    pairs = list(itertools.pairwise(predictions))
    assert [row["agreement"] for row in done.rounds] == [None, *(same(*pair) for pair in pairs)]
    first = [same(predictions[0], one) for one in predictions[1:]]
    assert [row["agreement_with_first"] for row in done.rounds] == [None, *first]
    assert 0 < done.rounds[1]["agreement"] < 1, "else nothing is tested"
    assert [row["classes_predicted"] for row in done.rounds] == [len({*one}) for one in predictions]
    labels = [
        {row["id"]: row["pseudo_label"] for row in done.selected.to_pylist() if row["round"] == number}
        for number in range(3)
    ]
    for row, before, now in zip(done.rounds[1:], labels, labels[1:], strict=False):
        changed = sum(label != now.get(one) for one, label in before.items())
        assert row["changed_labels"] == pytest.approx(changed / len(before))


def looks(*predictions: list[int], confidence: Sequence[float] = ()) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and signs of looks at ten samples of three classes, all as sure as `confidence` says, or 0.9."""
    signs, rows, said = Signs(), [], []
    for at, classes in enumerate(predictions):
        sure = confidence[at] if confidence else 0.9
        softmax = torch.full((len(classes), 3), (1 - sure) / 2)
        softmax[torch.arange(len(classes)), torch.tensor(classes)] = sure
        row, new = signs.look(softmax, ("cat", "dog", "frog"))
        rows.append(row)
        said += new
    return rows, said


SETTLED = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_run_that_settles_says_nothing() -> None:
    learned = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    rows, said = looks(SETTLED, *[learned] * 6, confidence=[0.5, 0.8, 0.9, 0.85, 0.9, 0.9, 0.95])
    assert said == []
    assert [row["agreement"] for row in rows] == [None, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert rows[-1]["agreement_with_first"] == 0.9


def test_predictions_that_change_more_again_are_a_sign_said_once() -> None:
    turned = SETTLED[1:] + SETTLED[:1]
    _, said = looks(*[SETTLED] * 4, turned, SETTLED, turned)
    assert len(said) == 1
    assert "70 %" in said[0]
    assert "100 %" in said[0]


def test_predictions_far_from_the_first_are_a_sign() -> None:
    near, far = [0, 0, 1, 2, 0, 1, 1, 0, 2, 2], [1, 2, 1, 2, 0, 0, 1, 0, 0, 2]
    assert looks(SETTLED, near, near, near, near)[1] == []
    (said,) = looks(SETTLED, near, far, far, far)[1]
    assert "20 %" in said


def test_a_class_that_disappears_is_a_sign() -> None:
    frogless = [0] * 4 + [1] * 6
    (said,) = looks(SETTLED, frogless)[1]
    assert "frog" in said
    assert "cat" not in said
    assert looks([0] * 10, SETTLED)[1] == [], "what had all samples comes down to its share"


def test_confidence_that_collapses_is_a_sign() -> None:
    assert looks(SETTLED, SETTLED, SETTLED, confidence=[0.5, 0.9, 0.75])[1] == []
    (said,) = looks(SETTLED, SETTLED, SETTLED, confidence=[0.5, 0.9, 0.7])[1]
    assert "0.90" in said
    assert "0.70" in said


def test_a_run_that_gets_worse_says_so_and_records_it(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path
) -> None:
    """With labels that are all wrong the model must turn away from what it began with, and become worse."""
    source = domains.source.with_labels((domains.source.labels + 1) % 3)
    model = small()
    SelfTraining("argmax", rounds=1, source_epochs=8, batch_size=24, steps_per_epoch=1).fit(model, *domains[:2])
    said: list[str] = []
    plan = SelfTraining("avh", rounds=5, source_epochs=0, batch_size=24, rate_in_rounds=1.0, target_share=0.1)
    done = plan.fit(model, source, domains.target, folder=tmp_path, say=said.append)
    assert done.rounds[-1]["accuracy"] < done.rounds[0]["accuracy"]
    worse, fell = next(note for note in done.notes if "worse" in note), done.notes[-1]
    assert f"{100 * done.rounds[0]['accuracy']:.2f} %" in fell
    assert {worse, fell} <= {*said}
    assert json.loads((tmp_path / "run.json").read_text())["notes"] == done.notes


def test_what_is_left_out_fits_the_data() -> None:
    plan = SelfTraining("avh")
    assert plan.epochs_on_source(60_000) == 3
    assert plan.epochs_on_source(500) * math.ceil(500 / 128) >= 1000
    assert [plan.steps_on_target(count) for count in (100, 7291, 60_000)] == [50, 114, 200]
    assert [plan.augmentation_of(width).shift for width in (8, 28, 224)] == [0, 2, 16]
    told = SelfTraining("avh", source_epochs=0, steps_per_epoch=7, augmentation=Augmentation(flip=True))
    assert (told.epochs_on_source(60_000), told.steps_on_target(60_000)) == (0, 7)
    assert told.augmentation_of(28) == Augmentation(flip=True)


def test_a_class_nobody_is_predicted_as_is_said_and_left_alone(domains: Any, small: Callable[..., Any]) -> None:
    model = small()
    with torch.no_grad():
        model.last.bias[1] = -100.0
    done = SelfTraining("avh", rounds=1, source_epochs=0, batch_size=24).fit(model, *domains[:2])
    assert done.notes[0] == "round 1: no target sample is predicted as dog; none is labelled so"
    assert done.selection is not None
    assert 1 not in done.selection.labels.tolist()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"portion": 0.0}, r"portion must lie in \(0, 1\]"),
        ({"portion": 1.5}, r"portion must lie in \(0, 1\]"),
        ({"portion_cap": -0.5}, r"portion_cap must lie in \(0, 1\]"),
        ({"portion": 0.6}, r"portion must be at most its cap, 0\.5; got 0\.6"),
        ({"portion_step": -0.1}, "portion_step must be at least 0 and finite"),
        ({"rounds": 0}, "rounds must be at least 1 and finite; got 0"),
        ({"seed": -1}, "seed must be at least 0 and finite; got -1"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be at least 1"),
        ({"target_share": 1.0}, r"target_share must lie in \(0, 1\)"),
        ({"selector": "avhh"}, "did you mean 'avh'"),
    ],
)
def test_bad_settings_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SelfTraining(**options)


def test_bad_domains_are_one_sentence(domains: Any, small: Callable[..., nn.Module]) -> None:
    plan, (source, target, _) = SelfTraining("cbst", **QUICK), domains
    renamed = dataclasses.replace(target, class_names=("cat", "dog", "toad"))
    one_class = target.subset((target.labels == 2).nonzero().squeeze(1))
    lacking = source.subset((source.labels != 0).nonzero().squeeze(1))
    for bad_source, bad_target, sentence in (
        (source, renamed, "the source has no 'toad'"),
        (lacking, target, "the source has no 'cat'"),
        (source, one_class, "target must hold two classes or more; it holds one, 'frog'"),
        (source.subset((source.labels == 1).nonzero().squeeze(1)), target, "source must hold two classes or more"),
        (source.with_labels(torch.full((120,), -1)), target, "source must be labelled throughout"),
        (source, dataclasses.replace(target, images=target.images[:, :, 1:]), "must have the source's shape"),
        (source, target.subset([]), "target must hold at least one sample"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plan.fit(small(), bad_source, bad_target)
    for bad_test, sentence in (
        (target.with_labels(torch.full((150,), -1)), "test must be labelled throughout"),
        (renamed, "test must hold classes of the source only"),
        (target.subset([]), "test must hold at least one sample"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plan.fit(small(), source, target, test=bad_test)


def test_a_model_or_device_that_does_not_fit_is_one_sentence(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path
) -> None:
    plan = SelfTraining("cbst", **QUICK)
    for model, device, sentence in (
        (small(classes=5), None, r"model must give one logit for each of the source's 3 classes; it gives 5"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(7, 3)),
            None,
            r"model must take samples of shape \[1, 6, 6\]; it says: ",
        ),
        (small(), "cudda", "device must be one that this machine has, cpu or cuda:0, say; got 'cudda'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plan.fit(model, *domains[:2], device=device, folder=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_classes_are_matched_by_name(domains: Any, small: Callable[..., nn.Module]) -> None:
    order = torch.tensor([2, 0, 1])
    turned = dataclasses.replace(
        domains.target, labels=order[domains.target.labels], class_names=("dog", "frog", "cat")
    )
    plan = SelfTraining("cbst", **QUICK)
    plain, other = (plan.fit(small(), domains.source, one) for one in (domains.target, turned))
    assert plain.rounds == other.rounds


def test_another_configuration_does_not_continue_a_record(
    recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    with pytest.raises(ValueError, match=r"holds a run with portion = 0\.2; got 0\.3"):
        SelfTraining("avh", portion=0.3, **QUICK).fit(small(), *domains[:2], folder=recorded.folder)


def test_other_data_do_not_continue_a_record(
    recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    source, target, test = domains
    other = dataclasses.replace(target, images=target.images.flip(0))
    for given, name in (
        ((source.subset(range(119)), target, test), "source"),
        ((source, other, test), "target"),
        ((source, target.with_labels(torch.full((150,), -1)), test), "target"),
        ((source, target, None), "test"),
    ):
        with pytest.raises(ValueError, match=rf"holds a run with data\.{name} = '.*choose another folder"):
            SelfTraining("avh", **QUICK).fit(small(), *given[:2], test=given[2], folder=recorded.folder)


@pytest.mark.parametrize(
    "file", ["checkpoint/step-*/model.safetensors", "checkpoint/step-*/shared.json", "selected.parquet"]
)
def test_what_cannot_be_continued_leaves_the_record_as_it_was(
    file: str, recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    """A finished run that is started again over a damaged file has not become one that is running."""
    assert recorded.folder is not None
    (path,) = recorded.folder.glob(file)
    path.write_bytes(b"{")
    before = (recorded.folder / "run.json").read_bytes()
    damaged = path if file.endswith("parquet") else path.parent
    with pytest.raises(ValueError, match=rf"{damaged} is damaged and cannot be continued: .*; start over$"):
        SelfTraining("avh", **QUICK).fit(small(), *domains[:2], test=domains.test, folder=recorded.folder)
    assert (recorded.folder / "run.json").read_bytes() == before


def test_another_network_leaves_the_record_as_it_was(
    recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    assert recorded.folder is not None
    before = (recorded.folder / "run.json").read_bytes()
    other = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(ValueError, match=r"must hold the weights of this model; 1\.weight is missing there"):
        SelfTraining("avh", **QUICK).fit(other, *domains[:2], test=domains.test, folder=recorded.folder)
    assert (recorded.folder / "run.json").read_bytes() == before


def test_after_a_round_the_source_training_is_not_needed_again(
    recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    assert recorded.folder is not None
    shutil.rmtree(recorded.folder / "source")
    again = SelfTraining("avh", **QUICK).fit(small(9), *domains[:2], test=domains.test, folder=recorded.folder)
    assert same_bits(weights(recorded.model), weights(again.model))
    assert again.epochs == recorded.epochs
    assert not (recorded.folder / "source").exists()


def test_begun_anew_nothing_of_the_earlier_run_stays(
    recorded: SelfTrained, domains: Any, small: Callable[..., nn.Module]
) -> None:
    assert recorded.folder is not None
    tables = ("epochs", "rounds", "samples", "selected", "thumbnails")
    assert all((recorded.folder / f"{name}.parquet").is_file() for name in tables)
    (recorded.folder / "mine.parquet").touch()

    def interrupt(row: dict[str, Any]) -> None:
        raise Interrupted

    plan = SelfTraining("cbst", **QUICK)
    with pytest.raises(Interrupted):
        plan.fit(small(), *domains[:2], folder=recorded.folder, resume=False, after_round=interrupt)
    # Of the first look at the target there are these two.
    assert {path.stem for path in recorded.folder.glob("*.parquet")} == {"rounds", "selected", "mine"}
    assert pq.read_table(recorded.folder / "rounds.parquet").num_rows == 1


def test_begun_anew_and_killed_at_once_it_does_not_go_on_with_the_earlier_source_training(
    domains: Any, small: Callable[..., nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SelfTraining("cbst", **QUICK).fit(small(), *domains[:2], folder=tmp_path / "run")
    other = SelfTraining("cbst", rounds=1, source_epochs=2, seed=1, batch_size=24)

    def killed(run: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hardsight.domains.rounds.Rounds._train_on_source", killed)
        with pytest.raises(KeyboardInterrupt):
            other.fit(small(), *domains[:2], folder=tmp_path / "run", resume=False)
    resumed = other.fit(small(), *domains[:2], folder=tmp_path / "run")
    fresh = other.fit(small(), *domains[:2])
    assert [row["epoch"] for row in resumed.epochs] == [row["epoch"] for row in fresh.epochs]
    assert same_bits(weights(resumed.model), weights(fresh.model))


def test_pictures_of_any_number_of_channels(domains: Any, tmp_path: Path) -> None:
    wide = [dataclasses.replace(one, images=one.images.expand(-1, 5, -1, -1).contiguous()) for one in domains[:2]]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(180, 3))
    done = SelfTraining("avh", **QUICK).fit(model, *wide, folder=tmp_path)
    assert done.rounds[0]["beyond_cbst"] > 0
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"


@pytest.mark.gpu
@pytest.mark.parametrize("selector", ["avh", "crst"])
def test_a_captured_step_sees_the_labels_of_every_round(
    selector: str, domains: Any, small: Callable[..., nn.Module]
) -> None:
    """On a GPU the step is one graph for all rounds; labels are written where it reads them."""
    plan = SelfTraining(selector, rounds=4, source_epochs=6, batch_size=24, epochs_per_round=2, precision="float32")
    rows = {}
    for capture in (True, False):
        done = dataclasses.replace(plan, capture=capture).fit(small(), *domains[:2], device="cuda")
        rows[capture] = [row["accuracy"] for row in done.rounds]
    assert rows[True][-1] > rows[True][0]
    assert rows[True] == pytest.approx(rows[False], abs=0.06)
