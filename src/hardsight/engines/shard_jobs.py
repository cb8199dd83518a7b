"""What is to be done with shards, as `shards.json` says it, which are finished, and how one of them is done."""

import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import torch
from torch import Tensor

from hardsight.engines.files import read_head
from hardsight.engines.rows import Rows, id_column
from hardsight.engines.shard_files import (
    Layout,
    Shard,
    Source,
    check_unchanged,
    find_shards,
    read_shard,
    tables_of_rows,
)
from hardsight.files.parquet import MANIFEST_FILE, MANIFEST_KIND
from hardsight.hardness.scoring import block_rows, choose_scores
from hardsight.records import atomic_path, read_json, write_json
from hardsight.validation import check_head

CLAIMS = ".claims"
MARK = b"hardsight.shard"
# Seconds between two looks at what other processes have done.
PAUSE = 0.2
# Rows of a row group of scores; numbers of features that are scored in one go.
_GROUP, _PIECE = 1 << 17, 1 << 20


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
            "kind": MANIFEST_KIND,
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
        name, dim = shards[0].name, weight.shape[1]
        raise ValueError(f"shard {name} of {found.address} must have the dim of the head, {dim}; it has {layout.dim}")
    output = Path(output)
    if found.local and Path(found.base).resolve() == output.resolve():
        raise ValueError(f"output must be another folder than that of the shards; got {output} for both")
    labelled = labelled and layout.label is not None
    job = Job(found, tuple(shards), layout, output, weight, bias, names, labelled, str(device))
    path, manifest = output / MANIFEST_FILE, job.manifest()
    earlier = read_json(path) if path.exists() else None
    if earlier is not None:
        _check_same_job(path, earlier, manifest)
    finished(job)
    if earlier != manifest:
        write_json(path, manifest)
    return job


def _check_same_job(path: Path, earlier: Any, manifest: dict[str, Any]) -> None:
    ours = isinstance(earlier, dict) and earlier.get("kind") == MANIFEST_KIND
    if not ours or not isinstance(earlier.get("shards"), list):
        raise ValueError(f"{path} must be a manifest of score shards; it is none: give another folder")
    for name in ("head", "classes", "dim", "scores", "hardness_against"):
        if earlier.get(name) != manifest[name]:
            was, now = (json.dumps(one.get(name))[:100] for one in (earlier, manifest))
            raise ValueError(f"{path} is of another {name}, {was}, not {now}: give another folder for the scores")
    names = {shard["name"] for shard in manifest["shards"]}
    for one in earlier["shards"]:
        if one.get("name") not in names and (path.parent / str(one.get("output"))).exists():
            there = f"no longer in {manifest['source']}, and {path.parent} holds its scores"
            raise ValueError(f"shard {one.get('name')} is {there}: bring it back, or remove them")


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
            said = json.loads((pq.read_metadata(file).metadata or {})[MARK])
        return said if isinstance(said, dict) else {}
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise ValueError(f"{path} must be scores of a shard; it is another file: give another folder") from None


def claim_of(job: Job, shard: Shard) -> Path:
    """The claim on a shard."""
    return job.output / CLAIMS / hashlib.sha256(shard.output.encode()).hexdigest()[:32]


def rows_of(job: Job, shard: Shard) -> Generator[Rows, None, None]:
    """The samples of a shard, some after others, with their ids: where it has none they are counted."""
    step, start = block_rows(len(job.weight)), shard.start
    # A block for each thread, and few, so that they are still in the cache when they are scored.
    rows = step * max(torch.get_num_threads(), _PIECE // (step * job.weight.shape[1]), 1)
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


def table_of(job: Job, shard: Shard, scorer: Any, rows: Rows) -> pa.Table:
    """The scores of some samples of a shard by a `Scorer`."""
    with _named(job, shard):
        scores = scorer.arrays(rows.features, rows.labels if job.labelled else None)
        labels = pa.nulls(len(scores[0]), pa.int64()) if rows.labels is None else pa.array(rows.labels.numpy())
        assert rows.ids is not None
        fields = [pa.field("id", rows.ids.type), pa.field("label", pa.int64()), *scorer.fields]
        metadata = {"hardness against": job.against, "classes": str(len(job.weight))}
        return pa.table([rows.ids, labels, *scores], schema=pa.schema(fields, metadata))


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
