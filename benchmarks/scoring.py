"""What `hardsight.score` costs against the matrix product alone, and how much memory it takes.

Each round times, one after the other, the product features @ weight.T in large blocks, `score` for AVH alone and for
the default scores, and the plain version that a user would write (normalise, product, arccos, softmax over blocks of
10,000 samples). Ratios are within a round, so a busy machine disturbs both sides alike; medians and 20/80 percentiles
over the rounds. Memory is the growth of the process's peak while scoring a million samples x 1,000 classes x 128
features, less the scores themselves, measured in a process of its own.

Wanted on CPU: at most 1.5 x the product where classes x dim dominates; at most 256 MiB.

    python benchmarks/scoring.py [--device cpu|cuda] [--rounds 9] [--no-memory] [--save]

What is measured is printed; --save records it in results/scoring-DEVICE.json.
"""

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

import hardsight as hs
from hardsight.records import write_json

RESULTS = Path(__file__).parent / "results"
SHAPES_ON_CPU = [(20_000, 128, 1_000), (20_000, 512, 1_000), (8_000, 2_048, 1_000), (2_000, 512, 21_841)]
SHAPES_ON_GPU = [(65_536, 2_048, 1_000), (16_384, 2_048, 21_841), (65_536, 512, 1_000), (1_000_000, 128, 1_000)]


def plain(features: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """AVH and confidence as one writes them down."""
    hardness, confidence = [], []
    directions = torch.nn.functional.normalize(weight)
    for start in range(0, len(features), 10_000):
        block, picked = features[start : start + 10_000], labels[start : start + 10_000, None]
        angles = torch.acos((torch.nn.functional.normalize(block) @ directions.T).clamp(-1, 1))
        hardness.append(angles.gather(1, picked) / angles.sum(1, keepdim=True))
        confidence.append((block @ weight.T).softmax(1).gather(1, picked))
    return torch.cat(hardness), torch.cat(confidence)


def product(features: Tensor, weight: Tensor, out: Tensor) -> None:
    """The matrix product alone, written into one block over and over."""
    for start in range(0, len(features), len(out)):
        block = features[start : start + len(out)]
        torch.mm(block, weight.T, out=out[: len(block)])


def seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(shape: tuple[int, int, int], device: torch.device, rounds: int) -> dict:
    samples, dim, classes = shape
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(samples, dim, generator=generator).to(device)
    weight = torch.randn(classes, dim, generator=generator).to(device)
    labels = torch.randint(0, classes, (samples,), generator=generator).to(device)
    out = torch.empty(min(samples, 10_000), classes, device=device)
    works = {
        "product": lambda: product(features, weight, out),
        "avh": lambda: hs.score(features, weight, labels, scores=("avh",)),
        "default scores": lambda: hs.score(features, weight, labels),
        "plain": lambda: plain(features, weight, labels),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            taken = seconds(work, device)
            if turn:
                times[name].append(taken)
    ratios = {
        name: spread([a / b for a, b in zip(taken, times["product"], strict=True)])
        for name, taken in times.items()
        if name != "product"
    }
    return {
        "samples": samples,
        "dim": dim,
        "classes": classes,
        "product seconds": spread(times["product"]),
        "ratio to the product": ratios,
    }


def spread(values: list[float]) -> dict[str, float]:
    if len(values) == 1:
        return {"p20": values[0], "median": values[0], "p80": values[0]}
    low, *_, high = statistics.quantiles(values, n=5)
    return {"p20": low, "median": statistics.median(values), "p80": high}


def peak_growth() -> float:
    """MiB by which the peak grows while scoring a million samples, the scores left out (run in a fresh process)."""
    samples, dim, classes = 1_000_000, 128, 1_000
    features = torch.randn(samples, dim)
    weight, labels = torch.randn(classes, dim), torch.randint(0, classes, (samples,))
    hs.score(features[:1000], weight, labels[:1000])  # libraries load their buffers
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scores = hs.score(features, weight, labels)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) / 1024 - sum(values.nbytes for values in scores.values()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--save", action="store_true", help="record what is measured")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(peak_growth())
        return
    device = torch.device(arguments.device)
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()}, CPU",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "shapes": [],
    }
    for shape in SHAPES_ON_GPU if device.type == "cuda" else SHAPES_ON_CPU:
        row = measure(shape, device, arguments.rounds)
        report["shapes"].append(row)
        ratios = {name: round(ratio["median"], 2) for name, ratio in row["ratio to the product"].items()}
        print(
            f"{shape}: product {row['product seconds']['median'] * 1e3:.1f} ms, times the product: {ratios}", flush=True
        )
    if device.type == "cpu" and not arguments.no_memory:
        grown = subprocess.run([sys.executable, __file__, "--peak"], capture_output=True, text=True, check=True)
        report["extra MiB for 1,000,000 x 1,000"] = float(grown.stdout)
        print(f"extra memory for 1,000,000 samples x 1,000 classes: {float(grown.stdout):.0f} MiB")
    if arguments.save:
        write_json(RESULTS / f"scoring-{device.type}.json", report)


if __name__ == "__main__":
    main()
