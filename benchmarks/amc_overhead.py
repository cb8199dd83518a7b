"""What AMC-Loss costs a training: seconds an epoch beside cross-entropy alone, all of them in turn in one run.

    python benchmarks/amc_overhead.py [--model cnn13] [--samples 51200] [--epochs 8] [--save]

Each training takes one epoch, then the next training does, round after round; the first round compiles and is left
out. CIFAR-sized random images, batch 128, Adam, the weight of the authors' script. The paper says 1 to 2 seconds an
epoch; the aim is at most 2 % on a GPU. Without a GPU: a small network, few images.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from machine import about, save, wait

from hardsight import models, training
from hardsight.datasets.loader import DeviceLoader
from hardsight.losses import AMCLoss, ContrastiveLoss
from hardsight.training import Objective

BATCH = 128
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOSSES: dict[str, Callable[[], torch.nn.Module] | None] = {
    "cross-entropy": None,
    "euclidean": ContrastiveLoss,
    "amc": AMCLoss,
    "amc, all pairs": lambda: AMCLoss(pairs="all"),
}


def make_session(
    model_name: str, make_loss: Callable[[], torch.nn.Module] | None, samples: int, epochs: int
) -> training.Loop:
    """A training as `hardsight train` would set it up, without tests between the epochs."""
    torch.manual_seed(0)
    model = models.create(model_name, num_classes=10, in_channels=3)
    images = torch.randint(256, (samples, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(10, (samples,))
    loader = DeviceLoader(
        images, labels, batch_size=BATCH, device=DEVICE, mean=[0.5] * 3, std=[0.25] * 3,
        drop_last=True, channels_last=DEVICE.type == "cuda",
    )  # fmt: skip
    objective = Objective(None, None if make_loss is None else make_loss(), feature_weight=10.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    return training.Loop(model, loader, objective, optimizer, epochs=epochs, progress=False)


def epoch_seconds(steps: Iterator[None], count: int) -> float:
    """Seconds of that many steps, the device's work included; every such stretch closes one epoch."""
    began = time.perf_counter()
    for _ in range(count):
        next(steps)
    wait(DEVICE)
    return time.perf_counter() - began


def measure(model_name: str, samples: int, epochs: int) -> dict:
    """Seconds an epoch of every loss, and its ratio to cross-entropy of the same round."""
    per_epoch = samples // BATCH
    # One epoch more than is measured: the last one also writes the end of a training.
    running = {name: make_session(model_name, make, samples, epochs + 2).stepwise() for name, make in LOSSES.items()}
    rounds = [{name: epoch_seconds(steps, per_epoch) for name, steps in running.items()} for _ in range(epochs + 1)]
    for steps in running.values():
        steps.close()
    found = {}
    for name in LOSSES:
        seconds = [one[name] for one in rounds[1:]]
        ratios = [one[name] / one["cross-entropy"] for one in rounds[1:]]
        found[name] = {
            "seconds": round(statistics.median(seconds), 4),
            "ratio": round(statistics.median(ratios), 4),
            "ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
        }
    return found


def main() -> None:
    on_gpu = DEVICE.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cnn13" if on_gpu else "cnn28")
    parser.add_argument("--samples", type=int, default=51_200 if on_gpu else 1_280)
    parser.add_argument("--epochs", type=int, default=8 if on_gpu else 3)
    parser.add_argument("--save", action="store_true", help="record what is measured in results/")
    chosen = parser.parse_args()
    record = about("amc_overhead", DEVICE)
    record |= {"model": chosen.model, "samples": chosen.samples, "batch_size": BATCH}
    found = record["losses"] = measure(chosen.model, chosen.samples, chosen.epochs)
    for name, row in found.items():
        low, high = row["ratio_range"]
        extra = row["seconds"] - found["cross-entropy"]["seconds"]
        print(
            f"{name:15} {row['seconds']:8.3f} s an epoch, {100 * (row['ratio'] - 1):+6.2f} % "
            f"({100 * (low - 1):+.2f} to {100 * (high - 1):+.2f}), {extra:+.3f} s"
        )
    if chosen.save:
        print(f"written to {save(record, DEVICE).name}")


if __name__ == "__main__":
    main()
