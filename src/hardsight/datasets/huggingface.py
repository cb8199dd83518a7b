"""Hugging Face data set folders: Parquet files with encoded images, class names in the schema.

An image column is a struct of `bytes` and `path`, or plain bytes. The schema's `huggingface` metadata names the
features; a `ClassLabel` carries its class names. Nothing but Parquet is read: loading scripts are never run.
"""

import bisect
import dataclasses
import functools
import itertools
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.datasets.interface import FileDataset, Size
from hardsight.files import parse_json, quoted, reading
from hardsight.files.parquet import Parquet

# A larger number is no class but an identity, a hash or a date.
_MOST_CLASSES = 1_000_000
# Some names end in a hash of what the file holds.
_PART = re.compile(r"(?P<split>.+)-(?P<number>\d{1,9})-of-(?P<count>\d{1,9})(-|$)")
_KINDS = ("Image", "ClassLabel")
_LABEL_NAMES = ("label", "labels", "fine_label")
# Threads that decode a set in order come to a new row group together: one reads it, the others wait for that.
_READING = threading.Lock()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ParquetDataset(FileDataset):
    """Images encoded in Parquet files; `paths` are `file#row`, and a few row groups are kept at a time."""

    image_column: str

    def read_bytes(self, index: int) -> bytes:
        """The encoded image in the row."""
        file, _, row = self.paths[index].rpartition("#")
        starts = _row_group_starts(self.root / file)
        group = bisect.bisect_right(starts, int(row)) - 1
        with _READING:
            rows = _row_group(self.root / file, group, self.image_column)
        with reading(self.root / file, "a whole Parquet file"):
            value = rows[int(row) - starts[group]].as_py()
        data: bytes | None = value.get("bytes") if isinstance(value, dict) else value
        if not data:
            raise ValueError("the row holds no image bytes")
        return data

    def _packed(self) -> int:
        files = {path.rpartition("#")[0] for path in self.paths}
        return sum((self.root / file).stat().st_size for file in files)


def read_huggingface(
    folder: Path | str,
    split: str = "train",
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    size: Size = None,
) -> ParquetDataset:
    """The split's Parquet files, `data/train-00000-of-00002.parquet` or `<config>/train/0000.parquet`, in sorted order.

    Columns left out are found by the schema. Every other column of whole numbers that int64 can hold goes to `columns`.
    """
    folder = Path(folder)
    # Kept of files that may have been written again since.
    _row_group_starts.cache_clear()
    _row_group.cache_clear()
    files = _files(folder, split)
    with Parquet(files[0]) as opened:
        schema = opened.schema
    features = _features(schema)
    shaped = [field.name for field in schema if _holds_images(field.type)]
    declared = {kind: [name for name in schema.names if _kind(features, name) == kind] for kind in _KINDS}
    image = image_column or next(iter(declared["Image"] + shaped), "")
    named = [name for name in _LABEL_NAMES if name in schema.names]
    label = label_column or next(iter(named + declared["ClassLabel"]), "")
    for what, column in (("image", image), ("label", label)):
        if column not in schema.names:
            raise ValueError(
                f"{what}_column must be a column of {files[0]}, one of {', '.join(schema.names)}; got {column!r}"
            )
    extra = [field.name for field in schema if pa.types.is_integer(field.type) and field.name != label]
    tables = [_read(file, [label, *extra], schema) for file in files]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"the files of the split {split!r} in {folder} must have columns of the same types") from error
    if not pa.types.is_integer(table[label].type):
        raise ValueError(f"the label column must hold whole numbers; got {table[label].type}")
    labels = _whole_numbers(table[label])
    if labels is None:
        raise ValueError(f"the column {label!r} must count classes from 0; it holds numbers beyond int64")
    numbers = {name: _whole_numbers(table[name]) for name in extra}
    paths = [
        f"{file.relative_to(folder).as_posix()}#{row}"
        for file, part in zip(files, tables, strict=True)
        for row in range(len(part))
    ]
    return ParquetDataset(
        root=folder,
        paths=tuple(paths),
        labels=labels,
        class_names=_class_names(features, label, labels),
        columns={name: column for name, column in numbers.items() if column is not None},
        name=folder.resolve().name,
        split=split,
        size=size,
        image_column=image,
    )


def splits(folder: Path | str) -> tuple[str, ...]:
    """The splits that the folder's Parquet files name."""
    found = {_split_of(path) for path in Path(folder).rglob("*.parquet")}
    return tuple(sorted(found))


def _files(folder: Path, split: str) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} is not there")
    files = sorted(path for path in folder.rglob("*.parquet") if _split_of(path) == split)
    if not files:
        there = ", ".join(splits(folder)) or "no Parquet file at all"
        raise FileNotFoundError(f"{folder} holds no Parquet file of the split {split!r}; it holds {there}")
    parents = {path.parent if path.parent.name != split else path.parent.parent for path in files}
    if len(parents) > 1:
        configurations = ", ".join(sorted(str(parent.relative_to(folder)) for parent in parents))
        raise ValueError(f"{folder} holds several configurations ({configurations}): give the folder of one of them")
    _check_all_parts(files)
    return files


def _check_all_parts(files: Sequence[Path]) -> None:
    """Reject `train-00000-of-00002.parquet` alone: half a split would pass for the whole."""
    parts: dict[str, list[re.Match[str]]] = {}
    for path in files:
        if match := _PART.match(path.stem):
            parts.setdefault(match["count"], []).append(match)
    for count, matches in parts.items():
        there = {int(match["number"]) for match in matches}
        missing = next(number for number in itertools.count() if number not in there)
        if missing < int(count):
            name = f"{matches[0]['split']}-{missing:0{len(matches[0]['number'])}d}-of-{count}.parquet"
            raise FileNotFoundError(f"{files[0].with_name(name)} is not there, and its split has {int(count)} parts")


def _split_of(path: Path) -> str:
    """`train-00000-of-00002.parquet` and `train/0000.parquet` are both of the split "train"."""
    stem = path.stem
    return path.parent.name if stem.isdecimal() else stem.split("-")[0]


def _read(file: Path, columns: list[str], schema: pa.Schema) -> pa.Table:
    with Parquet(file) as opened:
        if opened.schema.names != schema.names:
            raise ValueError(f"{file} must have the columns of the split's first file, {quoted(schema.names)}")
        return opened.read(columns).replace_schema_metadata(None)


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    try:
        features = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _kind(features: Mapping[str, Any], name: str) -> str:
    feature = features.get(name)
    return feature.get("_type", "") if isinstance(feature, dict) else ""


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return "bytes" in [kind.field(position).name for position in range(kind.num_fields)]
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _class_names(features: Mapping[str, Any], label: str, labels: Tensor) -> tuple[str, ...]:
    feature = features.get(label)
    if isinstance(feature, dict) and isinstance(feature.get("names"), list):
        return tuple(str(name) for name in feature["names"])
    count = int(labels.max()) + 1 if len(labels) else 0
    if count > _MOST_CLASSES:
        raise ValueError(f"the column {label!r} must count classes from 0, or name them in the schema; got {count - 1}")
    return tuple(str(number) for number in range(count))


def _whole_numbers(column: pa.ChunkedArray) -> Tensor | None:
    """The numbers as int64; None where that cannot hold them: a hash, say."""
    try:
        signed = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    # Hugging Face writes -1 where a test set's labels are withheld; a null says the same.
    return torch.from_numpy(signed.fill_null(-1).to_numpy().astype(np.int64))


@functools.lru_cache(maxsize=64)
def _row_group_starts(file: Path) -> Sequence[int]:
    with Parquet(file) as opened:
        return list(itertools.accumulate(opened.group_sizes(), initial=0))[:-1]


@functools.lru_cache(maxsize=4)
def _row_group(file: Path, group: int, column: str) -> pa.ChunkedArray:
    with Parquet(file) as opened:
        return opened.read_group(group, column)
