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
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import torch
from torch import Tensor

from hardsight.claims import claim, release_abandoned
from hardsight.engines.files import read_head
from hardsight.engines.scorer import Scorer
from hardsight.engines.shard_files import Layout, Rows, Shard, Source, check_unchanged, find_shards, read_shard
from hardsight.engines.streaming import id_column, progress_bar
from hardsight.files.shards import KIND, MANIFEST_FILE
from hardsight.hardness.scoring import DEFAULT_SCORES, block_rows, choose_scores
from hardsight.records import atomic_path, read_json, write_json
from hardsight.validation import check_count, check_head

_CLAIMS = ".claims"
_MARK = b"hardsight.shard"
# Rows of a row group of scores; numbers of features that are read ahead, and how many pieces of them.
_GROUP, _PIECE, _AHEAD = 1 << 17, 1 << 22, 2
# Seconds between two looks at what other processes have done.
PAUSE = 0.2


@dataclass(frozen=True)
class Job:
    """Everything that a process needs to score a shard."""

    source: Source
    shards: tuple[Shard, ...]
    layout: Layout
    output: Path
    weight: Tensor
    bias: Tensor | None
    scores: tuple[str, ...]
    labelled: bool
    device: str
    threads: int | None = None

    @property
    def against(self) -> str:
        """What hardness is measured against."""
        return "given label" if self.labelled else "predicted class"

    @property
    def head_hash(self) -> str:
        """What tells this head from another one."""
        told = hashlib.sha256()
        for one in (self.weight, self.bias):
            told.update(b"-" if one is None else f"{one.dtype} {list(one.shape)}".encode())
            told.update(b"" if one is None else one.contiguous().view(torch.uint8).numpy().tobytes())
        return told.hexdigest()

    def manifest(self) -> dict[str, Any]:
        """What `shards.json` holds."""
        said: dict[str, Any] = {
            "kind": KIND,
            "source": self.source.address,
            "head": self.head_hash,
            "classes": len(self.weight),
            "dim": self.weight.shape[1],
            "scores": list(self.scores),
            "hardness_against": self.against,
            "rows": sum(shard.rows for shard in self.shards),
            "shards": [asdict(shard) | {"output": shard.output} for shard in self.shards],
        }
        return said | {"hash": hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()}

    def mark(self, shard: Shard) -> dict[str, Any]:
        """What the scores of a shard say they are of. Where ids are counted, they change with the rows before."""
        said = asdict(shard) if self.layout.id is None else asdict(replace(shard, start=0))
        return said | {"head": self.head_hash, "scores": list(self.scores), "hardness_against": self.against}


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
    for left in (job.output / _CLAIMS).glob("*"):
        release_abandoned(left)
    with contextlib.suppress(OSError):
        (job.output / _CLAIMS).rmdir()
    agreeing = sum(mark["agreeing"] for mark in marks) if job.labelled else None
    rows, unusable = sum(shard.rows for shard in job.shards), sum(mark["unusable"] for mark in marks)
    made = len(job.shards) - len(before)
    return Scored(job.output, rows, len(marks), made, len(job.weight), job.against, agreeing, unusable)


def plan(
    source: Path | str,
    output: Path | str,
    head: Path | str | tuple[Tensor, Tensor | None],
    scores: Sequence[str],
    *,
    labelled: bool = True,
    device: torch.device | str = "cpu",
    filesystem: pafs.FileSystem | None = None,
) -> Job:
    """What is to be done, compared with what the folder's manifest says of an earlier run, and written there."""
    if "://" in str(output):
        raise ValueError(f"output must be a folder of this machine or one that machines share; got {output}: copy it")
    names = tuple(one.name for one in choose_scores(scores))
    weight, bias = head if isinstance(head, tuple) else read_head(head)
    check_head(weight, bias)
    found, shards, layout = find_shards(source, filesystem)
    if layout.dim not in (None, weight.shape[1]):
        raise ValueError(
            f"shard {shards[0].name} of {found.address} must have the dim of the head, {weight.shape[1]}; it has "
            f"{layout.dim}"
        )
    output = Path(output)
    if found.local and Path(found.base).resolve() == output.resolve():
        raise ValueError(f"output must be another folder than that of the shards; got {output} for both")
    labelled = labelled and layout.label is not None
    job = Job(found, tuple(shards), layout, output, weight, bias, names, labelled, str(device))
    manifest = job.manifest()
    earlier = _earlier(output)
    if earlier is not None:
        _check_same_job(output / MANIFEST_FILE, earlier, manifest)
    finished(job)
    if earlier != manifest:
        write_json(output / MANIFEST_FILE, manifest)
    return job


def _earlier(output: Path) -> Any:
    if not (output / MANIFEST_FILE).exists():
        return None
    earlier = read_json(output / MANIFEST_FILE)
    if not isinstance(earlier, dict) or earlier.get("kind") != KIND or not isinstance(earlier.get("shards"), list):
        raise ValueError(
            f"{output / MANIFEST_FILE} must be a manifest of score shards; it is none: give another folder"
        )
    return earlier


def _check_same_job(path: Path, earlier: dict[str, Any], manifest: dict[str, Any]) -> None:
    for name in ("head", "classes", "dim", "scores", "hardness_against"):
        if earlier.get(name) != manifest[name]:
            was, now = (json.dumps(one.get(name))[:100] for one in (earlier, manifest))
            raise ValueError(f"{path} is of another {name}, {was}, not {now}: give another folder for the scores")
    names = {shard["name"] for shard in manifest["shards"]}
    for one in earlier["shards"]:
        if one.get("name") not in names and (path.parent / str(one.get("output"))).exists():
            raise ValueError(
                f"shard {one.get('name')} is no longer in {manifest['source']}, and {path.parent} holds its scores: "
                "bring it back, or remove them"
            )


def finished(job: Job) -> set[str]:
    """The names of the shards whose scores are there; scores of what a shard was before are an error."""
    return {shard.name for shard in job.shards if is_finished(job, shard)}


def is_finished(job: Job, shard: Shard) -> bool:
    """Whether the scores of a shard are there."""
    path = job.output / shard.output
    try:
        mark = read_mark(path)
    except FileNotFoundError:
        return False
    for name, value in job.mark(shard).items():
        if mark.get(name) != value:
            raise ValueError(
                f"shard {shard.name} of {job.source.address} has changed since it was scored, {name} from "
                f"{str(mark.get(name))[:80]} to {str(value)[:80]}: remove {path} to score it again"
            )
    return True


def read_mark(path: Path) -> dict[str, Any]:
    """What a file of scores says it is of, and how many of its samples have no scores."""
    try:
        # Opened here: pyarrow takes a colon for an address.
        with path.open("rb") as file:
            said = json.loads((pq.read_metadata(file).metadata or {})[_MARK])
        return said if isinstance(said, dict) else {}
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise ValueError(f"{path} must be scores of a shard; it is another file: give another folder") from None


# ---------------------------------------------------------------------------------------------------------------------
# One shard.


def tables_of(job: Job, shard: Shard, scorer: Scorer) -> Iterator[pa.Table]:
    """The scores of a shard, some samples after others; what is wrong with the shard is said with its name."""
    step = block_rows(scorer.classes)
    rows = step * max(1, _PIECE // (step * scorer.dim))
    start = shard.start
    seen = 0
    try:
        check_unchanged(job.source, shard)
        for piece in _read_ahead(read_shard(job.source, shard, rows)):
            columns, usable = scorer.score(piece.features, piece.labels if job.labelled else None)
            size = len(piece.features)
            ids = np.arange(start, start + size) if piece.ids is None else piece.ids
            labels = pa.nulls(size, pa.int64()) if piece.labels is None else pa.array(piece.labels.numpy())
            fields = [pa.field("id", id_column(ids).type), pa.field("label", pa.int64()), *scorer.fields]
            arrays = [id_column(ids), labels, *scorer.arrays(columns, usable)]
            metadata = {"hardness against": job.against, "classes": str(scorer.classes)}
            yield pa.table(arrays, schema=pa.schema(fields, metadata=metadata))
            start, seen = start + size, seen + size
        check_unchanged(job.source, shard)
        if seen != shard.rows:
            raise ValueError(f"it must have {shard.rows:,} rows, as it had before; it has {seen:,}")
    except (ValueError, TypeError, OSError) as error:
        said = " ".join(str(error).split())
        if shard.name in said:
            raise
        raise ValueError(f"shard {shard.name} of {job.source.address}: {said}") from error


def write_scores(job: Job, shard: Shard, tables: Iterable[pa.Table]) -> None:
    """Write the scores of a shard whole or not at all; the same bytes however they were cut."""
    unusable = agreeing = 0
    with atomic_path(job.output / shard.output) as draft, contextlib.ExitStack() as stack:
        writer = None
        for table in _groups(tables):
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(draft, table.schema, compression="zstd"))
            unusable += table.column("predicted").null_count
            if job.labelled:
                agreeing += int((table.column("predicted").to_numpy() == table.column("label").to_numpy()).sum())
            writer.write_table(table)
        if writer is None:
            raise ValueError(f"shard {shard.name} of {job.source.address} must hold at least one sample; it holds none")
        said = job.mark(shard) | {"unusable": unusable, "agreeing": agreeing}
        writer.add_key_value_metadata({_MARK.decode(): json.dumps(said)})


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of `_GROUP` rows each."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while len(waiting) >= _GROUP:
            yield waiting.slice(0, _GROUP).combine_chunks()
            waiting = waiting.slice(_GROUP)
    if waiting is not None and len(waiting):
        yield waiting.combine_chunks()


def _read_ahead(rows: Iterator[Rows]) -> Iterator[Rows]:
    """The same, read by another thread while this one computes."""
    ready: queue.Queue[Rows | BaseException | None] = queue.Queue(_AHEAD)
    stop = threading.Event()

    def put(item: Rows | BaseException | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def read() -> None:
        try:
            for one in rows:
                put(one)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


# ---------------------------------------------------------------------------------------------------------------------
# All shards, by processes of this machine and others.


def claim_of(job: Job, shard: Shard) -> Path:
    """The claim on a shard."""
    return job.output / _CLAIMS / hashlib.sha256(shard.output.encode()).hexdigest()[:32]


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
    """Score shards that nobody else has, until the scores of all are there."""
    scorer = Scorer((job.weight, job.bias), job.scores, labelled=job.labelled, device=job.device)
    open_ones = [shard for shard in job.shards if not is_finished(job, shard)]
    while open_ones:
        left = []
        for shard in open_ones:
            check()
            with claim(claim_of(job, shard)) as mine:
                # Another process may have scored it between the look and the claim.
                done = is_finished(job, shard)
                if mine and not done:
                    write_scores(job, shard, tables_of(job, shard, scorer))
                    done = True
            if done:
                step(1)
            else:
                left.append(shard)
        if len(left) == len(open_ones):
            # All that is left is being scored by living processes; a dead one's claim is taken in the next round.
            time.sleep(PAUSE)
        open_ones = left


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
