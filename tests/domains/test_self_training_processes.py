"""Two gloo processes select what one selects, and train to the same model up to rounding."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
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
