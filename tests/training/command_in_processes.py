"""Run by `test_processes` under torchrun: `hardsight train`, which may fail in one process; prints how it ended.

torchrun --nproc_per_node=2 command_in_processes.py FAILURE RANK train CONFIG ...
"""

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import hardsight.cli
from hardsight.dynamics.history import History
from hardsight.training import checkpoints, configured, record


def full(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_at(place: str) -> None:
    """Let the disk be full where `place` is written."""
    if place == "state":
        checkpoints.write_state = full
    elif place == "weights":
        checkpoints.Checkpoints.save_weights = full
    elif place == "history":
        History.write = full
    elif place == "claim":
        configured.claim = lambda path: checkpoints.contextlib.nullcontext(False)
    else:
        setattr(record.RunRecord, place, full)


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, rank = sys.argv.pop(1), sys.argv.pop(1)
    if rank == os.environ["RANK"]:
        fail_at(place)
    code = 0
    try:
        hardsight.cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    threads = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    print(json.dumps({"code": code, "gloo": [name for name in threads if "gloo" in name]}), flush=True)
    # torchrun must not end the other process because this one failed: the test is that it ends by itself.
    os._exit(0)
