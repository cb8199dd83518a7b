"""What is to be done with shards, as `shards.json` says it, and which of them are finished."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import torch
from torch import Tensor

from hardsight.engines.files import read_head
from hardsight.engines.shard_files import Layout, Shard, Source, find_shards
from hardsight.files.shards import KIND, MANIFEST_FILE
from hardsight.hardness.scoring import choose_scores
from hardsight.records import read_json, write_json
from hardsight.validation import check_head

CLAIMS = ".claims"
MARK = b"hardsight.shard"


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
            said = json.loads((pq.read_metadata(file).metadata or {})[MARK])
        return said if isinstance(said, dict) else {}
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise ValueError(f"{path} must be scores of a shard; it is another file: give another folder") from None
