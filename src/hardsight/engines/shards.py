"""Scores of shards on disk or in a bucket: a file of scores for each file of features, by any number of processes.

What is there already is kept: a run goes on where another one ended, or was killed. Processes that score into the same
folder, on one machine or on several, share the shards by claims, and take over those of the dead.

| file | what it holds |
|---|---|
| `shards.json` | what the scores are of: head, options, and every shard with its rows, size and time of change |
| `NAME.parquet` | the scores of the shard `NAME.parquet`; of `NAME.arrow` they are in `NAME.arrow.parquet` |
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import torch
from torch import Tensor

from hardsight.claims import claim, release_abandoned
from hardsight.engines import shard_jobs
from hardsight.engines.ray import Scorer, score_on_ray, scorer_of
from hardsight.engines.rows import Rows
from hardsight.engines.shard_files import Shard
from hardsight.engines.shard_jobs import Job, ahead, finished, is_finished
from hardsight.engines.streaming import progress_bar
from hardsight.hardness.scoring import DEFAULT_SCORES
from hardsight.validation import check_count

# How many pieces of a shard are read before they are scored, and scored before they are written.
_READ_AHEAD, _SCORED_AHEAD = 2, 16


@dataclass(frozen=True)
class Scored:
    """What a call of `score_shards` leaves: the folder and its rows; `made` shards by this call, of all `shards`."""

    output: Path
    rows: int
    shards: int
    made: int
    classes: int
    against: str
    agreeing: int | None
    unusable: int


def score_shards(
    source: Path | str,
    output: Path | str,
    head: Path | str | tuple[Tensor, Tensor | None],
    scores: Sequence[str] = DEFAULT_SCORES,
    *,
    workers: int | None = None,
    labelled: bool = True,
    device: torch.device | str = "cpu",
    filesystem: pafs.FileSystem | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: bool | None = None,
) -> Scored:
    """Score every shard of a folder or a glob: one file of scores for each in `output`; those that are there stay.

    `source` is local, `s3://…` or `gs://…`, or a path in a `filesystem` of pyarrow; `head` a file of weight and bias.
    `workers` processes (one by default) share the machine's processors. With `engine="ray"` the shards are scored on
    the cluster at `address` (or on this machine), and this process writes what comes back. Samples whose features hold
    NaN or infinity have null scores, and are counted. A shard that cannot be scored ends the call; those that are
    finished stay.
    """
    if workers is not None:
        check_count("workers", workers, "the processes that score")
    if engine not in ("local", "ray"):
        raise ValueError(f'engine must be "local" or "ray"; got {engine!r}')
    job = shard_jobs.plan(source, output, head, scores, labelled=labelled, device=device, filesystem=filesystem)
    before = finished(job)
    if len(before) < len(job.shards):
        with progress_bar(job.shards, progress, "shards") as step:
            step(len(before))
            if engine == "ray":
                score_on_ray(job, workers, address, step)
            else:
                _score_here(job, workers or 1, step)
    marks = [shard_jobs.read_mark(job.output / shard.output) for shard in job.shards]
    for left in (job.output / shard_jobs.CLAIMS).glob("*"):
        release_abandoned(left)
    with contextlib.suppress(OSError):
        (job.output / shard_jobs.CLAIMS).rmdir()
    agreeing = sum(mark["agreeing"] for mark in marks) if job.labelled else None
    rows, unusable = sum(shard.rows for shard in job.shards), sum(mark["unusable"] for mark in marks)
    made = len(job.shards) - len(before)
    return Scored(job.output, rows, len(marks), made, len(job.weight), job.against, agreeing, unusable)


def _score_here(job: Job, workers: int, step: Callable[[int], None]) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    held = torch.get_num_threads()
    threads = max(1, min(cores, held if workers == 1 else cores) // workers)
    with _helpers(replace(job, threads=threads), workers - 1) as check:
        torch.set_num_threads(threads)
        try:
            _share(job, check, step)
        finally:
            torch.set_num_threads(held)


def _share(job: Job, check: Callable[[], None], step: Callable[[int], None] = lambda shards: None) -> None:
    """Score shards that nobody else has, until the scores of all are there.

    One thread reads, one computes and this one writes: none waits for another, between two shards neither.
    """
    scorer = scorer_of(job)
    open_ones = [shard for shard in job.shards if not is_finished(job, shard)]
    while open_ones:
        left: list[Shard] = []
        with contextlib.ExitStack() as claims:
            read = ahead(_read(job, open_ones, left, claims), _READ_AHEAD)
            with contextlib.closing(ahead(_score(job, scorer, read), _SCORED_AHEAD)) as scored:
                for shard, held in scored:
                    check()
                    if held is not None:
                        with held:
                            shard_jobs.write_scores(job, shard, iter(lambda: next(scored)[1], None))
                    step(1)
        if len(left) == len(open_ones):
            # All that is left is being scored by living processes; a dead one's claim is taken in the next round.
            check()
            time.sleep(shard_jobs.PAUSE)
        open_ones = left


def _read(
    job: Job, shards: Sequence[Shard], left: list[Shard], claims: contextlib.ExitStack
) -> Generator[Any, None, None]:
    """For each shard that has no scores: it and its claim, its samples, and None at its end; the others' are `left`."""
    for shard in shards:
        held = claims.enter_context(contextlib.ExitStack())
        mine = held.enter_context(claim(shard_jobs.claim_of(job, shard)))
        # Another process may have scored it between the look and the claim.
        if is_finished(job, shard):
            held.close()
            yield shard, None
        elif mine:
            yield shard, held
            yield from ((shard, piece) for piece in shard_jobs.rows_of(job, shard))
            yield shard, None
        else:
            left.append(shard)


def _score(job: Job, scorer: Scorer, read: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """What is read, with tables of scores in the place of samples."""
    with contextlib.closing(read):
        for shard, item in read:
            yield shard, shard_jobs.table_of(job, shard, scorer, item) if isinstance(item, Rows) else item


@contextlib.contextmanager
def _helpers(job: Job, count: int) -> Iterator[Callable[[], None]]:
    """So many further processes that score; the check raises what one of them has met. They end with this one."""
    running: list[subprocess.Popen[bytes]] = []

    def check() -> None:
        for process in running:
            # One that was killed says nothing: its shard is taken over.
            if process.poll() == 1 and process.stdout is not None and (said := process.stdout.read().strip()):
                raise ValueError(said.decode(errors="replace"))

    command = [sys.executable, "-c", "from hardsight.engines.shards import _help; _help()"]
    environment = os.environ | {name: str(job.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            new = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            running.append(stack.enter_context(new))
            assert new.stdin is not None
            # The pipe stays open: its end tells the helper that this process is gone.
            with contextlib.suppress(BrokenPipeError):
                new.stdin.write(pickle.dumps(job))
                new.stdin.flush()
        yield check
        for process in running:
            process.wait()
        check()


def _help() -> None:
    """What a further process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job: Job = pickle.load(sys.stdin.buffer)

    def leave_with_the_first() -> None:
        sys.stdin.buffer.read()
        os._exit(3)

    threading.Thread(target=leave_with_the_first, daemon=True).start()
    torch.set_num_threads(job.threads or 1)
    try:
        _share(job, lambda: None)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        print(" ".join(str(error).split()), flush=True)
        os._exit(1)
    os._exit(0)
