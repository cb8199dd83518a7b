"""What each loss costs against F.cross_entropy, all in one run: forward and backward, median and percentiles.

    python benchmarks/losses.py            measure, and print the table; --save records it in results/losses.json
    python benchmarks/losses.py --docs     write the table of docs/losses.md from the registry and that file

Losses on logits are compared with F.cross_entropy on the same logits; losses on features with F.cross_entropy on a
linear layer's output, the step that they replace or join. The order is shuffled in every round, so that whatever else
the machine does falls on all alike.
"""

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import processor_name
from torch import Tensor
from torch.nn import functional

from hardsight.losses.registry import LOSSES, LossEntry, Sizes
from hardsight.records import write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "losses.json"
DOCS = ROOT / "docs" / "losses.md"
BEGIN, END = "<!-- table: begin (benchmarks/losses.py --docs) -->", "<!-- table: end -->"


def steps(batch: int, sizes: Sizes, device: str) -> dict[str, Callable[[], None]]:
    """One forward and backward pass of every loss and of the two yardsticks, by name."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, sizes.classes, generator=generator).to(device).requires_grad_()
    features = torch.randn(batch, sizes.dim, generator=generator).to(device).requires_grad_()
    weight = torch.randn(sizes.classes, sizes.dim, generator=generator) / sizes.dim**0.5
    weight = weight.to(device).requires_grad_()
    labels = torch.randint(sizes.classes, (batch,), generator=generator).to(device)
    ids = torch.arange(batch, device=device)

    def run(value: Tensor) -> None:
        value.backward()
        for leaf in (logits, features, weight):
            leaf.grad = None

    def of(entry: LossEntry) -> Callable[[], None]:
        module = entry.make(sizes).to(device)
        first = logits if entry.takes == "logits" else features
        names = {"ids": ids} if entry.needs_ids else {}

        def step() -> None:
            run(module(first, labels, **names))
            module.zero_grad()

        return step

    result = {name: of(entry) for name, entry in LOSSES.items()}
    result["F.cross_entropy"] = lambda: run(functional.cross_entropy(logits, labels))
    result["F.linear + F.cross_entropy"] = lambda: run(
        functional.cross_entropy(functional.linear(features, weight), labels)
    )
    return result


def measure(rounds: int, batch: int, sizes: Sizes, device: str) -> dict[str, dict[str, float]]:
    """Microseconds of each step: median, 20th and 80th percentile over the rounds."""
    passes = steps(batch, sizes, device)
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    times: dict[str, list[float]] = {name: [] for name in passes}
    order = list(passes)
    shuffle = random.Random(0)
    for round_number in range(rounds + 3):
        shuffle.shuffle(order)
        for name in order:
            wait()
            start = time.perf_counter()
            passes[name]()
            wait()
            if round_number >= 3:  # the first rounds warm up
                times[name].append(1e6 * (time.perf_counter() - start))
    return {name: summary(values) for name, values in times.items()}


def summary(values: list[float]) -> dict[str, float]:
    fifths = statistics.quantiles(values, n=5, method="inclusive")
    return {"median": statistics.median(values), "p20": fifths[0], "p80": fifths[3]}


def table(results: dict[str, Any]) -> str:
    """The docs' table: what the registry says of each loss, and its measured cost."""
    lines = ["| loss | formula | source | range | soft targets | cost |", "|---|---|---|---|---|---|"]
    times = results["microseconds"]
    for name, entry in LOSSES.items():
        yardstick = "F.cross_entropy" if entry.takes == "logits" else "F.linear + F.cross_entropy"
        base = times[yardstick]["median"]
        # A loss that was added since has no cost until somebody measures with --save.
        ratios = {key: value / base for key, value in times.get(name, {}).items()}
        cost = "×{median:.1f} ({p20:.1f} to {p80:.1f})".format(**ratios) if ratios else "not measured"
        formula = entry.formula.replace("|", "\\|")
        soft = "yes" if entry.soft_targets else "no"
        module = type(entry.make(Sizes(2, 2, 2))).__name__
        lines.append(f"| `{module}` ({name}) | {formula} | {entry.source} | {span(entry)} | {soft} | {cost} |")
    return "\n".join(lines)


def span(entry: LossEntry) -> str:
    low = "(−∞" if math.isinf(entry.low) else f"[{entry.low:g}"
    return f"{low}, ∞)" if math.isinf(entry.high) else f"{low}, {entry.high:.4g}]"


def section(results: dict[str, Any]) -> str:
    """Everything between the marks in the docs."""
    run = results["run"]
    note = (
        f"Cost: forward and backward, median of {run['rounds']} rounds in one run (20th to 80th percentile), "
        f"{run['batch']} samples, {run['classes']} classes, {run['dim']} features, float32, {run['device']}, "
        f"{run['threads']} thread(s), torch {run['torch']}. Losses on logits: times that of `F.cross_entropy`; losses "
        "on features: times that of `F.linear` and `F.cross_entropy`."
    )
    return f"{BEGIN}\n{table(results)}\n\n{note}\n{END}"


def docs_with_table(text: str, results: dict[str, Any]) -> str:
    before, rest = text.split(BEGIN)
    return before + section(results) + rest.split(END)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="only write the table of docs/losses.md")
    parser.add_argument("--save", action="store_true", help="record what is measured in results/losses.json")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if not options.docs:
        sizes = Sizes(dim=512, classes=100, samples=options.batch)
        name = torch.cuda.get_device_name() if options.device.startswith("cuda") else processor_name()
        run = {
            "rounds": options.rounds,
            "batch": options.batch,
            "classes": sizes.classes,
            "dim": sizes.dim,
            "device": name,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        results = {"run": run, "microseconds": measure(options.rounds, options.batch, sizes, options.device)}
        if options.save:
            write_json(RESULTS, results)
    else:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if options.docs:
        write_text(DOCS, docs_with_table(DOCS.read_text(encoding="utf-8"), results))
    else:
        print(table(results))


if __name__ == "__main__":
    main()
