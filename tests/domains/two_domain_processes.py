"""Run by `test_self_training_processes` under torchrun: the same self-training, in as many processes as there are.

torchrun --nproc_per_node=2 two_domain_processes.py FOLDER
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from hardsight.datasets.interface import ArrayDataset
from hardsight.distributed import gather_samples, join_processes, rank_and_count
from hardsight.domains.selection import (
    SELECTORS,
    Confidences,
    Evidence,
    confidences,
    label_samples,
    select,
    thresholds_of,
)
from hardsight.domains.self_training import SelfTraining


def domain(seed: int, count: int, shift: float) -> ArrayDataset:
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(3, (count,), generator=generator)
    images = patterns[labels] * (1 - shift) + shift / 2 + 0.3 * torch.rand(count, 1, 6, 6, generator=generator)
    pixels = (images.clamp(0, 1) * 255).to(torch.uint8)
    return ArrayDataset(images=pixels, labels=labels, class_names=("a", "b", "c"), name=f"d{seed}", split="all")


def adapt(folder: Path) -> None:
    join_processes()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    plan = SelfTraining("avh", rounds=2, source_epochs=1, batch_size=15, steps_per_epoch=4)
    done = plan.fit(model, domain(1, 61, 0.0), domain(2, 47, 0.4), folder=folder)
    assert done.selection is not None
    # Selection alone, each process with its own samples: thresholds of all of them, labels of the own ones.
    generator = torch.Generator().manual_seed(3)
    evidence = Evidence(
        torch.randn(101, 4, generator=generator).softmax(1), torch.rand(101, 4, generator=generator) / 4
    )
    rank, world = rank_and_count()
    assert evidence.visual is not None
    own = Evidence(evidence.softmax[rank::world], evidence.visual[rank::world])
    for name, selector in SELECTORS.items():
        seen = Confidences(*(gather_samples(column) for column in confidences(selector, own)))
        mine = label_samples(selector, own, thresholds_of(selector, seen, 4, 0.3))
        assert torch.equal(mine.labels, select(name, evidence, 0.3).labels[rank::world]), name
    if world > 1:
        # Wrong on purpose: what each would select alone is not the common selection.
        assert not torch.equal(select("cbst", own, 0.3).labels, select("cbst", evidence, 0.3).labels[rank::world])
    if rank == 0:
        (folder / "selection.json").write_text(json.dumps(done.selection.labels.tolist()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    adapt(Path(sys.argv[1]))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        # A thread of torch's may abort a process that has done its work, while the interpreter is taken down.
        sys.stdout.flush()
        os._exit(0)
