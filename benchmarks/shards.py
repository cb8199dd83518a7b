"""What scoring shards costs beside scoring the same features in memory, how workers add up, and what Ray takes.

Parquet shards of 512 float16 features and a label each are written, without a dictionary and uncompressed: of float16
the dictionary of Parquet's default takes four times as long to decode. Each round scores, one after the other, with one
computing thread for each process, on two processors:

| part | what is scored |
|---|---|
| memory | some of the same rows in memory (`Scorer`), on one processor |
| alone | the shards by one worker that is kept on one processor, reading included |
| 1 | the shards by one worker, whose reading thread has the second processor |
| 2 | the shards by two workers |
| ray, map_batches | by one actor of `--engine ray`, and by one of Ray Data beside one processor for reading |

Two workers have twice the processors of the one that is alone, and no more than the one that reads on the second. Rates
are rows a second of wall time, and of processor time, which a busy machine disturbs less. Memory is the most that the
first worker held, and how much of it was not there once its libraries had scored a few rows.

With `--files N` only so many shards are written, 256 MB each, and the others are these under further names: 10,000,000
rows then take 1 GB of disk for four, in place of 10.

    python benchmarks/shards.py [--rows 10000000] [--rounds 3] [--files N] [--no-ray] [--data FOLDER] [--save]
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from machine import about, save
from safetensors.torch import save_file

from hardsight.engines.ray import Scorer
from hardsight.engines.shards import score_shards

DIM, CLASSES, SHARD, IN_MEMORY = 512, 1000, 250_000, 100_000
SCORES = ("avh", "confidence", "norm")


def write(folder: Path, rows: int, files: int | None = None) -> None:
    """The shards and the head; of more than so many `files` the others are links to these, in turn."""
    generator = torch.Generator().manual_seed(0)
    save_file({"weight": torch.randn(CLASSES, DIM, generator=generator)}, folder / "head.safetensors")
    (folder / "in").mkdir()
    for at, start in enumerate(range(0, rows, SHARD)):
        size, path = min(SHARD, rows - start), folder / "in" / f"{at:05}.parquet"
        if files is not None and at >= files and size == SHARD:
            path.hardlink_to(folder / "in" / f"{at % files:05}.parquet")
            continue
        features = torch.randn(size, DIM, generator=generator).half().numpy()
        lists = pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), DIM)
        labels = torch.randint(0, CLASSES, (size,), generator=generator).numpy()
        table = pa.table({"features": lists, "label": labels})
        options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "row_group_size": 50_000}
        pq.write_table(table, path, **options)


def processor() -> float:
    """Processor seconds of this process and of the children that have ended."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def most_held() -> float:
    """MiB that this process has held at most: what `getrusage` says is that of its parent, where that had more."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def in_memory(folder: Path) -> int:
    """Score the first rows from memory."""
    table = pq.read_table(folder / "in" / "00000.parquet").slice(0, IN_MEMORY)
    features = torch.from_numpy(table["features"].combine_chunks().flatten().to_numpy().reshape(-1, DIM).copy())
    labels = torch.from_numpy(table["label"].to_numpy().copy())
    scorer = Scorer(folder / "head.safetensors", SCORES)
    scorer.score(features[:5000], labels[:5000])
    start, used = time.perf_counter(), processor()
    scorer.score(features, labels)
    print(json.dumps({"rows": len(features), "wall": time.perf_counter() - start, "processor": processor() - used}))
    return 0


def shards(folder: Path, workers: int, engine: str) -> int:
    """Score all shards, once some rows are scored, so that libraries are loaded."""
    Scorer(folder / "head.safetensors", SCORES).score(torch.randn(9000, DIM), torch.zeros(9000, dtype=torch.int64))
    before = most_held()
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    start, used = time.perf_counter(), processor()
    found = score_shards(
        folder / "in", out, folder / "head.safetensors", SCORES, workers=workers, engine=engine, progress=False
    )
    said = {"rows": found.rows, "wall": time.perf_counter() - start, "processor": processor() - used}
    print(json.dumps(said | {"mib": most_held(), "mib_grown": most_held() - before}))
    return 0


def map_batches(folder: Path) -> int:
    """One actor, and a processor for reading."""
    import ray
    import ray.data

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    start = time.perf_counter()
    scored = ray.data.read_parquet(str(folder / "in")).map_batches(
        Scorer, fn_constructor_args=(str(folder / "head.safetensors"), SCORES), batch_size=8192, batch_format="pyarrow",
        concurrency=1,
    )  # fmt: skip
    rows = sum(len(batch["avh"]) for batch in scored.iter_batches(batch_size=None))
    print(json.dumps({"rows": rows, "wall": time.perf_counter() - start}))
    ray.shutdown()
    return 0


def spread(values: list[float]) -> dict[str, float]:
    """The 20th, 50th and 80th percentile."""
    low, middle, high = np.quantile(values, (0.2, 0.5, 0.8)).tolist()
    return {"p20": low, "median": middle, "p80": high}


def measure(folder: Path, rounds: int, with_ray: bool) -> dict[str, Any]:
    """All parts in turn, each in a process of its own."""
    parts = ["memory", "alone", "1", "2", *(["ray", "map_batches"] if with_ray else [])]
    found: dict[str, list[dict[str, float]]] = {part: [] for part in parts}
    for turn in range(rounds):
        for part in parts:
            command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            found[part].append(json.loads(told))
            print(turn, part, told, flush=True)
    rates: dict[str, Any] = {}
    for part, runs in found.items():
        rates[part] = {"rows a second": spread([run["rows"] / run["wall"] for run in runs])}
        if "processor" in runs[0] and part != "ray":
            rates[part]["rows a processor second"] = spread([run["rows"] / run["processor"] for run in runs])
        if "mib" in runs[0]:
            rates[part]["MiB at most"] = max(run["mib"] for run in runs)
            rates[part]["MiB grown at most"] = max(run["mib_grown"] for run in runs)
    wall = {part: statistics.median(run["rows"] / run["wall"] for run in runs) for part, runs in found.items()}
    ratios = {
        "one worker to memory": wall["1"] / wall["memory"],
        "two workers to one alone": wall["2"] / wall["alone"],
        "two workers to one": wall["2"] / wall["1"],
    }
    ratios |= {f"{part} to one worker": wall[part] / wall["1"] for part in ("ray", "map_batches") if part in wall}
    return {"rates": rates, "ratios": ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, help="Write so many shards; the others are links. [default: all]")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--data", type=Path, help="Where the shards are, or are written to stay. [default: nowhere]")
    parser.add_argument("--save", action="store_true", help="Record the result in benchmarks/results.")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.part in ("memory", "alone"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if arguments.part == "memory":
        return in_memory(arguments.folder)
    if arguments.part == "map_batches":
        return map_batches(arguments.folder)
    if arguments.part:
        engine = "ray" if arguments.part == "ray" else "local"
        return shards(arguments.folder, 2 if arguments.part == "2" else 1, engine)
    device = torch.device("cpu")
    record = about("shards", device, pyarrow=pa.__version__, numpy=np.__version__)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.data or Path(scratch)
        if not (folder / "in").exists():
            write(folder, arguments.rows, arguments.files)
        record |= {
            "rows": arguments.rows,
            "files": arguments.files,
            "dim": DIM,
            "classes": CLASSES,
            "rounds": arguments.rounds,
        }
        record |= measure(folder, arguments.rounds, not arguments.no_ray)
    print(json.dumps(record["ratios"], indent=2))
    if arguments.save:
        print(save(record, device))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
