"""Selecting pseudo-labels: 1,000,000 samples of 12 classes (as VisDA-17 has), against a Python loop over the classes.

    python benchmarks/selection.py                  # both in one run, on two threads
    python benchmarks/selection.py --samples 100000

Ours starts from the softmax probabilities and, for AVH, the visual confidences, both in memory; times are the median of
seven selections, and processor time, which a busy machine changes less, is given beside. The loop is what a first
implementation looks like: for each class, its predicted samples' confidences as a sorted list, an element of it as the
threshold; then each sample's class by its largest ratio. It is CBST alone, is timed once, starts from Python lists
(making them is not counted), and must give the same labels. The results are printed; --save records them with hardware
and versions in `benchmarks/results/selection-cpu.json`.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import processor_name

from hardsight.domains.selection import SELECTORS, Evidence, select
from hardsight.records import write_json

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--portion", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", action="store_true", help="record what is measured")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = measure(options.samples, options.classes, options.portion, options.rounds)
    print(json.dumps(results, indent=2))
    if options.save:
        write_json(RESULTS / "selection-cpu.json", {"machine": machine(options.threads), **results})


def measure(samples: int, classes: int, portion: float, rounds: int) -> dict[str, Any]:
    """Seconds of every selector and of the loop, and how many times faster CBST's is."""
    generator = torch.Generator().manual_seed(0)
    softmax = (2 * torch.randn(samples, classes, generator=generator)).softmax(1)
    visual = torch.rand(samples, classes, generator=generator) + 0.2
    evidence = Evidence(softmax, visual / visual.sum(1, keepdim=True))
    ours = {name: repeated(lambda name=name: select(name, evidence, portion), rounds) for name in SELECTORS}
    rows = softmax.tolist()
    began, busy = time.perf_counter(), time.process_time()
    labels = loop_over_classes(rows, portion)
    theirs, theirs_busy = time.perf_counter() - began, time.process_time() - busy
    if labels != select("cbst", evidence, portion).labels.tolist():
        raise SystemExit("the loop and the selector must give the same labels; they do not")
    return {
        "samples": samples,
        "classes": classes,
        "seconds": ours,
        "Python loop over classes": {"seconds": round(theirs, 2), "processor seconds": round(theirs_busy, 2)},
        "times faster, cbst": round(theirs / ours["cbst"]["median"], 1),
        "times less processor time, cbst": round(theirs_busy / ours["cbst"]["processor"], 1),
        "rounds": rounds,
    }


def repeated(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median, fastest and slowest of several calls, after one that warms up; and processor time, of all threads."""
    times, busy = [], []
    for _ in range(rounds + 1):
        began, worked = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    kept = times[1:]
    found = {"median": statistics.median(kept), "least": min(kept), "most": max(kept)}
    return {name: round(value, 4) for name, value in (found | {"processor": statistics.median(busy[1:])}).items()}


def loop_over_classes(rows: list[list[float]], portion: float) -> list[int]:
    """CBST in plain Python: sorted lists class by class, then each sample's largest ratio."""
    classes = range(len(rows[0]))
    predicted = [row.index(max(row)) for row in rows]
    thresholds, empty = [], []
    for number in classes:
        confidences = sorted([row[number] for row, its in zip(rows, predicted, strict=True) if its == number])
        confidences.reverse()
        count = int(len(confidences) * portion + 1e-9)
        thresholds.append(confidences[count - 1] if count else 1.0)
        empty.append(not count)
    labels = []
    for row in rows:
        ratios = [value / threshold for value, threshold in zip(row, thresholds, strict=True)]
        largest = max(ratios)
        label = ratios.index(largest)
        labels.append(label if largest >= 1 and not empty[label] else -1)
    return labels


def machine(threads: int) -> dict[str, Any]:
    """Where this was measured."""
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    main()
