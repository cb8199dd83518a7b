"""Run by `test_resume`: works in child processes, kills them with SIGKILL, resumes until one ends by itself.

    python kill_and_resume.py FOLDER SEED KILLS

Leaves, for each kind of work, `KIND/uninterrupted` and `KIND/killed-*`: killed `KILLS` times in all at operations on
files, before or after they are done: between opening, writing, syncing, linking, renaming and removing; trainings as
often after random times. Prints the number of kills.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hardsight import training
from hardsight.cleaning import audit
from hardsight.cleaning.sources import output_of
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.interface import ArrayDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.domains import SelfTraining
from hardsight.dynamics import Recorder

OPERATIONS = ("open", "fsync", "unlink", "rmdir", "rename", "replace", "link", "mkdir")


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, nn.Module]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (60, 1, 6, 6), generator=generator, dtype=torch.uint8)
    clean = torch.randint(3, (60,), generator=generator)
    labels = torch.where(torch.rand(60, generator=generator) < 0.2, (clean + 1) % 3, clean)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 3)
    )
    return images, labels, clean, model


def train(folder: Path) -> None:
    images, labels, clean, model = problem()
    plain = DeviceLoader(images, labels, batch_size=30, shuffle=False)
    training.fit(
        model,
        DeviceLoader(
            images, labels, batch_size=12, seed=2, augmentation=Augmentation(shift=1, flip=True, noise_std=0.1)
        ),
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        plan=training.Plan(learning_rate=training.schedules.cosine()),
        epochs=3,
        folder=folder,
        test=plain,
        samples=training.Samples(plain, clean_labels=clean, fit_every=1),
        recorder=Recorder(60, history=folder / "dynamics"),
        progress=False,
        steps=training.Steps(average_decay=0.9, checkpoint_every=2),
    )


def adapt(folder: Path) -> None:
    images, labels, _, model = problem()
    source = ArrayDataset(images=images, labels=labels, class_names=("a", "b", "c"), name="source", split="all")
    target = ArrayDataset(images=255 - images, labels=labels, class_names=("a", "b", "c"), name="target", split="all")
    plan = SelfTraining("avh", rounds=3, source_epochs=1, batch_size=30)
    plan.fit(model, source, target, folder=folder)


def sweep(folder: Path) -> None:
    settings = {"epochs": 2, "model": "digits_cnn", "data": {"name": "digits", "limit": 64, "batch_size": 32}}
    training.sweep(settings, folder, training.grid(seed=[0, 1]), progress=False)


def judge(folder: Path) -> None:
    train(folder)
    audit(folder).save(output_of(folder), page=False)


WORK: dict[str, Callable[[Path], None]] = {"training": train, "adaptation": adapt, "sweep": sweep, "audit": judge}


def watch(operation: int | None) -> Callable[[], int]:
    """Let this process kill itself at that operation on a file; returns what counts them."""
    count = 0

    def deadly(function):
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

    for owner, names in ((os, OPERATIONS), (Path, ("write_bytes", "write_text"))):
        for name in names:
            setattr(owner, name, deadly(getattr(owner, name)))
    return lambda: count


def child(work: Callable[[Path], None], folder: Path, operation: int | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            if operation is not None:
                watch(operation)
            work(folder)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def operations_of(work: Callable[[Path], None], folder: Path) -> int:
    """How many operations on files some work needs; done in a process of its own."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            count = watch(None)
            work(folder)
            os.write(writer, str(count()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        operations = int(answer.read())
    os.wait()
    return operations


def kill_and_resume(work: Callable[[Path], None], folder: Path, kills: int, operations: int | None) -> int:
    """Kill and resume one run after another until there were enough kills; a run ends when nobody killed it in time."""
    done = runs = 0
    while done < kills:
        runs += 1
        run, killed = folder / f"killed-{'files' if operations else 'clock'}-{runs}", True
        while killed:
            # The last kill done, or one time in two, the run may end in peace.
            peaceful = done >= kills or (run.exists() and random.random() < 0.5)
            # One after another from the first operation to the last: every part of the work is met.
            at = None if operations is None else 1 + (operations * done + random.randrange(operations)) // kills
            pid = child(work, run, None if peaceful else at)
            if operations is None and not peaceful:
                time.sleep(random.uniform(0.0, 0.2))
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            killed = os.WIFSIGNALED(status)
            done += killed
        assert status == 0, f"a child ended with status {status}"
    return done


def main() -> None:
    folder, kills = Path(sys.argv[1]), int(sys.argv[3])
    random.seed(int(sys.argv[2]))
    torch.set_num_threads(1)
    done = 0
    for name, work in WORK.items():
        # Also warms up what torch imports on first use, which would otherwise be most of a child's life.
        work(folder / name / "uninterrupted")
        operations = operations_of(work, folder / name / "counted")
        done += kill_and_resume(work, folder / name, kills, operations)
        if name == "training":
            done += kill_and_resume(work, folder / name, kills, None)
    print(done)


if __name__ == "__main__":
    main()
