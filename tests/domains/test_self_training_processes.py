"""Two gloo processes select what one selects, train to the same model up to rounding, and fail together."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch


def test_two_processes_equal_one(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("two_domain_processes.py"))
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", script]
    for name, command in (("one", [sys.executable, script]), ("two", together)):
        done = subprocess.run([*command, str(tmp_path / name)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    one, two = tmp_path / "one", tmp_path / "two"
    assert json.loads((one / "selection.json").read_text()) == json.loads((two / "selection.json").read_text())
    rows = [pq.read_table(run / "rounds.parquet").to_pylist() for run in (one, two)]
    assert len(rows[0]) == 3
    for mine, its in zip(*rows, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)
    weights = [safetensors.torch.load_file(run / "checkpoint" / "last.safetensors") for run in (one, two)]
    for key in weights[0]:
        torch.testing.assert_close(weights[1][key], weights[0][key], rtol=0, atol=1e-4)
    assert json.loads((two / "run.json").read_text())["status"] == "finished"


FAILURES = ("begin:0", "rounds:0", "epochs:0", "state:1", "load:1", "samples:0", "weights:0")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Self-trainings of two processes, one for each failure; the folder, and what each process raised."""
    folder = tmp_path_factory.mktemp("failing")
    script = str(Path(__file__).with_name("failing_domain_processes.py"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    logs = ["--log-dir", str(folder / "logs"), "--redirects", "3"]
    # Far below the half hour for which a process waits for another that does not come.
    done = subprocess.run(
        [*launch, *logs, script, str(folder), ",".join(FAILURES)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (place,) = (folder / "logs").glob("*/attempt_0")
    said = [(place / str(rank) / "stdout.log").read_text().splitlines()[-1] for rank in (0, 1)]
    return {"folder": folder, "raised": [json.loads(line) for line in said]}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_in_one_process_ends_the_self_training_in_all(failed: dict[str, Any], failure: str) -> None:
    place, rank = failure.split(":")
    folder, raised = failed["folder"] / failure, [one[failure] for one in failed["raised"]]
    own, other = raised if rank == "0" else reversed(raised)
    assert own == f"[Errno 28] No space left on device: '{folder}'"
    assert other == f"process {rank} stopped: [Errno 28] No space left on device"
    if place == "load":
        # A finished run that could not be read again has lost nothing.
        assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    elif place != "begin":
        details = json.loads((folder / "run.json").read_text())
        assert (details["status"], details["error"], details["retry"]) == ("failed", raised[0], True)
