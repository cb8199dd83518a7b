"""Run by `test_resume`: trains in child processes, kills them with SIGKILL, resumes until one ends by itself.

    python kill_and_resume.py FOLDER SEED

Leaves the runs `uninterrupted`, `clock-*` (killed after random times) and `files-*` (killed at random operations on
files, before or after they are done: between writing, syncing, renaming and removing). Prints the number of kills.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from hardsight import training
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder

KILLS = 11


def train(folder: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (60, 1, 6, 6), generator=generator, dtype=torch.uint8)
    clean = torch.randint(3, (60,), generator=generator)
    labels = torch.where(torch.rand(60, generator=generator) < 0.2, (clean + 1) % 3, clean)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 3)
    )
    plan = training.Plan(learning_rate=training.schedules.cosine())
    plain = DeviceLoader(images, labels, batch_size=30, shuffle=False)
    training.fit(
        model,
        DeviceLoader(
            images, labels, batch_size=12, seed=2, augmentation=Augmentation(shift=1, flip=True, noise_std=0.1)
        ),
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        plan=plan,
        epochs=3,
        folder=folder,
        test=plain,
        samples=plain,
        clean_labels=clean,
        recorder=Recorder(60, history=folder / "dynamics"),
        average_decay=0.9,
        fit_every=1,
        checkpoint_every=2,
        progress=False,
    )


def die_at(operation: int) -> None:
    """Let this process kill itself at that operation on a file."""
    count = 0

    def deadly(name, function):
        def wrapped(*arguments, **options):
            nonlocal count
            count += 1
            if count == operation and operation % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **options)
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    for owner, name in (
        (os, "fsync"),
        (os, "unlink"),
        (os, "rmdir"),
        (Path, "rename"),
        (Path, "replace"),
        (Path, "mkdir"),
        (Path, "write_bytes"),
        (Path, "write_text"),
    ):
        setattr(owner, name, deadly(name, getattr(owner, name)))


def child(folder: Path, operation: int | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        if operation is not None:
            die_at(operation)
        try:
            train(folder)
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def kill_and_resume(folder: Path, mode: str) -> int:
    """Kill and resume one run after another until there were enough kills; a run ends when nobody killed it in time."""
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        run, killed = folder / f"{mode}-{runs}", True
        while killed:
            # The last kill done, the run may end in peace.
            peaceful = kills >= KILLS
            pid = child(run, random.randint(1, 70) if mode == "files" and not peaceful else None)
            if mode == "clock" and not peaceful:
                time.sleep(random.uniform(0.0, 0.2))
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            killed = os.WIFSIGNALED(status)
            kills += killed
        assert status == 0, f"a child ended with status {status}"
    return kills


def main() -> None:
    folder = Path(sys.argv[1])
    random.seed(int(sys.argv[2]))
    torch.set_num_threads(1)
    # Also warms up what torch imports on first use, which would otherwise be most of a child's life.
    train(folder / "uninterrupted")
    print(kill_and_resume(folder, "clock") + kill_and_resume(folder, "files"))


if __name__ == "__main__":
    main()
