"""Run by `test_processes` under torchrun: one epoch of the same training, in as many processes as there are.

torchrun --nproc_per_node=2 two_processes.py FOLDER CASE
"""

import sys
from pathlib import Path

import torch
from torch import nn

from hardsight import training
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.distributed import join_processes, rank_and_count, world_size
from hardsight.dynamics import Recorder
from hardsight.losses import D2L, AMCLoss, GradientRescaling


def train(folder: Path, case: str) -> None:
    join_processes()
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (61, 1, 6, 6), generator=generator, dtype=torch.uint8)
    clean = torch.randint(3, (61,), generator=generator)
    labels = torch.where(torch.rand(61, generator=generator) < 0.2, (clean + 1) % 3, clean)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    losses = {
        "plain": lambda: None,
        "accumulated": lambda: None,
        "ignored": lambda: None,
        "rescaling": lambda: GradientRescaling(beta=4.0),
        "amc": lambda: training.Objective(None, AMCLoss(odd="drop_last")),
        "d2l": lambda: D2L(),
        "unshared": lambda: None,
    }
    if case == "unshared":
        # Wrong on purpose: each process normalises by its own slice of the batch.
        training.network.share_batch_statistics = lambda network: None
        training.loop.check_buffers = lambda model: None
    given = labels.clone()
    if case == "ignored":
        # More of them in one slice of a batch than in the other.
        given[torch.rand(61, generator=generator) < 0.4] = -100
    shards = {"rank": rank_and_count()[0], "world_size": world_size()}
    # 61 samples: the last batch of 13 has 6 in one process and 7 in the other.
    plain = DeviceLoader(images, labels, batch_size=7, shuffle=False)
    fitted = training.fit(
        model,
        DeviceLoader(images, given, batch_size=16, seed=2, augmentation=Augmentation(shift=1), **shards),
        losses[case](),
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        epochs=2,
        folder=folder,
        test=plain,
        samples=training.Samples(plain, clean_labels=clean),
        recorder=None if case == "ignored" else Recorder(61),
        progress=False,
        steps=training.Steps(accumulate=2 if case == "accumulated" else 1, average_decay=0.9, checkpoint_every=3),
    )
    for given_back in (model, fitted.evaluated):
        assert type(given_back[1]) is nn.BatchNorm2d


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[2].split(","):
        train(Path(sys.argv[1]) / case, case)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
