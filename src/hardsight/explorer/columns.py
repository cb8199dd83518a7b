"""The columns of a table as the page needs them: numbers with their bins, classes as codes, texts by row.

They are made once and kept beside the table as plain Arrow files, which are mapped into memory: opening them again
reads nothing, and a million rows cost the columns that are looked at. The table's hash says whether they still hold.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.explorer.features import holds_features, places_of, read_directions
from hardsight.explorer.query import MISSING, binned, bounds
from hardsight.files import parse_json, read_json, reading
from hardsight.files.parquet import Parquet, Shards, open_table, table_files, text_metadata
from hardsight.records import check_ids, sync_folder, write_json

_VERSION = 2
CLASSES = ("label", "expected", "predicted", "clean_label")
_TEXTS = frozenset({"path", "text", "reasons"})
_NAMES = {"label_name": "label", "expected_name": "expected"}
# A column of text with more different values is shown and searched, and is no list to choose from.
_WHOLE = re.compile(r"0|-?[1-9]\d{0,19}", re.ASCII)
_MOST_VALUES, _MOST_CLASSES, _MOST_KINDS = 1000, 65_000, 15
# A whole number that takes few values is a list to choose from, and so is one that names a group.
_FEW_NUMBERS, _GROUPS = 32, frozenset({"duplicate_group"})
_PLACES = frozenset({"x", "y", "pca_x", "pca_y", "umap_x", "umap_y"})


@dataclass(frozen=True)
class Column:
    """A column as the page knows it; `role` is number, list, several, text, id, neighbours or features.

    A number is binned between `low` and `high`; `values` are those of a list (of a code, a bit), as text.
    """

    name: str
    role: str
    title: str
    kind: str = ""
    direction: str = ""
    low: float = 0.0
    high: float = 1.0
    values: list[str] = field(default_factory=list)


class Columns:
    """The columns of a table, mapped from the files that `open_columns` made of them."""

    def __init__(self, folder: Path, details: dict[str, Any]) -> None:
        self.folder = folder
        self.rows = int(details["rows"])
        self.class_names: list[str] = details["class_names"]
        self.all = {one["name"]: Column(**one) for one in details["columns"]}
        self._number = {name: at for at, name in enumerate(self.all)}
        self._mapped: dict[str, pa.RecordBatch] = {}

    def of(self, *roles: str) -> list[Column]:
        return [one for one in self.all.values() if one.role in roles]

    def arrow(self, name: str, part: str = "value") -> pa.Array:
        """A column as it is kept: `value`, and of a number also `bin`."""
        if name not in self._mapped:
            file = pa.memory_map(str(self.folder / f"{self._number[name]:04d}.arrow"))
            self._mapped[name] = pa.ipc.open_file(file).get_batch(0)
        return self._mapped[name].column(part)

    def array(self, name: str, part: str = "value") -> np.ndarray:
        """A column without gaps as an array, not copied."""
        found: np.ndarray = self.arrow(name, part).to_numpy(zero_copy_only=True)
        return found

    def texts(self, name: str, rows: Sequence[int] | np.ndarray) -> list[Any]:
        """A column's values at some rows; None where there is none."""
        found: list[Any] = self.arrow(name).take(pa.array(rows, pa.int64())).to_pylist()
        return found

    @cached_property
    def _by_id(self) -> np.ndarray:
        """The rows in the order of their ids: of ten million ids a dictionary would take more than a gigabyte."""
        order: np.ndarray = pc.sort_indices(self.arrow("id")).to_numpy()
        return order

    def row_of(self, identity: Any) -> int | None:
        """The row of an id, also where a whole number is given as text; None where there is none."""
        ids = self.arrow("id")
        identity = str(identity)
        if pa.types.is_integer(ids.type):
            if not _WHOLE.fullmatch(identity):
                return None
            identity = int(identity)
        # Arrow orders text by its bytes in UTF-8, Python by code points: these are the same order.
        at = bisect_left(self._by_id, identity, key=lambda row: ids[int(row)].as_py())
        row = int(self._by_id[at]) if at < self.rows else None
        return row if row is not None and ids[row].as_py() == identity else None


def digest_of(table: Path) -> str:
    found = []
    for path in table_files(table):
        with path.open("rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return " ".join(found)


def open_columns(table: Path) -> Columns:
    """The columns of a table: those kept beside it where they are of these very bytes, else made now.

    Where nothing can be written beside the table they are kept as long as the process lives.
    """
    digest = digest_of(table)
    folder = table.with_name(f".{table.stem}.explore")
    with contextlib.suppress(OSError, ValueError):
        kept = read_json(folder / "columns.json")
        wanted = {"digest": digest, "version": _VERSION, "bytes": _sizes(folder)}
        if isinstance(kept, dict) and all(kept.get(name) == value for name, value in wanted.items()):
            return Columns(folder, kept)
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{table.stem}.draft-", dir=table.parent))
    except OSError:
        draft = folder = Path(tempfile.mkdtemp(prefix="hardsight-explore-"))
    try:
        details = _make(table, draft) | {"digest": digest, "version": _VERSION, "bytes": _sizes(draft)}
        write_json(draft / "columns.json", details)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if draft != folder:
        shutil.rmtree(folder, ignore_errors=True)
        # Where somebody else has put theirs there meanwhile, ours are used where they are.
        with contextlib.suppress(OSError):
            os.replace(draft, folder)
            draft = folder
        sync_folder(table.parent)
    return Columns(draft, details)


def _sizes(folder: Path) -> list[int]:
    """The bytes of each column's file: one that was cut off must not be mapped."""
    return [path.stat().st_size for path in sorted(folder.glob("*.arrow"))]


def _make(table: Path, folder: Path) -> dict[str, Any]:
    """Read the table a column at a time and write what the page needs of each."""
    with open_table(table) as file:
        if "id" not in file.schema.names:
            raise ValueError(f"{table} must have a column 'id'; it has {', '.join(file.schema.names) or 'none'}")
        if not file.rows:
            raise ValueError(f"{table} must have at least one row; it has none")
        classes = _classes(file)
        columns: list[Column] = []
        for one in file.schema:
            if one.name in _NAMES:
                continue
            for column, arrays in _parts(one, file, classes):
                batch = pa.record_batch(list(arrays.values()), names=list(arrays))
                path = str(folder / f"{len(columns):04d}.arrow")
                with pa.OSFile(path, "wb") as target, pa.ipc.new_file(target, batch.schema) as out:
                    out.write_batch(batch)
                columns.append(column)
        return {
            "rows": file.rows,
            "class_names": [str(one) for one in _names(file, classes)],
            "columns": [asdict(column) for column in columns],
        }


def _parts(one: pa.Field, file: Parquet | Shards, classes: list[Any]) -> Iterator[tuple[Column, dict[str, pa.Array]]]:
    """A column and what is kept of it; nothing where its type says nothing to people."""
    kind, written = one.type, text_metadata(one)
    if holds_features(one):
        yield from _features(one, file)
        return
    facts: dict[str, Any] = {
        "name": one.name,
        "title": written.get("title") or one.name.replace("_", " ").capitalize(),
        "kind": written.get("kind") or ("place" if one.name in _PLACES else ""),
        "direction": written.get("direction", ""),
    }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type):
            values, bits = _several(_read(file, one.name))
            yield Column(role="several", values=values, **facts), {"value": pa.array(bits)}
        elif one.name == "neighbours" and pa.types.is_integer(kind.value_type):
            yield Column(role="neighbours", **facts), {"value": _read(file, one.name)}
        return
    column = _read(file, one.name) if not pa.types.is_nested(kind) else None
    if column is None:
        return
    if one.name == "id":
        check_ids(column)
        kept = column if pa.types.is_integer(column.type) else column.cast(pa.large_string())
        yield Column(role="id", **facts), {"value": kept}
    elif one.name in CLASSES and classes:
        codes = _codes(column, classes)
        yield Column(role="list", values=[str(each) for each in classes], **facts), {"value": pa.array(codes)}
    elif pa.types.is_floating(column.type) or (
        pa.types.is_integer(column.type) and not _is_list(one.name, column, written)
    ):
        wide = pa.float32() if pa.types.is_float32(column.type) or pa.types.is_float16(column.type) else pa.float64()
        yield _number(column.cast(wide, safe=False).to_numpy(zero_copy_only=False), facts)
    else:
        yield _text_or_list(column, facts)


def _features(one: pa.Field, file: Parquet | Shards) -> Iterator[tuple[Column, dict[str, pa.Array]]]:
    """The directions of features, and two coordinates or four, unless the table has coordinates of these names."""
    directions = read_directions(file, one.name)
    if directions is None:
        return
    flat, dimensions = pa.array(directions.reshape(-1)), directions.shape[1]
    kept = {"value": pa.FixedSizeListArray.from_arrays(flat, dimensions)}
    yield Column(name=one.name, role="features", title=one.name), kept
    for name, title, values in places_of(directions):
        if name not in file.schema.names:
            yield _number(values, {"name": name, "title": title, "kind": "place"})


def _number(numbers: np.ndarray, facts: dict[str, Any]) -> tuple[Column, dict[str, pa.Array]]:
    low, high = bounds(numbers)
    kept = {"value": pa.array(numbers, from_pandas=False), "bin": pa.array(binned(numbers, low, high))}
    return Column(role="number", low=low, high=high, **facts), kept


def _is_list(name: str, column: pa.Array, written: dict[str, str]) -> bool:
    if name in _GROUPS:
        return len(column.unique()) <= _MOST_VALUES
    return written.get("kind") != "score" and len(column.slice(0, 10_000).unique()) <= _FEW_NUMBERS and (
        len(column.unique()) <= _FEW_NUMBERS
    )  # fmt: skip


def _text_or_list(column: pa.Array, facts: dict[str, Any]) -> tuple[Column, dict[str, pa.Array]]:
    texts = column.cast(pa.large_string())
    several = facts["name"] not in _TEXTS and len(texts.slice(0, 10 * _MOST_VALUES).unique()) <= _MOST_VALUES
    values = texts.drop_null().unique() if several else None
    if not values or len(values) > min(_MOST_VALUES, max(_FEW_NUMBERS, len(texts) // 4)):
        return Column(role="text", **facts), {"value": texts}
    listed = sorted(values.to_pylist(), key=lambda one: (int(one), one) if _WHOLE.fullmatch(one) else (1 << 64, one))
    return Column(role="list", values=listed, **facts), {"value": pa.array(_codes(texts, listed))}


def _several(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The values that occur in lists of text, and for each row a bit for each of them."""
    flat, parent = column.flatten(), pc.list_parent_indices(column)
    counted = flat.value_counts().to_pylist()
    values = [one["values"] for one in sorted(counted, key=lambda one: -one["counts"]) if one["values"] is not None]
    values, bits = sorted(values[:_MOST_KINDS]), np.zeros(len(column), np.uint16)
    for at, value in enumerate(values):
        bits[parent.filter(pc.equal(flat, value)).to_numpy()] |= 1 << at
    return values, bits


def _classes(file: Parquet | Shards) -> list[Any]:
    """The values of all columns of classes, sorted; none where there are more than codes."""
    found: set[Any] = set()
    for name in CLASSES:
        if name in file.schema.names:
            kind = file.schema.field(name).type
            if pa.types.is_nested(kind):
                raise ValueError(
                    f"column {name!r} of {file.path} must hold classes as whole numbers or text; it holds {kind}"
                )
            found |= set(_as_class(_read(file, name)).unique().to_pylist()) - {None}
    ordered = sorted(found if len({type(one) for one in found}) <= 1 else map(str, found))
    return ordered if len(ordered) <= _MOST_CLASSES else []


def _names(file: Parquet | Shards, classes: list[Any]) -> list[Any]:
    """What people call the classes: by the columns of names, else by the list in the table's metadata."""
    called: dict[Any, str] = {}
    for names, column in _NAMES.items():
        both = [file.schema.field(one).type for one in (column, names) if one in file.schema.names]
        if len(both) == 2 and not any(map(pa.types.is_nested, both)):
            pairs = pa.table({"class": _read(file, column), "name": _read(file, names)}).group_by(["class", "name"])
            called |= {row["class"]: row["name"] for row in pairs.aggregate([]).to_pylist() if row["name"] is not None}
    listed: Any = None
    with contextlib.suppress(ValueError):
        listed = parse_json(text_metadata(file.schema).get("class names", "null"))
    listed = listed if isinstance(listed, list) else []
    return [called.get(one) or (listed[one] if isinstance(one, int) and one < len(listed) else one) for one in classes]


def _codes(column: pa.Array, values: list[Any]) -> np.ndarray:
    """Each value's place among `values`; as many as there are values where there is none."""
    known = pa.array(values)
    found = pc.fill_null(pc.index_in(_as_class(column).cast(known.type), known), len(values))
    codes: np.ndarray = found.to_numpy().astype(np.uint8 if len(values) < MISSING else np.uint16)
    return codes


def _as_class(column: pa.Array) -> pa.Array:
    """Whole numbers from 0 on, or text; a negative number is no label."""
    if pa.types.is_integer(column.type):
        wide = column.cast(pa.int64())
        return pc.if_else(pc.less(wide, 0), None, wide)
    return column.cast(pa.large_string())


def _read(file: Parquet | Shards, name: str) -> pa.Array:
    """A column in one piece; read some rows after others, for what is kept of a row is far less than what it takes."""
    kind = file.schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    # The offsets of shorter text end at two gigabytes; bytes are text where they are UTF-8.
    kind = pa.large_string() if pa.types.is_string(kind) or pa.types.is_binary(kind) else kind
    with reading(file.path, "a table of samples", reason=True):
        pieces = [batch.column(0).cast(kind) for batch in file.batches([name])]
    return pa.concat_arrays(pieces) if pieces else pa.array([], kind)


def state_of(table: Path) -> list[tuple[int, int]]:
    """Sizes and times of the table's files: others, where one has been written over, has grown or is gone."""
    try:
        found = [path.stat() for path in table_files(table)]
    except (OSError, ValueError):
        return []
    return [(one.st_size, one.st_mtime_ns) for one in found]
