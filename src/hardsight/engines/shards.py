"""Scores of shards on disk or in a bucket: a file of scores for each file of features, by any number of processes.

What is there already is kept: a run goes on where another one ended, or was killed. Processes that score into the same
folder, on one machine or on several, share the shards by claims, and take over those of the dead.

| file | what it holds |
|---|---|
| `shards.json` | what the scores are of: head, options, and every shard with its rows, size and time of change |
| `NAME.parquet` | the scores of the shard `NAME.parquet`; of `NAME.arrow` they are in `NAME.arrow.parquet` |
"""

import contextlib
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import torch
from torch import Tensor

from hardsight.claims import claim, release_abandoned
from hardsight.engines.rows import Rows, id_column
from hardsight.engines.scorer import Scorer
from hardsight.engines.shard_files import (
    Shard,
    check_unchanged,
    read_shard,
    tables_of_rows,
)
from hardsight.engines.shard_jobs import CLAIMS, MARK, Job, finished, is_finished, plan, read_mark
from hardsight.engines.streaming import progress_bar
from hardsight.hardness.scoring import DEFAULT_SCORES, block_rows
from hardsight.records import atomic_path
from hardsight.validation import check_count

# Rows of a row group of scores; numbers of features that are scored in one go.
_GROUP, _PIECE = 1 << 17, 1 << 20
# How many such pieces are read before they are scored, and scored before they are written.
_READ_AHEAD, _SCORED_AHEAD = 2, 16
# Seconds between two looks at what other processes have done.
PAUSE = 0.2


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
    job = plan(source, output, head, scores, labelled=labelled, device=device, filesystem=filesystem)
    before = finished(job)
    if len(before) < len(job.shards):
        with progress_bar(job.shards, progress, "shards") as step:
            step(len(before))
            if engine == "ray":
                from hardsight.engines.ray import score_on_ray

                score_on_ray(job, workers, address, step)
            else:
                _score_here(job, workers or 1, step)
    marks = [read_mark(job.output / shard.output) for shard in job.shards]
    for left in (job.output / CLAIMS).glob("*"):
        release_abandoned(left)
    with contextlib.suppress(OSError):
        (job.output / CLAIMS).rmdir()
    agreeing = sum(mark["agreeing"] for mark in marks) if job.labelled else None
    rows, unusable = sum(shard.rows for shard in job.shards), sum(mark["unusable"] for mark in marks)
    made = len(job.shards) - len(before)
    return Scored(job.output, rows, len(marks), made, len(job.weight), job.against, agreeing, unusable)


# ---------------------------------------------------------------------------------------------------------------------
# One shard.


def rows_of(job: Job, shard: Shard, rows: int) -> Generator[Rows, None, None]:
    """The samples of a shard, so many after others, with their ids: where it has none they are counted."""
    start = shard.start
    with _named(job, shard):
        check_unchanged(job.source, shard)
        for piece in read_shard(job.source, shard, rows):
            size = len(piece.features)
            ids = np.arange(start, start + size) if piece.ids is None else piece.ids
            yield piece._replace(ids=id_column(ids))
            start += size
        check_unchanged(job.source, shard)
        if start - shard.start != shard.rows:
            raise ValueError(f"it must have {shard.rows:,} rows, as it had before; it has {start - shard.start:,}")


def table_of(job: Job, shard: Shard, scorer: Scorer, piece: Rows) -> pa.Table:
    """The scores of some samples of a shard."""
    with _named(job, shard):
        columns, usable = scorer.score(piece.features, piece.labels if job.labelled else None)
        labels = pa.nulls(len(usable), pa.int64()) if piece.labels is None else pa.array(piece.labels.numpy())
        assert piece.ids is not None
        fields = [pa.field("id", piece.ids.type), pa.field("label", pa.int64()), *scorer.fields]
        metadata = {"hardness against": job.against, "classes": str(scorer.classes)}
        return pa.table([piece.ids, labels, *scorer.arrays(columns, usable)], schema=pa.schema(fields, metadata))


@contextlib.contextmanager
def _named(job: Job, shard: Shard) -> Iterator[None]:
    """What is wrong with a shard is said with its name."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        said = " ".join(str(error).split())
        if shard.name in said:
            raise
        raise ValueError(f"shard {shard.name} of {job.source.address}: {said}") from error


def at_once(scorer: Scorer) -> int:
    """Samples that are scored in one go: a block for each thread, and few, so that they are still in the cache."""
    step = block_rows(scorer.classes)
    return step * max(torch.get_num_threads(), _PIECE // (step * scorer.dim), 1)


def write_scores(job: Job, shard: Shard, tables: Iterable[pa.Table]) -> None:
    """Write the scores of a shard whole or not at all; the same bytes however they were cut."""
    unusable = agreeing = 0
    with atomic_path(job.output / shard.output) as draft, contextlib.ExitStack() as stack:
        writer = None
        for table in map(pa.Table.combine_chunks, tables_of_rows(tables, _GROUP)):
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(draft, table.schema, compression="zstd"))
            unusable += table.column("predicted").null_count
            if job.labelled:
                agreeing += int((table.column("predicted").to_numpy() == table.column("label").to_numpy()).sum())
            writer.write_table(table)
        if writer is None:
            raise ValueError(f"shard {shard.name} of {job.source.address} must hold at least one sample; it holds none")
        said = job.mark(shard) | {"unusable": unusable, "agreeing": agreeing}
        writer.add_key_value_metadata({MARK.decode(): json.dumps(said)})


def ahead(items: Generator[Any, None, None], most: int) -> Generator[Any, None, None]:
    """The same, made by another thread while this one works with them: at most so many before they are asked for."""
    thread, end = ThreadPoolExecutor(1), object()
    try:
        waiting = deque(thread.submit(next, items, end) for _ in range(most))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
        items.close()


# ---------------------------------------------------------------------------------------------------------------------
# All shards, by processes of this machine and others.


def claim_of(job: Job, shard: Shard) -> Path:
    """The claim on a shard."""
    return job.output / CLAIMS / hashlib.sha256(shard.output.encode()).hexdigest()[:32]


def _score_here(job: Job, workers: int, step: Callable[[int], None]) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, min(cores, torch.get_num_threads() if workers == 1 else cores) // workers)
    with _helpers(replace(job, threads=threads), workers - 1) as check:
        held = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            _share(job, check, step)
        finally:
            torch.set_num_threads(held)


def _share(job: Job, check: Callable[[], None], step: Callable[[int], None] = lambda shards: None) -> None:
    """Score shards that nobody else has, until the scores of all are there.

    One thread reads, one computes and this one writes: none waits for another, between two shards neither.
    """
    scorer = Scorer((job.weight, job.bias), job.scores, labelled=job.labelled, device=job.device)
    open_ones = [shard for shard in job.shards if not is_finished(job, shard)]
    while open_ones:
        left: list[Shard] = []
        with contextlib.ExitStack() as claims:
            read = ahead(_read(job, open_ones, left, at_once(scorer), claims), _READ_AHEAD)
            with contextlib.closing(ahead(_score(job, scorer, read), _SCORED_AHEAD)) as scored:
                for shard, held in scored:
                    check()
                    if held is not None:
                        with held:
                            write_scores(job, shard, iter(lambda: next(scored)[1], None))
                    step(1)
        if len(left) == len(open_ones):
            # All that is left is being scored by living processes; a dead one's claim is taken in the next round.
            check()
            time.sleep(PAUSE)
        open_ones = left


def _read(
    job: Job, shards: Sequence[Shard], left: list[Shard], rows: int, claims: contextlib.ExitStack
) -> Generator[Any, None, None]:
    """For each shard that has no scores: it and its claim, its samples, and None at its end; the others' are `left`."""
    for shard in shards:
        held = claims.enter_context(contextlib.ExitStack())
        mine = held.enter_context(claim(claim_of(job, shard)))
        # Another process may have scored it between the look and the claim.
        if is_finished(job, shard):
            held.close()
            yield shard, None
        elif mine:
            yield shard, held
            yield from ((shard, piece) for piece in rows_of(job, shard, rows))
            yield shard, None
        else:
            left.append(shard)


def _score(job: Job, scorer: Scorer, read: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """What is read, with tables of scores in the place of samples."""
    with contextlib.closing(read):
        for shard, item in read:
            yield shard, table_of(job, shard, scorer, item) if isinstance(item, Rows) else item


@contextlib.contextmanager
def _helpers(job: Job, count: int) -> Iterator[Callable[[], None]]:
    """So many further processes that score; the check raises what one of them has met. They end with this one."""
    running = [_start(job) for _ in range(count)]

    def check() -> None:
        for process in running:
            # One that was killed says nothing: its shard is taken over.
            if process.poll() == 1 and process.stdout is not None and (said := process.stdout.read().strip()):
                raise ValueError(said.decode(errors="replace"))

    try:
        yield check
        for process in running:
            process.wait()
        check()
    finally:
        for process in running:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _start(job: Job) -> "subprocess.Popen[bytes]":
    threads = {name: str(job.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    code = "from hardsight.engines.shards import _help; _help()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | threads
    )
    assert process.stdin is not None
    # The pipe stays open: its end tells the helper that this process is gone.
    with contextlib.suppress(BrokenPipeError):
        pickle.dump(job, process.stdin)
        process.stdin.flush()
    return process


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
