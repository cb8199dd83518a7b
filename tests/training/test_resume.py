"""Killed at any moment, resumed, and the same bits; nothing half-written, nothing earlier lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from hardsight import claims, records, training
from hardsight.dynamics import Recorder
from hardsight.losses.metric import CenterLoss
from hardsight.training import checkpoints
from hardsight.training.feed import Feed, make_capturable

# Below this folder's names only times differ between two runs.
TIMED = {"shared.json", "process-0.json", "checksums.json", "audit.json"}


def held(folder: Path) -> dict[str, Any]:
    """All that a folder holds, by relative path, bit for bit; only times are left out."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content: Any = path.read_bytes()
        if path.name == "epochs.parquet":
            content = pq.read_table(path).drop_columns(["seconds"])
        elif path.name == "run.json":
            content = {key: json.loads(content)[key] for key in ("status", "results")}
        elif path.name in TIMED:
            content = None
        found[str(path.relative_to(folder))] = content
    return found


# A few seconds in the suite; `make kills` asks for many.
KILLS = int(os.environ.get("HARDSIGHT_KILLS", "2"))


def test_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    script = Path(__file__).with_name("kill_and_resume.py")
    command = [sys.executable, script, tmp_path, "13", str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100 + 10 * KILLS, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5 * KILLS
    for work in ("training", "adaptation", "sweep", "audit"):
        whole = held(tmp_path / work / "uninterrupted")
        killed = list((tmp_path / work).glob("killed-*"))
        assert len(whole) > 4
        assert killed
        for run in killed:
            now = held(run)
            assert now.keys() == whole.keys(), f"{run.name}: what a killed process left is there, or something is not"
            assert [name for name in whole if now[name] != whole[name]] == []


class InterruptedTrainingError(Exception):
    """Stands for the kill in tests of one process."""


def run(problem, model, folder, *, batches=None, stop_at=None, steps=None, **options):
    """Train 3 epochs of 6 steps, checkpoint every 4 steps; `stop_at` breaks off in that step."""
    taken = 0

    class Breaking(torch.optim.Adam):
        def step(self, closure=None):
            nonlocal taken
            taken += 1
            if taken == stop_at:
                raise InterruptedTrainingError
            super().step(closure)

    return training.fit(
        model,
        problem.loader() if batches is None else batches,
        optimizer=Breaking(model.parameters(), lr=0.01),
        epochs=3,
        folder=folder,
        progress=False,
        steps=steps or training.Steps(checkpoint_every=4),
        **options,
    )


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("stop_at", [3, 6, 10, 17])
def test_a_plain_loader_is_replayed_to_the_same_bits(problem, small, tmp_path, stop_at, own_generator):
    def plain():
        images = problem.images.float() / 255
        generator = torch.Generator().manual_seed(4) if own_generator else None
        data = TensorDataset(images, problem.labels, torch.arange(90))
        return DataLoader(data, batch_size=16, shuffle=True, generator=generator)

    whole = small()
    run(problem, whole, tmp_path / "whole", batches=plain())
    broken = small()
    with pytest.raises(InterruptedTrainingError):
        run(problem, broken, tmp_path / "broken", batches=plain(), stop_at=stop_at)
    resumed = small(seed=99)
    if stop_at < 4:
        resumed = small()
    run(problem, resumed, tmp_path / "broken", batches=plain())
    for ours, theirs in zip(resumed.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


class CountingPasses:
    """A loader that keeps its position to itself: the order of a pass depends on how many came before it."""

    def __init__(self, problem):
        self.images, self.labels = problem.images.float() / 255, problem.labels
        self.passes, self.done = 0, 0

    def __len__(self):
        return 6

    def __iter__(self):
        order = torch.randperm(90, generator=torch.Generator().manual_seed(self.passes)).split(16)
        for rows in order[self.done :]:
            self.passes, self.done = (self.passes, self.done + 1) if self.done < 5 else (self.passes + 1, 0)
            yield self.images[rows], self.labels[rows]

    def state_dict(self):
        return {"passes": self.passes, "done": self.done}

    def load_state_dict(self, state):
        self.passes, self.done = state["passes"], state["done"]


@pytest.mark.parametrize("stop_at", [6, 7, 13])
def test_a_loader_that_knows_its_position_is_asked_to_continue(problem, small, tmp_path, stop_at):
    whole = small()
    run(problem, whole, tmp_path / "whole", batches=CountingPasses(problem))
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), tmp_path / "broken", batches=CountingPasses(problem), stop_at=stop_at)
    resumed = small(seed=99)
    run(problem, resumed, tmp_path / "broken", batches=CountingPasses(problem))
    assert torch.equal(resumed.head.weight, whole.head.weight)


class ShufflingByEpoch:
    """A loader that is told the epoch, and cannot say where it stands."""

    def __init__(self, problem):
        self.images, self.labels, self.number = problem.images.float() / 255, problem.labels, 0

    def __len__(self):
        return 6

    def set_epoch(self, number):
        self.number = number

    def __iter__(self):
        order = torch.randperm(90, generator=torch.Generator().manual_seed(self.number))
        return ((self.images[rows], self.labels[rows]) for rows in order.split(16))


def prepared(problem):
    """What Accelerate makes of a plain loader: it has `state_dict`, which then fails."""
    data = TensorDataset(problem.images.float() / 255, problem.labels)
    return Accelerator(cpu=True).prepare(DataLoader(data, batch_size=16, shuffle=True))


@pytest.mark.parametrize("make", [ShufflingByEpoch, prepared])
@pytest.mark.parametrize("stop_at", [7, 11])
def test_a_loader_that_is_told_the_epoch_is_replayed_to_the_same_bits(problem, small, tmp_path, make, stop_at):
    whole = small()
    run(problem, whole, tmp_path / "whole", batches=make(problem))
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), tmp_path / "broken", batches=make(problem), stop_at=stop_at)
    resumed = small(seed=99)
    run(problem, resumed, tmp_path / "broken", batches=make(problem))
    assert torch.equal(resumed.head.weight, whole.head.weight)


@pytest.mark.parametrize("stop_at", [7, 10])
def test_batches_of_another_size_than_the_checkpoints_are_refused(problem, small, tmp_path, stop_at):
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), tmp_path, stop_at=stop_at)
    with pytest.raises(ValueError, match="steps of an epoch was 6 there; got 3"):
        run(problem, small(), tmp_path, batches=problem.loader(batch_size=32))
    with pytest.raises(ValueError, match="batch_size must be that of the saved position, 16; got 17"):
        run(problem, small(), tmp_path, batches=problem.loader(batch_size=17))


@pytest.mark.parametrize(("module", "forgotten"), [("loop", "restore_random_states"), ("step", "load_optimizer")])
def test_a_resume_that_forgets_something_is_noticed(problem, small, tmp_path, monkeypatch, module, forgotten):
    whole = small()
    run(problem, whole, tmp_path / "whole")
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), tmp_path / "broken", stop_at=10)
    monkeypatch.setattr(getattr(training, module), forgotten, lambda *_: None)
    resumed = small(seed=99)
    run(problem, resumed, tmp_path / "broken")
    assert not torch.equal(resumed.head.weight, whole.head.weight)


def test_checkpoint_of_another_model_names_the_first_mismatch(problem, small, tmp_path):
    run(problem, small(), tmp_path)
    other = small()
    other.linear = torch.nn.Linear(8, 4)
    with pytest.raises(ValueError, match=r"linear\.weight is \[3, 8\] of .* there and \[4, 8\] of .* here"):
        run(problem, other, tmp_path)
    other = small()
    other.extra = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"extra\.weight is missing there"):
        run(problem, other, tmp_path)
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    with pytest.raises(ValueError, match=r"1\.weight is missing there"):
        run(problem, other, tmp_path)


def interrupted(problem, small, folder, **options):
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), folder, stop_at=10, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": training.Steps(average_decay=0.9)}, "average_decay was not given there; got given"),
        ({"steps": training.Steps(precision="fp16")}, "precision fp16 was not given there; got given"),
        ({"recorder": Recorder(90)}, "recorder was not given there; got given"),
        (
            {"loss": training.Objective(None, CenterLoss(8, 3))},
            "this loss; feature_loss.centers is missing there",
        ),
    ],
)
def test_other_parts_than_the_checkpoints_are_named(problem, small, tmp_path, options, sentence):
    interrupted(problem, small, tmp_path)
    with pytest.raises(ValueError, match=sentence):
        run(problem, small(), tmp_path, **options)


def test_another_optimiser_than_the_checkpoints_is_named(problem, small, tmp_path):
    interrupted(problem, small, tmp_path)
    with pytest.raises(ValueError, match="optimizer was Breaking there; got SGD"):
        training.fit(small(), problem.loader(), epochs=3, folder=tmp_path, progress=False)


@pytest.mark.parametrize("file", ["model.safetensors", "shared.json", "process-0.safetensors"])
def test_a_damaged_checkpoint_is_one_sentence(problem, small, tmp_path, file):
    interrupted(problem, small, tmp_path)
    (checkpoints.Checkpoints(tmp_path).latest() / file).write_bytes(b"{")
    with pytest.raises(ValueError, match=r"step-00000008 is damaged and cannot be continued: .*; start over$"):
        run(problem, small(), tmp_path)


def test_a_checkpoint_of_another_version_is_one_sentence(problem, small, tmp_path):
    training.fit(small(), problem.loader(), epochs=1, folder=tmp_path, progress=False)
    (path,) = (tmp_path / "checkpoint").glob("step-*")
    state = checkpoints.read_state(path / "shared")
    del state["counters"]
    checkpoints.write_state(path / "shared", state)
    (path / "checksums.json").unlink()
    with pytest.raises(ValueError, match=r"another version.*start over$"):
        training.fit(small(), problem.loader(), epochs=2, folder=tmp_path, progress=False)


def test_only_what_a_run_wrote_is_ever_removed(problem, small, tmp_path):
    """A run's folder may be a project's: its hidden folders and files, and checkpoints of others, are not ours."""
    others = (".git/HEAD", ".config-settings.json", ".run.json", "checkpoint/theirs.pth", "checkpoint/.hidden/file")
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("theirs")
    # Of a process that had this one's number before.
    killed = records.tag().rpartition("-")[0] + "-1"
    crumbs = (
        *(f".{name}.draft-{killed}-0123abcd{ending}" for name, ending in (("run", ".json"), ("rounds", ".parquet"))),
        f"checkpoint/.best.draft-{killed}-0123abcd.safetensors",
    )
    for name in crumbs:
        (tmp_path / name).write_text("half")
    folders = ("checkpoint/.step-00000004", "checkpoint/.gone-step-00000001")
    for resume in (True, False):
        for name in folders:
            (tmp_path / name).mkdir()
        run(problem, small(), tmp_path, resume=resume)
        assert [(tmp_path / name).read_text() for name in others] == ["theirs"] * len(others)
        assert not any((tmp_path / name).exists() for name in (*crumbs, *folders))


def test_a_run_that_begins_anew_holds_nothing_of_the_earlier_one(problem, small, tmp_path):
    def options():
        samples = problem.loader(shuffle=False)
        return {"samples": samples, "recorder": Recorder(90, history=tmp_path / "dynamics")}

    run(problem, small(), tmp_path, **options())
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), tmp_path, resume=False, stop_at=8, **options())
    assert pq.read_table(tmp_path / "epochs.parquet").num_rows == 1
    assert not (tmp_path / "samples.parquet").exists()
    assert [path.name for path in (tmp_path / "dynamics").iterdir()] == ["epoch-00000.parquet"]


def test_without_resume_a_run_begins_anew(problem, small, tmp_path):
    first = small()
    run(problem, first, tmp_path)
    again = small()
    with pytest.raises(InterruptedTrainingError):
        run(problem, again, tmp_path, resume=False, stop_at=10)
    # The earlier run's checkpoints are gone: going on now must not jump to its end.
    run(problem, again, tmp_path)
    assert torch.equal(first.head.weight, again.head.weight)
    assert pq.read_table(tmp_path / "epochs.parquet").num_rows == 3


def test_a_folder_in_which_another_process_trains_is_left_alone(problem, small, tmp_path):
    run(problem, small(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with claims.claim(tmp_path / ".training"):
        for resume in (True, False):
            with pytest.raises(ValueError, match="another process"):
                run(problem, small(), tmp_path, resume=resume)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_checkpoint_that_a_killed_process_did_not_get_to_remove_goes(problem, small, tmp_path):
    run(problem, small(), tmp_path)
    newest = checkpoints.Checkpoints(tmp_path).latest()
    shutil.copytree(newest, newest.with_name("step-00000002"))
    run(problem, small(), tmp_path)
    assert [path.name for path in newest.parent.glob("step-*")] == [newest.name]


def test_full_disk_is_one_sentence_and_leaves_the_earlier_checkpoint(problem, small, tmp_path, monkeypatch):
    with pytest.raises(InterruptedTrainingError):
        run(problem, small(), tmp_path, stop_at=11)
    before = {path: path.read_bytes() for path in tmp_path.glob("checkpoint/*/*")}
    epochs = pq.read_table(tmp_path / "epochs.parquet")
    assert any("step-00000008" in str(path) for path in before)
    write = Path.write_bytes

    def full(path, data):
        if ".step-" in str(path):
            write(path, data[: len(data) // 2])
            # As Python raises it where a write fails: without the file's name.
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"):
        run(problem, small(), tmp_path)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in tmp_path.glob("checkpoint/*/*")} == before
    assert pq.read_table(tmp_path / "epochs.parquet").slice(0, 1).equals(epochs)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"
    resumed = small()
    run(problem, resumed, tmp_path)
    whole = small()
    run(problem, whole, tmp_path / "whole")
    assert torch.equal(whole.head.weight, resumed.head.weight)


def test_folder_that_cannot_be_written_is_one_sentence_before_training(problem, small, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="Not a directory"):
        run(problem, small(), tmp_path / "file" / "run")


def test_states_survive_the_disk(tmp_path):
    state = {
        "tensors": [torch.arange(3), torch.tensor(True), torch.tensor(1.5, dtype=torch.bfloat16)],
        "pairs": {0: {"exp_avg": torch.ones(2, 2)}, 1: None},
        "tuple": (0.9, 0.999),
        "text": "a",
        "empty": torch.zeros(0, 3),
        "$odd": 1,
    }
    checkpoints.write_state(tmp_path / "state", state)
    back = checkpoints.read_state(tmp_path / "state")
    assert back.keys() == state.keys()
    assert all(torch.equal(one, other) for one, other in zip(back["tensors"], state["tensors"], strict=True))
    assert torch.equal(back["pairs"][0]["exp_avg"], torch.ones(2, 2))
    assert back["pairs"][1] is None
    assert back["tuple"] == (0.9, 0.999)
    assert back["empty"].shape == (0, 3)
    with pytest.raises(TypeError, match="a state must be made of tensors"):
        checkpoints.write_state(tmp_path / "bad", {"function": print})


def test_names_that_meet_on_disk_are_told_apart(tmp_path):
    """Keys may hold what joins them, or be a number and the same number as text."""
    state = {"a/b": torch.tensor(0), "a": {"b": torch.tensor(1)}, 1: torch.tensor(2), "1": torch.tensor(3)}
    checkpoints.write_state(tmp_path / "state", state)
    back = checkpoints.read_state(tmp_path / "state")
    assert [back["a/b"], back["a"]["b"], back[1], back["1"]] == [0, 1, 2, 3]


def test_how_a_device_steps_is_not_taken_from_a_checkpoint_of_another():
    """A run begun on a CPU goes on on a GPU, where its step is captured: only that is asked here."""
    weight = torch.nn.Parameter(torch.ones(2))
    begun, goes_on = (torch.optim.Adam([weight], lr=0.5) for _ in range(2))
    weight.grad = torch.ones(2)
    begun.step()
    make_capturable(goes_on, torch.device("cpu"))
    checkpoints.load_optimizer(goes_on, begun.state_dict())
    (group,) = goes_on.param_groups
    assert group["fused"]
    assert group["capturable"]
    assert group["lr"] == torch.tensor(0.5)
    assert torch.equal(goes_on.state[weight]["exp_avg"], begun.state[weight]["exp_avg"])


def test_random_states_are_put_back():
    import random

    import numpy as np

    kept = checkpoints.random_states()
    first = (random.random(), np.random.rand(), torch.rand(1).item())  # noqa: NPY002
    checkpoints.restore_random_states(kept)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first  # noqa: NPY002


def test_an_epoch_of_grouped_batches_goes_on_after_whole_groups():
    """A loader without a position is replayed: two batches for each step that was taken."""
    batches = DataLoader(TensorDataset(torch.arange(20.0).unsqueeze(1), torch.arange(20)), batch_size=2, shuffle=True)
    feed = Feed(batches, torch.device("cpu"), accumulate=2)
    labels = [[batch[1].tolist() for batch in group] for group in feed.epoch(0)]
    assert [len(group) for group in labels] == [2] * 5
    rest = [[batch[1].tolist() for batch in group] for group in feed.epoch(0, done=3)]
    assert rest == labels[3:]


def test_a_loaders_own_generator_goes_on_between_epochs():
    def feed(seed):
        data = TensorDataset(torch.arange(20.0).unsqueeze(1), torch.arange(20))
        own = torch.Generator().manual_seed(seed)
        return Feed(DataLoader(data, batch_size=4, shuffle=True, generator=own), torch.device("cpu"))

    def labels(feed, epoch):
        return [batch[1].tolist() for group in feed.epoch(epoch) for batch in group]

    whole, resumed = feed(0), feed(9)
    labels(whole, 0)
    resumed.load_state_dict(whole.state_dict(), within_epoch=False)
    assert labels(resumed, 1) == labels(whole, 1)


def test_a_checkpoint_takes_the_place_of_the_one_a_step_before_it(tmp_path):
    kept = checkpoints.Checkpoints(tmp_path)
    for step in (1, 2, 3):
        kept.save(step, {"weight": torch.ones(2)}, {"step": step}, {})
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["step-00000003"]


def test_killed_before_the_old_one_went_the_newest_checkpoint_counts(tmp_path):
    kept = checkpoints.Checkpoints(tmp_path)
    newest = kept.save(10, {"weight": torch.ones(2)}, {}, {})
    for step in (2, 9):
        shutil.copytree(newest, newest.with_name(f"step-{step:08d}"))
    assert kept.latest() == newest
