"""Hugging Face data set folders: Parquet files with encoded images, class names in the schema.

An image column is a struct of `bytes` and `path`, or plain bytes. The schema's `huggingface` metadata names the
features; a `ClassLabel` carries its class names. Nothing but Parquet is read: loading scripts are never run.
"""

import bisect
import contextlib
import dataclasses
import functools
import itertools
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.datasets.formats import Size
from hardsight.datasets.interface import FileDataset
from hardsight.files import parse_json, quoted, reading
from hardsight.files.parquet import Parquet
from hardsight.names import check_name

# A larger number is no class but an identity, a hash or a date.
_MOST_CLASSES = 1_000_000
# Some names end in a hash of what the file holds.
_PART = re.compile(r"(?P<split>.+)-(?P<number>\d{1,9})-of-(?P<count>\d{1,9})(-|$)")
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
    folder: Path | str, split: str = "train", *, image_column: str | None = None, label_column: str | None = None,
    size: Size = None,
) -> ParquetDataset:  # fmt: skip
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
    declared = {name: feature.get("_type") for name, feature in features.items()}
    images = [name for name, kind in declared.items() if kind == "Image"]
    images += [field.name for field in schema if _holds_images(field.type)]
    image = image_column or next(iter(images), "")
    named = [name for name in _LABEL_NAMES if name in schema.names]
    label = label_column or next(iter(named + [name for name, kind in declared.items() if kind == "ClassLabel"]), "")
    for what, column in (("image_column", image), ("label_column", label)):
        check_name(what, column, schema.names, f"columns of {files[0]}")
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
        root=folder, paths=tuple(paths), labels=labels,
        class_names=_class_names(features.get(label, {}).get("names"), label, labels),
        columns={name: column for name, column in numbers.items() if column is not None}, name=folder.resolve().name,
        split=split, size=size, image_column=image,
    )  # fmt: skip


def splits(folder: Path | str) -> tuple[str, ...]:
    """The splits that the folder's Parquet files name."""
    return tuple(sorted({_split_of(path) for path in Path(folder).rglob("*.parquet")}))


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
    # Without `train-00001-of-00002.parquet` half a split would pass for the whole.
    parts: dict[str, list[re.Match[str]]] = {}
    for path in files:
        if match := _PART.match(path.stem):
            parts.setdefault(match["count"], []).append(match)
    for count, matches in parts.items():
        numbers = {int(match["number"]) for match in matches}
        missing = next(number for number in itertools.count() if number not in numbers)
        if missing < int(count):
            name = f"{matches[0]['split']}-{missing:0{len(matches[0]['number'])}d}-of-{count}.parquet"
            raise FileNotFoundError(f"{files[0].with_name(name)} is not there, and its split has {int(count)} parts")
    return files


def _split_of(path: Path) -> str:
    """`train-00000-of-00002.parquet` and `train/0000.parquet` are both of the split "train"."""
    stem = path.stem
    return path.parent.name if stem.isdecimal() else stem.split("-")[0]


def _read(file: Path, columns: list[str], schema: pa.Schema) -> pa.Table:
    with Parquet(file) as opened:
        if opened.schema.names != schema.names:
            raise ValueError(f"{file} must have the columns of the split's first file, {quoted(schema.names)}")
        return opened.read(columns).replace_schema_metadata(None)


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """What the metadata say of the columns, in the order of the columns."""
    try:
        features = dict(parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"])
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: features[name] for name in schema.names if isinstance(features.get(name), dict)}


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return "bytes" in [kind.field(position).name for position in range(kind.num_fields)]
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _class_names(names: Any, label: str, labels: Tensor) -> tuple[str, ...]:
    if isinstance(names, list):
        return tuple(map(str, names))
    count = int(labels.max()) + 1 if len(labels) else 0
    if count > _MOST_CLASSES:
        raise ValueError(f"the column {label!r} must count classes from 0, or name them in the schema; got {count - 1}")
    return tuple(str(number) for number in range(count))


def _whole_numbers(column: pa.ChunkedArray) -> Tensor | None:
    """The numbers as int64; None where that cannot hold them: a hash, say."""
    with contextlib.suppress(pa.ArrowInvalid):
        # Hugging Face writes -1 where a test set's labels are withheld; a null says the same.
        return torch.from_numpy(column.cast(pa.int64()).fill_null(-1).to_numpy().astype(np.int64))
    return None


@functools.lru_cache(maxsize=64)
def _row_group_starts(file: Path) -> Sequence[int]:
    with Parquet(file) as opened:
        return list(itertools.accumulate(opened.group_sizes(), initial=0))[:-1]


@functools.lru_cache(maxsize=4)
def _row_group(file: Path, group: int, column: str) -> pa.ChunkedArray:
    with Parquet(file) as opened:
        return opened.read_group(group, column)
