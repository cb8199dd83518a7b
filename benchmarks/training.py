"""Images a second of whole trainings: loader, augmentation, loss, metrics, and every sample recorded.

    python benchmarks/training.py [--models resnet20,cnn13,resnet56] [--together resnet56:8] [--how streams,stacked]
        [--samples 51200] [--save]

For each network, in one run: `plain` is the captured step alone (compiled, bf16, channels-last, one fixed batch),
`whole` the training as `fit` runs it, `uncaptured` the same without capture. `--together` trains K cells at once.
CIFAR-sized random images; batch 128. On a machine without a GPU only `uncaptured` is measured, on fewer samples.
"""

import argparse
import time

import torch
from hardsight_studies.engine.stacked import run_stacked
from hardsight_studies.engine.together import run_together
from machine import about, save

from hardsight import models, training
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.training.feed import CapturedStep

BATCH = 128


def make_loop(
    name: str, samples: int, epochs: int, *, seed: int = 0, capture: bool = True, images=None
) -> training.Loop:
    """A training as `hardsight train` would set it up for CIFAR-10."""
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    torch.manual_seed(seed)
    model = models.create(name, num_classes=10).to(device)
    if on_gpu:
        model.to(memory_format=torch.channels_last)
    loader = DeviceLoader(
        random_images(samples) if images is None else images,
        torch.randint(10, (samples,)),
        batch_size=BATCH,
        device=device,
        seed=seed,
        augmentation=Augmentation(shift=4, flip=True),
        mean=[0.49, 0.48, 0.45],
        std=[0.25, 0.24, 0.26],
        drop_last=True,
        channels_last=on_gpu,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return training.Loop(
        model,
        loader,
        None,
        optimizer,
        epochs=epochs,
        recorder=Recorder(samples, 10),
        progress=False,
        steps=training.Steps(capture=capture),
    )


def random_images(samples: int) -> torch.Tensor:
    return torch.randint(256, (samples, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def rate(rows: list[dict], samples: int) -> float:
    """Images a second of the fastest epoch but the first, which holds compilation."""
    used = samples // BATCH * BATCH
    return used / min(row["seconds"] for row in (rows[1:] or rows))


def host_microseconds(loop: training.Loop, replays: int = 50) -> float:
    """What one replay of the whole step costs the host, while the device still works on earlier ones."""
    graph = loop.take_step.graph
    loop.take_step.source.position.zero_()  # back to the first batch of the epoch
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(replays):
        graph.replay()
    host = time.perf_counter() - began
    torch.cuda.synchronize()
    return 1e6 * host / replays


def plain_rate(loop: training.Loop, replays: int = 300) -> float:
    """The same compiled network, forward, cross-entropy, backward and SGD on one fixed batch, as a graph."""
    captured = loop.take_step
    assert isinstance(captured, CapturedStep)
    step, network = loop.step, captured.fast
    captured.source.position.zero_()
    images, labels, ids = captured.source.make()
    optimizer = step.optimizer

    def one() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            seen = network(images, labels, ids)
        seen.losses.followed.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    return replays * BATCH / (time.perf_counter() - began)


def measure(name: str, samples: int, epochs: int) -> dict:
    began = time.perf_counter()
    row: dict = {"network": name, "batch": BATCH}
    if torch.cuda.is_available():
        loop = make_loop(name, samples, epochs)
        row["whole"] = round(rate(loop.run().epochs, samples))
        row["captured"] = loop.take_step.graph is not None
        row["host us a replay"] = round(host_microseconds(loop))
        row["plain"] = round(plain_rate(loop))
        row["whole over plain"] = round(row["whole"] / row["plain"], 3)
        samples, epochs = 12_800, 2
    uncaptured = make_loop(name, samples, epochs, capture=False).run()
    row["uncaptured"] = round(rate(uncaptured.epochs, samples))
    row["seconds of this row"] = round(time.perf_counter() - began, 1)
    return row


def measure_together(name: str, cells: int, samples: int, epochs: int, *, stacked: bool) -> dict:
    """Images a second of all cells together, and over one alone in the same run."""
    began = time.perf_counter()
    images = random_images(samples).to("cuda" if torch.cuda.is_available() else "cpu")
    alone = rate(make_loop(name, samples, epochs, images=images).run().epochs, samples)
    loops = [make_loop(name, samples, epochs, seed=seed, images=images) for seed in range(cells)]
    fitted = run_stacked(loops) if stacked else run_together(loops)
    used = samples // BATCH * BATCH
    seconds = [sum(row["seconds"] for row in one.epochs[1:]) / max(1, epochs - 1) for one in fitted]
    together = cells * used / max(seconds)
    return {
        "network": name,
        "cells": cells,
        "how": "stacked weights" if stacked else "graphs on streams",
        "alone": round(alone),
        "together": round(together),
        "speed-up": round(together / alone, 2),
        "seconds of this row": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--models", default="resnet20,cnn13,resnet56" if on_gpu else "resnet20")
    parser.add_argument("--together", default="resnet56:8" if on_gpu else "")
    parser.add_argument("--how", default="streams,stacked", help="ways of training together")
    parser.add_argument("--samples", type=int, default=51_200 if on_gpu else 1_280)
    parser.add_argument("--epochs", type=int, default=4 if on_gpu else 2)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/training-DEVICE.json")
    options = parser.parse_args()
    device = torch.device("cuda" if on_gpu else "cpu")
    record = about("training", device)
    print(f"{record['hardware']['device']}, torch {torch.__version__}, batch {BATCH}", flush=True)
    rows = []
    for name in filter(None, options.models.split(",")):
        rows.append(measure(name, options.samples, options.epochs))
        print(rows[-1], flush=True)
    for pair in filter(None, options.together.split(",")):
        name, cells = pair.split(":")
        for stacked in (how == "stacked" for how in options.how.split(",")):
            rows.append(measure_together(name, int(cells), min(options.samples, 12_800), 3, stacked=stacked))
            print(rows[-1], flush=True)
    if options.save:
        print(save({**record, "rows": rows}, device))


if __name__ == "__main__":
    main()
