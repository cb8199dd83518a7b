"""Two gloo processes equal one with the same global batch; the record is written once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from torch import nn

from hardsight.training.checkpoints import read_state
from hardsight.training.network import own_batch_statistics, share_batch_statistics

CASES = ("plain", "accumulated", "ignored", "rescaling", "amc", "d2l")
# Last, since it breaks the script that runs it: statistics of slices must not pass for those of the batch.
WRONG = "unshared"
FAILURES = ("claim:0", "begin:0", "state:0", "state:1", "history:0", "weights:0", "epochs:0", "finish:0")
CONFIG = """
name = "digits"
epochs = 1
data = { name = "digits", batch_size = 512 }
model = "digits_cnn"
record = { checkpoint_every = 1, history = true }
"""


def test_two_processes_equal_one(tmp_path):
    script = str(Path(__file__).with_name("two_processes.py"))
    alone = [sys.executable, script]
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", script]
    for name, command in (("one", alone), ("two", together)):
        command = [*command, str(tmp_path / name), ",".join((*CASES, WRONG))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    for case in CASES:
        one, two = tmp_path / "one" / case, tmp_path / "two" / case
        for weights in ("last", "best"):
            ours, theirs = (
                safetensors.torch.load_file(run / "checkpoint" / f"{weights}.safetensors") for run in (two, one)
            )
            for key in theirs:
                torch.testing.assert_close(ours[key], theirs[key], rtol=0, atol=1e-5)
        samples = [pq.read_table(run / "samples.parquet") for run in (two, one)]
        assert samples[0]["id"].to_pylist() == list(range(61))
        for column in samples[1].column_names:
            ours, theirs = (torch.tensor(table[column].to_pylist(), dtype=torch.float64) for table in samples)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        rows = [pq.read_table(run / "epochs.parquet").drop_columns(["seconds"]).to_pylist() for run in (two, one)]
        assert len(rows[0]) == 2
        for mine, its in zip(*rows, strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-5)
        assert json.loads((two / "run.json").read_text())["status"] == "finished"
        assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in one.iterdir())
    states = [read_state(next((tmp_path / how / "d2l").glob("checkpoint/step-*")) / "shared") for how in ("two", "one")]
    # One batch of 61 features: halves of it would have other neighbours.
    torch.testing.assert_close(*(state["objective"]["loss.smallest"] for state in states), rtol=1e-4, atol=0)
    wrong, right = (
        safetensors.torch.load_file(tmp_path / how / WRONG / "checkpoint" / "last.safetensors")
        for how in ("two", "one")
    )
    assert max(float((wrong[key] - right[key]).abs().max()) for key in ("0.weight", "4.weight")) > 1e-4


@pytest.fixture(scope="module")
def ends(tmp_path_factory) -> dict[str, Any]:
    """Trainings that fail in one of two processes, one after the other; a command at last. By rank what each says."""
    folder = tmp_path_factory.mktemp("failing")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    script = str(Path(__file__).with_name("failing_processes.py"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    logs = ["--log-dir", str(folder / "logs"), "--redirects", "3"]
    arguments = [str(folder), ",".join(FAILURES), "train", str(config), "--quiet", "--set", f"folder={folder / 'run'}"]
    # Far below the half hour for which a process waits for another that does not come.
    done = subprocess.run(
        [*launch, *logs, script, *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    (errors,) = (folder / "logs").glob("*/attempt_0/0")
    said = [(errors.parent / str(rank) / "stdout.log").read_text().splitlines()[-1] for rank in (0, 1)]
    return {"folder": folder, "ranks": [json.loads(line) for line in said]}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_in_one_process_ends_the_training_in_all(ends, failure):
    place, rank = failure.split(":")
    folder, raised = ends["folder"] / failure, [one["raised"][failure] for one in ends["ranks"]]
    own, other = raised if rank == "0" else reversed(raised)
    if place == "claim":
        assert own.startswith(f"ValueError: another process is training in {folder}")
        assert other == own.replace("ValueError: ", f"ValueError: process {rank} stopped: ")
        return
    assert own == f"OSError: [Errno 28] No space left on device: '{folder}'"
    assert other == f"OSError: process {rank} stopped: [Errno 28] No space left on device"
    if place != "begin":
        details = json.loads((folder / "run.json").read_text())
        assert details["status"] == "failed"
        assert details["error"] == raised[0].removeprefix("OSError: ")
    assert not list(folder.glob("checkpoint/.*")), "what was half-written is still there"


def test_no_thread_of_the_process_group_outlives_the_command(ends):
    # One that did could abort the process while the interpreter is taken down, and torchrun would call it failed.
    assert [one["gloo"] for one in ends["ranks"]] == [[], []]
    assert json.loads((ends["folder"] / "run" / "run.json").read_text())["status"] == "finished"


def test_shared_statistics_keep_names_and_can_be_undone():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    names = list(model.state_dict())
    share_batch_statistics(model)
    assert "forward" in vars(model[1])
    assert type(model[1]) is nn.BatchNorm1d
    assert list(model.state_dict()) == names
    own_batch_statistics(model)
    assert "forward" not in vars(model[1])


SINGLE = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from hardsight.training.network import share_batch_statistics

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
model = nn.Sequential(nn.BatchNorm1d(3))
share_batch_statistics(model)
# One sample in all: the last batch of an epoch may be as small as that.
output = model(torch.ones(1 - rank, 3))
finite = bool(output.isfinite().all() and model[0].running_var.isfinite().all())
print(json.dumps({"finite": finite, "variance": model[0].running_var.tolist()}))
dist.destroy_process_group()
"""


def test_a_batch_of_one_sample_leaves_finite_statistics(in_two_processes):
    assert in_two_processes(SINGLE) == [{"finite": True, "variance": pytest.approx([0.9] * 3)}] * 2


UNREACHED = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from hardsight import losses, training

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
torch.manual_seed(0)


def ended(act):
    try:
        return str(act())
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def trained(loss, frozen=False):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[1].requires_grad_(not frozen)
    # One step: the next one would be refused by torch, in a sentence about its own options.
    batches = [(torch.randn(4 + rank, 3), torch.arange(4 + rank) % 2)]
    return training.fit(model, batches, loss, epochs=1, device="cpu", progress=False).model[0].weight.sum().isfinite()


def with_own_statistics():
    layer = nn.InstanceNorm1d(2, track_running_stats=True)
    model = nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), layer, nn.Flatten(), nn.Linear(8, 2))
    batches = [(torch.randn(4 + rank, 3), torch.arange(4 + rank) % 2)]
    return training.fit(model, batches, epochs=1, device="cpu", progress=False).model[2].running_mean.tolist()


report = {
    "head": ended(lambda: trained(losses.AVHLoss(4, 2))),
    "frozen head": ended(lambda: trained(losses.AVHLoss(4, 2), frozen=True)),
    "statistics": ended(with_own_statistics),
}
print(json.dumps(report))
dist.destroy_process_group()
"""


def test_what_several_processes_cannot_do_as_one_is_refused(in_two_processes):
    first, second = in_two_processes(UNREACHED)
    assert first == second, "running statistics too, although the batches differ"
    assert json.loads(first.pop("statistics"))
    assert first == {
        "head": (
            "ValueError: every parameter must have a part in the loss where several processes train, or be set aside "
            "by requires_grad_(False); model.1.weight has none"
        ),
        "frozen head": "tensor(True)",
    }
