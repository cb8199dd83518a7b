"""What recording costs: an update against the `aum` package on a CPU, and the share of a training step on a GPU.

    python benchmarks/recorder.py            # whatever this machine has; --save records it
    python benchmarks/recorder.py --cpu      # one update on 256 x 100 logits
    python benchmarks/recorder.py --gpu      # ResNet-20 at batch 128, ResNet-50 at 1,000 classes, synthetic images

Steps are kept back and measured several at once, so nothing is timed by the single update: a round is 64 updates and
the measuring of all of them, divided by 64, in CPU time of the one thread. Rounds of the competitors alternate, in
changing order. On the GPU a round is 32 training steps with and 32 without the recorder, in turn; the overhead is the
median over the pairs. The results go, with hardware and versions, to `benchmarks/results/recorder-*.json`. The `aum`
package is compared with where it is installed (`pip install aum`); it must never be a dependency.
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
from torch import nn

from hardsight import models
from hardsight.dynamics import Recorder
from hardsight.heads import observe
from hardsight.records import write_json

RESULTS = Path(__file__).parent / "results"
UPDATES = 64
# What the recorder is asked for: AVH, margin, loss and correctness of every sample of every step; and everything.
FOUR = ("avh_mean", "aum", "loss_mean", "correctness")


def main() -> None:
    """Measure, print, write where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cpu", action="store_true", help="only the update on a CPU")
    parser.add_argument("--gpu", action="store_true", help="only the training steps on a GPU")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--save", action="store_true", help="record what is measured in results/")
    options = parser.parse_args()
    both = options.cpu == options.gpu
    if options.cpu or both:
        finish("recorder-cpu.json", on_cpu(options.rounds), save=options.save)
    if options.gpu or (both and torch.cuda.is_available()):
        finish("recorder-gpu.json", on_gpu(options.rounds), save=options.save)


def finish(name: str, results: dict[str, Any], *, save: bool) -> None:
    """Print, and write with hardware and versions where asked."""
    print(json.dumps(results, indent=2))
    if save:
        write_json(RESULTS / name, {"machine": machine(), **results})


def machine() -> dict[str, Any]:
    """Where this was measured."""
    cuda = torch.cuda.is_available()
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": time.strftime("%Y-%m-%d"),
    }


def spread(values: list[float], digits: int = 3) -> dict[str, float]:
    """Median and the 20th and 80th percentiles."""
    low, *_, high = statistics.quantiles(values, n=5)
    return {"median": round(statistics.median(values), digits), "p20": round(low, digits), "p80": round(high, digits)}


def on_cpu(rounds: int, batch: int = 256, classes: int = 100, samples: int = 50_000) -> dict[str, Any]:
    """Microseconds an update, one thread, the same batches for all."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(UPDATES):
        ids = torch.randint(samples, (batch,), generator=generator)
        logits, labels = torch.randn(batch, classes, generator=generator) * 3, ids % classes
        norms = (torch.rand(batch, generator=generator) + 30, torch.rand(classes, generator=generator) + 1)
        batches.append((ids, logits, labels, *norms, torch.randn(classes, generator=generator)))
    competitors: dict[str, Callable[[], None]] = {
        "hardsight, aum alone": recording(Recorder(samples, scores=("aum",)), [one[:3] for one in batches]),
        "hardsight, all without angles": recording(Recorder(samples), [one[:3] for one in batches]),
        "hardsight, avh margin loss correctness": recording(Recorder(samples, scores=FOUR), batches),
        "hardsight, all": recording(Recorder(samples), batches),
    }
    package = aum_package(batches)
    if package is not None:
        competitors["aum package"] = package
    times: dict[str, list[float]] = {name: [] for name in competitors}
    order = list(competitors)
    for round_ in range(rounds + 2):
        # Who comes after whom changes: what one leaves in the caches is a cost of the next.
        order = order[1:] + order[:1] if round_ % 2 else order[::-1]
        for name in order:
            # The thread's own time: on a shared machine what others do counts for nobody.
            start = time.thread_time()
            competitors[name]()
            # The first two rounds warm up.
            if round_ >= 2:
                times[name].append((time.thread_time() - start) / UPDATES * 1e6)
    torch.set_num_threads(threads)
    found: dict[str, Any] = {name: spread(values, 1) for name, values in times.items()}
    if package is not None:
        theirs = found["aum package"]["median"]
        found["times faster than aum"] = {
            name: round(theirs / found[name]["median"], 1) for name in competitors if name != "aum package"
        }
    return {"microseconds an update, 256 x 100 logits, one thread": found, "rounds": rounds}


def recording(recorder: Recorder, batches: list[tuple[torch.Tensor, ...]]) -> Callable[[], None]:
    """All updates, and all of them measured."""

    def work() -> None:
        for one in batches:
            recorder.update(*one)
        recorder.flush()

    return work


def aum_package(batches: list[tuple[torch.Tensor, ...]]) -> Callable[[], None] | None:
    """The same updates by the `aum` package, where it is installed; its ids are a list, made beforehand."""
    try:
        from aum import AUMCalculator
    except ImportError:
        print("the aum package is not installed: nothing to compare with")
        return None
    calculator = AUMCalculator("unused", compressed=True)
    prepared = [(logits, labels, ids.tolist()) for ids, logits, labels, *_ in batches]

    def work() -> None:
        for logits, labels, ids in prepared:
            calculator.update(logits, labels, ids)

    return work


def on_gpu(rounds: int) -> dict[str, Any]:
    """Overhead of recording, in percent of a training step."""
    if not torch.cuda.is_available():
        raise SystemExit("a CUDA device is needed for --gpu")
    found: dict[str, Any] = {}
    small, large = ("resnet20", 32, 10), ("resnet50", 224, 1000)
    single, half = torch.float32, torch.bfloat16
    for (network, size, classes), precision, scores in (
        (small, single, FOUR),
        (small, half, FOUR),
        (small, single, None),
        (large, half, FOUR),
        (large, half, None),
    ):
        asked = "four scores" if scores else "all scores"
        key = f"{network}, batch 128, {classes} classes, {str(precision)[6:]}, {asked}"
        model = models.create(network, num_classes=classes).cuda()
        found[key] = overhead(model, 128, size, classes, precision, scores, rounds)
        print(key, found[key]["overhead, percent"], flush=True)
    return {"overhead of recording": found, "rounds": rounds}


def overhead(
    model: nn.Module,
    batch: int,
    size: int,
    classes: int,
    precision: torch.dtype,
    scores: Any,
    rounds: int,
    steps: int = 32,
) -> dict[str, Any]:
    """Rounds of training steps with and without the recorder, in turn, waiting for the GPU only between rounds."""
    model = model.train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    recorder = Recorder(1_000_000, scores=scores)
    images = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device="cuda")
    ids = torch.randint(1_000_000, (steps, batch), device="cuda")

    def train(record: bool) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        with observe(model) as seen:
            for step in range(steps):
                with torch.autocast("cuda", precision, enabled=precision != torch.float32):
                    logits = model(images)
                    loss = nn.functional.cross_entropy(logits, labels)
                if record:
                    recorder.update_seen(ids[step], labels, seen)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            if record:
                recorder.flush()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps * 1e3

    for _ in range(2):
        train(False)
        train(True)
    pairs = []
    for round_ in range(rounds):
        # Who goes first alternates: a clock that drifts favours neither.
        first = train(bool(round_ % 2))
        second = train(not round_ % 2)
        pairs.append((second, first) if round_ % 2 else (first, second))
    return {
        "milliseconds a step without": spread([without for without, _ in pairs]),
        "milliseconds a step with": spread([with_ for _, with_ in pairs]),
        "overhead, percent": spread([(with_ / without - 1) * 100 for without, with_ in pairs]),
    }


if __name__ == "__main__":
    main()
