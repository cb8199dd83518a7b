"""Run by `test_processes` under torchrun: trainings that fail in one process each, then one command that does not.

torchrun --nproc_per_node=2 failing_processes.py FOLDER PLACE:RANK,... train CONFIG ...

Each process prints, as its last line, what each training raised in it, and what was left of it after the command.
"""

import contextlib
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import hardsight.cli
from hardsight import claims, training
from hardsight.dynamics.history import History
from hardsight.training import checkpoints, from_config, record


def full(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def meet(*arguments: Any) -> dict[str, float]:
    """A hook in which the processes meet, as one that evaluates with all of them does."""
    torch.distributed.barrier()
    return {}


def with_hooks(*arguments: Any, **options: Any) -> training.Loop:
    return loop_of(*arguments, **options, hooks=training.Hooks(meet, meet))


loop_of = from_config.loop_of


def in_use(path: Path) -> contextlib.AbstractContextManager[bool]:
    return contextlib.nullcontext(False)


# Where a run writes; each is replaced in one process.
PLACES = {
    "claim": (claims, "claim", in_use),
    "begin": (record.RunRecord, "begin", full),
    "state": (checkpoints, "write_state", full),
    "history": (History, "write", full),
    "weights": (checkpoints.Checkpoints, "save_weights", full),
    "epochs": (record.RunRecord, "write_epochs", full),
    "finish": (record.RunRecord, "finish", full),
}


def fail(folder: Path, place: str, rank: str) -> str | None:
    """What a training whose disk is full at `place`, in the process `rank`, raises in this process."""
    config = training.read_settings(training.TrainingConfig, sys.argv[2], [f"folder={folder}"])
    broken = mock.patch.object(*PLACES[place]) if rank == os.environ["RANK"] else contextlib.nullcontext()
    hooked = mock.patch.object(from_config, "loop_of", with_hooks)
    try:
        with broken, hooked:
            training.train(config, progress=False)
    except (OSError, ValueError) as reason:
        return f"{type(reason).__name__}: {reason}"
    return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, cases = Path(sys.argv.pop(1)), sys.argv.pop(1).split(",")
    raised = {case: fail(folder / case, *case.split(":")) for case in cases}
    with contextlib.suppress(SystemExit):
        hardsight.cli.main()
    threads = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    print(json.dumps({"raised": raised, "gloo": [name for name in threads if "gloo" in name]}))
