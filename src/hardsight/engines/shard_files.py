"""Shards of features: files of Parquet, Arrow or safetensors in a folder or a bucket, read some rows after others.

A column or tensor `features` (lists of one length: float16, float32, float64; bfloat16 as safetensors has it, or as
16-bit unsigned integers where the field's metadata says `dtype: bfloat16`), `label` or `labels`, `id` or `ids`. All
shards have the same columns and types.
"""

import contextlib
import fnmatch
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from hardsight.engines.rows import (
    FEATURES,
    IDS,
    LABELS,
    Rows,
    check_lists,
    first_of,
    is_bfloat16,
    rows_of_arrays,
    rows_of_table,
)
from hardsight.files.arrays import tensor_arrays
from hardsight.files.parquet import Parquet
from hardsight.files.plain import reading

ENDINGS = (".parquet", ".arrow", ".feather", ".safetensors")
# Bytes that are read from a bucket in one go, and shards whose ends are read at the same time.
_BUFFER, _AT_ONCE = 1 << 23, 16
# Seconds after which Google's library gives up; its own limit is a quarter of an hour.
_PATIENCE = 20


@dataclass(frozen=True)
class Source:
    """Where shards are: a file system and a folder in it; `address` is what was given, in sentences."""

    address: str
    filesystem: pafs.FileSystem
    base: str

    def path(self, name: str) -> str:
        """The path of a shard in the file system."""
        return f"{self.base}/{name}" if self.base else name

    @property
    def local(self) -> bool:
        return isinstance(self.filesystem, pafs.LocalFileSystem)


class Layout(NamedTuple):
    """What all shards agree on: `dim` is None where lists could have any length."""

    dtype: str
    dim: int | None
    label: str | None
    id: str | None
    id_type: str | None


@dataclass(frozen=True)
class Shard:
    """One file: its name below the source, size and time of change; how many rows it has, and how many come before."""

    name: str
    size: int
    modified: int
    rows: int
    start: int

    @property
    def output(self) -> str:
        """The name of its scores."""
        return self.name if self.name.endswith(".parquet") else f"{self.name}.parquet"


def find_shards(address: str | Path, filesystem: pafs.FileSystem | None = None) -> tuple[Source, list[Shard], Layout]:
    """The shards of a folder or a glob in the order of their names, and their layout; one that differs is an error.

    `address` is a path, or a URI as `s3://bucket/folder` or `gs://bucket/part-*.parquet`; with a `filesystem`, a path
    in it.
    """
    # What is written down and said never holds the key that an address may carry.
    text = re.sub(r"(?<=://)[^/@]*@", "", str(address))
    with _reached(text):
        if filesystem is None:
            filesystem, path = _opened(str(address))
        else:
            path = text
        base, pattern = _split(path.rstrip("/") or path)
        source = Source(text, filesystem, base)
        if filesystem.get_file_info(base).type != pafs.FileType.Directory:
            raise ValueError(f"SHARDS must be a folder or a glob of shards; {text} is none that is there")
        listed = filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
        found = {one.path[len(base) :].lstrip("/"): one for one in listed if one.type == pafs.FileType.File}
        names = sorted(name for name in found if _is_shard(name, pattern))
        if not names:
            raise ValueError(f"SHARDS must hold files that end in {', '.join(ENDINGS)}; {text} holds none")
        with ThreadPoolExecutor(1 if source.local else _AT_ONCE) as pool:
            described = list(pool.map(lambda name: _described(source, name), names))
    shards, start = [], 0
    for name, (layout, rows) in zip(names, described, strict=True):
        for what, wanted, came in zip(Layout._fields, described[0][0], layout, strict=True):
            if wanted != came:
                must = f"must have the same columns as {names[0]}"
                raise ValueError(f"shard {name} of {text} {must}: its {what} is {came}, there it is {wanted}")
        shards.append(Shard(name, found[name].size, found[name].mtime_ns or 0, rows, start))
        start += rows
    return source, shards, described[0][0]


def check_unchanged(source: Source, shard: Shard) -> None:
    """The shard is as it was when it was found."""
    with _reached(source.address):
        found = source.filesystem.get_file_info(source.path(shard.name))
    if found.type != pafs.FileType.File:
        raise ValueError(f"shard {shard.name} of {source.address} is no longer there")
    # Buckets list times with milliseconds, and then say whole seconds of one object.
    unit = 1 if source.local else 10**9
    if (found.size, (found.mtime_ns or 0) // unit) != (shard.size, shard.modified // unit):
        raise ValueError(f"shard {shard.name} of {source.address} has changed meanwhile, to {found.size:,} bytes")


def read_shard(source: Source, shard: Shard, rows: int) -> Iterator[Rows]:
    """So many samples after others; the last ones are fewer."""
    where = f"shard {shard.name} of {source.address}"
    if shard.name.endswith(".safetensors"):
        with _local(source, shard.name) as path:
            yield from rows_of_arrays(tensor_arrays(path), rows, where)
        return
    with contextlib.ExitStack() as stack:
        batches = ([one] for one in _batches(source, shard.name, stack))
        for table in tables_of_rows(map(pa.Table.from_batches, batches), rows):
            yield rows_of_table(table, where)


def tables_of_rows(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of so many each; the last one has what is left."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while len(waiting) >= rows:
            yield waiting.slice(0, rows)
            waiting = waiting.slice(rows)
    if waiting is not None and len(waiting):
        yield waiting


def _opened(address: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in address:
        return pafs.LocalFileSystem(), str(Path(address).absolute())
    if address.startswith(("gs://", "gcs://")) and "retry_limit_seconds" not in address:
        address += f"{'&' if '?' in address else '?'}retry_limit_seconds={_PATIENCE}"
    # Its own check rejects the stars of a glob.
    address, _, options = address.partition("?")
    base, pattern = _split(address)
    filesystem, path = pafs.FileSystem.from_uri(f"{base}?{options}" if options else base)
    return filesystem, f"{path.rstrip('/')}/{pattern}" if pattern else path


def _split(path: str) -> tuple[str, str | None]:
    """The folder before the first part with a wildcard, and the pattern from there on; None without one."""
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), None)
    return (path, None) if first is None else ("/".join(parts[:first]), "/".join(parts[first:]))


def _is_shard(name: str, pattern: str | None) -> bool:
    """Whether a file is data: hidden ones, and those that begin with _, are what writers leave beside it."""
    path = PurePosixPath(name)
    if path.suffix not in ENDINGS or any(part.startswith((".", "_")) for part in path.parts):
        return False
    if pattern is None:
        return True
    wanted = pattern.split("/")
    return len(wanted) == len(path.parts) and all(map(fnmatch.fnmatchcase, path.parts, wanted))


@contextlib.contextmanager
def _reached(address: str) -> Iterator[None]:
    """A bucket that does not answer, or cannot be read, in one sentence."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, FileNotFoundError) and "://" not in address:
            raise FileNotFoundError(f"SHARDS must be a folder or a glob of shards; {address}: {error}") from None
        raise OSError(f"{address} cannot be read: {str(error).splitlines()[0][:300]}") from None


def _described(source: Source, name: str) -> tuple[Layout, int]:
    """A shard's layout and how many rows it has."""
    where = f"shard {name} of {source.address}"
    if name.endswith(".safetensors"):
        with _local(source, name, header=True) as path:
            arrays = tensor_arrays(path)
        if "features" not in arrays or len(arrays["features"].shape) != 2:
            raise ValueError(f"{where} must hold a matrix 'features'; it holds {', '.join(arrays) or 'nothing'}")
        features = arrays["features"]
        label, key = first_of(LABELS, list(arrays)), first_of(IDS, list(arrays))
        kind = None if key is None else pa.from_numpy_dtype(arrays[key].dtype)
        dtype = str(features.torch_dtype).removeprefix("torch.")
        return Layout(dtype, features.shape[1], label, key, None if kind is None else str(kind)), features.shape[0]
    if name.endswith(".parquet"):
        with _parquet(source, name) as file:
            schema, rows = file.schema, file.rows
    else:
        with _arrow(source, name) as reader:
            schema = reader.schema
            if isinstance(reader, pa.RecordBatchFileReader):
                # Counted by the ends of its batches, which a reader does not tell.
                rows = ds.dataset(source.path(name), filesystem=source.filesystem, format="ipc").count_rows()
            else:
                rows = sum(len(batch) for batch in reader)
    if "features" not in schema.names:
        raise ValueError(f"{where} must have a column 'features'; it has {', '.join(schema.names) or 'none'}")
    field = schema.field("features")
    check_lists(field, where)
    kind = "bfloat16" if is_bfloat16(field) else str(field.type.value_type).replace("halffloat", "float16")
    dim = field.type.list_size if pa.types.is_fixed_size_list(field.type) else None
    label, key = first_of(LABELS, schema.names), first_of(IDS, schema.names)
    names = {"float": "float32", "double": "float64"}
    return Layout(names.get(kind, kind), dim, label, key, None if key is None else str(schema.field(key).type)), rows


def _batches(source: Source, name: str, stack: contextlib.ExitStack) -> Iterator[pa.RecordBatch]:
    """The columns that are looked at, some rows after others."""
    file = stack.enter_context(_parquet(source, name) if name.endswith(".parquet") else _arrow(source, name))
    wanted = [one for one in file.schema.names if one in (FEATURES, *LABELS, *IDS)]
    if name.endswith(".parquet"):
        yield from file.batches(wanted)
        return
    numbered = isinstance(file, pa.RecordBatchFileReader)
    for batch in map(file.get_batch, range(file.num_record_batches)) if numbered else file:
        yield batch.select(wanted)


@contextlib.contextmanager
def _local(source: Source, name: str, *, header: bool = False) -> Iterator[Path]:
    """A shard as a file of this machine: itself, or a copy; with `header`, of its beginning alone."""
    if source.local:
        yield Path(source.path(name))
        return
    with tempfile.TemporaryDirectory() as folder, source.filesystem.open_input_file(source.path(name)) as file:
        copy, size = Path(folder, PurePosixPath(name).name), file.size()
        with copy.open("wb") as target:
            if header:
                length = file.read(8)
                target.write(length + file.read(min(size, int.from_bytes(length, "little"))))
                target.truncate(size)
            else:
                shutil.copyfileobj(file, target, _BUFFER)
        yield copy


@contextlib.contextmanager
def _parquet(source: Source, name: str) -> Iterator[Any]:
    path = source.path(name)
    with Parquet(path) if source.local else source.filesystem.open_input_file(path) as opened:
        yield opened if source.local else _InBucket(opened, f"{source.address}: {name}")


@contextlib.contextmanager
def _arrow(source: Source, name: str) -> Iterator[Any]:
    """Arrow's file format, or its stream format, which `datasets` writes; a local file is mapped, not read."""
    path = source.path(name)
    with pa.memory_map(path) if source.local else source.filesystem.open_input_file(path) as opened:
        with reading(f"{source.address}: {name}", "an Arrow file", reason=True):
            whole = opened.read(6) == b"ARROW1"
            opened.seek(0)
            reader = pa.ipc.open_file(opened) if whole else pa.ipc.open_stream(opened)
        yield reader


class _InBucket:
    """A Parquet file that is one's own, in a bucket: what it becomes is not judged page by page beforehand."""

    def __init__(self, opened: pa.NativeFile, where: str) -> None:
        with reading(where, "a Parquet file", reason=True):
            self._file = pq.ParquetFile(opened, buffer_size=_BUFFER, pre_buffer=False)
        self.schema: pa.Schema = self._file.schema_arrow
        self.rows: int = self._file.metadata.num_rows

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(1024, columns=columns)
        return batches
