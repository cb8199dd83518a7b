"""Run by `test_self_training_processes` under torchrun: self-trainings whose disk is full in one process each.

torchrun --nproc_per_node=2 failing_domain_processes.py FOLDER PLACE:RANK,...

Each process prints, as its last line, what each self-training raised in it.
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
from torch import nn

from hardsight.datasets.interface import ArrayDataset
from hardsight.domains import looking
from hardsight.domains.self_training import SelfTraining
from hardsight.training import checkpoints, record


def full(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# Where a self-training writes; each is replaced in one process.
PLACES = {
    "begin": (record.RunRecord, "begin"),
    "rounds": (looking, "write_rounds"),
    "epochs": (record.RunRecord, "write_epochs"),
    "state": (checkpoints, "write_state"),
    "load": (checkpoints, "read_state"),
    "samples": (record.RunRecord, "write_samples"),
    "weights": (checkpoints.Checkpoints, "save_weights"),
}


def points(seed: int, count: int) -> ArrayDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    values = torch.randn(count, 3, generator=generator) + 2 * labels.unsqueeze(1)
    return ArrayDataset(images=values, labels=labels, class_names=("a", "b"), name=f"d{seed}", split="all")


def adapt(folder: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    plan = SelfTraining("cbst", rounds=1, source_epochs=0, batch_size=4, steps_per_epoch=1)
    plan.fit(model, points(1, 12), points(2, 14), folder=folder)


def fail(folder: Path, place: str, rank: str) -> str | None:
    """What a self-training whose disk is full at `place`, in the process `rank`, raises in this process."""
    if place == "load":
        adapt(folder)
    broken = mock.patch.object(*PLACES[place], full) if rank == os.environ["RANK"] else contextlib.nullcontext()
    try:
        with broken:
            adapt(folder)
    except OSError as reason:
        return str(reason)
    return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, cases = Path(sys.argv[1]), sys.argv[2].split(",")
    print(json.dumps({case: fail(folder / case, *case.split(":")) for case in cases}), flush=True)
    torch.distributed.barrier()
    # A thread of torch's may abort a process that has done its work, while the interpreter is taken down.
    os._exit(0)
