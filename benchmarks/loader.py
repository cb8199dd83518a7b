"""How many CIFAR images a second: the device-resident loader against `torch.utils.data.DataLoader` with PIL.

Both shuffle, pad by 4 and crop, flip, and normalise 50,000 images of 32 x 32 into float32 batches. The DataLoader
does it sample by sample with Pillow, in worker processes and in the main one; its better setting counts; likewise
ours with one thread and with one a core. On a GPU the DataLoader's batches are copied there, as training would.
Wanted: 5 times the DataLoader on 2 CPU cores, 300,000 images a second on an H200. The set is random bytes, or
CIFAR-10 in its binary layout where HARDSIGHT_DATA points to it.

    python benchmarks/loader.py [--device cpu|cuda] [--epochs 7] [--batch-size 256]
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from machine import about, save, wait
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class PillowSet(Dataset[tuple[Tensor, int, int]]):
    """One sample at a time: pad, crop, flip with Pillow, then to a normalised tensor."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = labels.tolist()
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        image = ImageOps.expand(Image.fromarray(self.images[index]), border=4, fill=0)
        left, top, flip = torch.randint(9, (3,)).tolist()
        image = image.crop((left, top, left + 32, top + 32))
        if flip % 2:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div_(255).sub_(self.mean).div_(self.std), self.labels[index], index


def images_and_labels() -> tuple[Tensor, Tensor, str]:
    """CIFAR-10's training images where they are at hand, random bytes of that shape where not."""
    folder = Path(os.environ.get("HARDSIGHT_DATA", "")) / "cifar-10-batches-bin"
    files = sorted(folder.glob("data_batch_?.bin")) if os.environ.get("HARDSIGHT_DATA") else []
    if len(files) == 5:
        records = torch.from_numpy(np.concatenate([np.fromfile(path, np.uint8) for path in files]).reshape(-1, 3073))
        return records[:, 1:].reshape(-1, 3, 32, 32).contiguous(), records[:, 0].long(), "CIFAR-10"
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50_000, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return images, torch.randint(10, (50_000,), generator=generator), "random bytes"


def rates(epoch: Callable[[], Iterable[Any]], images: int, epochs: int, device: torch.device) -> dict[str, float]:
    """Images a second over whole epochs, after one that does not count: median, 20th and 80th percentile."""
    seen = []
    for turn in range(epochs + 1):
        wait(device)
        start = time.perf_counter()
        for _ in epoch():
            pass
        wait(device)
        if turn:
            seen.append(images / (time.perf_counter() - start))
    low, *_, high = statistics.quantiles(seen, n=5)
    return {"median": statistics.median(seen), "p20": low, "p80": high, "epochs": epochs}


def measure(device: torch.device, epochs: int, batch_size: int, baseline_epochs: int) -> dict[str, Any]:
    """Rates of both loaders on one device, their ratio, and on a GPU the memory the loader takes."""
    images, labels, source = images_and_labels()
    pillow = PillowSet(images, labels)
    found: dict[str, Any] = {"data": source, "images": len(images), "batch_size": batch_size, "baseline": {}}
    cores = len(os.sched_getaffinity(0))
    for workers in (0, min(cores, 8)):
        loader = DataLoader(
            pillow,
            batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
        )

        def copied(loader: Iterable[list[Tensor]] = loader) -> Iterable[list[Tensor]]:
            return ([part.to(device, non_blocking=True) for part in batch] for batch in loader)

        found["baseline"][f"workers={workers}"] = rates(copied, len(images), baseline_epochs, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    settings: dict[str, Any] = {"device": device, "mean": MEAN, "std": STD}
    ours = DeviceLoader(images, labels, None, batch_size, augmentation=Augmentation(shift=4, flip=True), **settings)
    tried = {}
    for threads in sorted({1, cores} if device.type == "cpu" else {torch.get_num_threads()}):
        torch.set_num_threads(threads)
        tried[f"threads={threads}"] = rates(lambda: ours, len(images), epochs, device)
    found["tried"] = tried
    found["ours"] = max(tried.values(), key=lambda result: result["median"])
    if device.type == "cuda":
        found["memory"] = {
            "set_bytes": images.numel(),
            "batch_bytes": batch_size * images[0].numel() * 4,
            "peak_bytes": torch.cuda.max_memory_allocated() - before,
        }
        half = DeviceLoader(
            images, labels, None, batch_size, augmentation=Augmentation(shift=4, flip=True),
            dtype=torch.bfloat16, channels_last=True, **settings,
        )  # fmt: skip
        found["ours, bfloat16 channels_last"] = rates(lambda: half, len(images), epochs, device)
    best = max(result["median"] for result in found["baseline"].values())
    found["times_the_baseline"] = found["ours"]["median"] / best
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--baseline-epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--save", action="store_true", help="record what is measured in results/")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    record = about("loader", device, pillow=PIL.__version__)
    record |= measure(device, chosen.epochs, chosen.batch_size, chosen.baseline_epochs)
    for setting, result in record["baseline"].items():
        print(f"DataLoader + Pillow, {setting:10} {result['median']:>12,.0f} images/s")
    for setting, result in record["tried"].items():
        print(f"DeviceLoader on {device.type:4}, {setting:11} {result['median']:>12,.0f} images/s")
    print(f"{record['times_the_baseline']:.1f} times the better DataLoader")
    if chosen.save:
        print(f"written to {save(record, device).name}")


if __name__ == "__main__":
    main()
