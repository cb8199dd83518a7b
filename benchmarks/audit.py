"""`hs.audit` of probabilities beside cleanlab: seconds and peak memory, each in a process of its own, taking turns.

    python benchmarks/audit.py                          # 1,000,000 x 10 and 200,000 x 1,000
    python benchmarks/audit.py --sizes 50000x10 --turns 5
    python benchmarks/audit.py --save

Probabilities are float32 in a file; reading them is not timed. `hardsight` is the whole audit (ranking, count, expected
classes, reasons, kinds, findings of classes), `cleanlab` its `find_label_issues`, ranked by self-confidence, and
`datalab` its `Datalab` with the labels alone; where cleanlab is not installed, only the first.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import about, save

METHODS = ("hardsight", "cleanlab", "datalab")


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="*", default=["1000000x10", "200000x1000"], metavar="SAMPLESxCLASSES")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.one:
        print(json.dumps(measured(options.one[0], Path(options.one[1]))))
        return
    there = importlib.util.find_spec("cleanlab") is not None
    versions = {"cleanlab": importlib.metadata.version("cleanlab")} if there else {}
    record: dict[str, Any] = about("audit", torch.device("cpu"), **versions) | {"sizes": []}
    for size in options.sizes:
        samples, classes = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(Path(folder), samples, classes)
            turns: dict[str, list[dict[str, float]]] = {name: [] for name in (METHODS if there else METHODS[:1])}
            for _ in range(options.turns):
                for name, found in turns.items():
                    found.append(in_a_process(name, folder, options.threads))
        summary = {name: in_short(found) for name, found in turns.items()}
        record["sizes"].append({"samples": samples, "classes": classes, "turns": options.turns, **summary})
        print(json.dumps(record["sizes"][-1], indent=2), flush=True)
    if options.save:
        print(save(record, torch.device("cpu")))


def write_inputs(folder: Path, samples: int, classes: int) -> None:
    """Probabilities of models that are right for nine of ten samples, and labels of which a tenth is wrong."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, classes, samples)
    labels = np.where(generator.random(samples) < 0.1, generator.integers(0, classes, samples), truth)
    np.save(folder / "labels.npy", labels)
    shape = (samples, classes)
    stored = np.lib.format.open_memmap(folder / "probabilities.npy", "w+", np.float32, shape)
    for start in range(0, samples, 2**14):
        rows = slice(start, min(start + 2**14, samples))
        logits = generator.standard_normal((rows.stop - start, classes), np.float32)
        meant = np.where(generator.random(len(logits)) < 0.9, truth[rows], generator.integers(0, classes, len(logits)))
        logits[np.arange(len(logits)), meant] += 4 + np.log(classes)
        raised = np.exp(logits - logits.max(1, keepdims=True))
        stored[rows] = raised / raised.sum(1, keepdims=True)
    stored.flush()


def in_a_process(name: str, folder: str, threads: int) -> dict[str, float]:
    """One measurement; nothing that another method has left in memory counts."""
    command = [sys.executable, __file__, "--one", name, folder, "--threads", str(threads)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def measured(name: str, folder: Path) -> dict[str, float]:
    """Wall clock and processor seconds, and what memory grew by beyond imports and inputs."""
    labels, probabilities = np.load(folder / "labels.npy"), np.load(folder / "probabilities.npy")
    if name == "hardsight":
        import hardsight as hs

        work = hs.audit
    else:
        import cleanlab
        from cleanlab.filter import find_label_issues
    before, began, busy = peak_mib(), time.perf_counter(), time.process_time()
    if name == "hardsight":
        count = work(labels=labels, probabilities=probabilities).issues.estimated
    elif name == "cleanlab":
        ranked = find_label_issues(labels, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
        count = len(ranked)
    else:
        lab = cleanlab.Datalab({"label": labels}, label_name="label", verbosity=0)
        lab.find_issues(pred_probs=probabilities, issue_types={"label": {}})
        count = int(lab.get_issues("label")["is_label_issue"].sum())
    seconds = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - busy}
    return {**seconds, "peak_mib": peak_mib(), "grown_mib": peak_mib() - before, "count": count}


def peak_mib() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_short(turns: list[dict[str, float]]) -> dict[str, Any]:
    """Of each number the median and the least and the largest."""
    found = {name: [one[name] for one in turns] for name in turns[0]}
    return {name: {"median": statistics.median(one), "least": min(one), "largest": max(one)}
            for name, one in found.items()}  # fmt: skip


if __name__ == "__main__":
    main()
