"""Reading a record: `run.json` (of an audit `audit.json`) and the Parquet files, one column at a time.

What is missing is `None`; what is damaged raises an error that names the file.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.files import reading
from hardsight.files.parquet import Parquet, text_metadata
from hardsight.records import read_json, read_table, record_files

Direction = Literal["harder", "easier"]

_DIRECTIONS: dict[str, Direction] = {"harder": "harder", "easier": "easier"}
# Columns that are facts about a sample, not scores of it.
_FACTS = frozenset({"id", "label", "predicted", "expected", "clean_label", "split", "rank", "x", "y"})
_KINDS = "kinds"
# What the usual names mean, for tables that were written without their own description.
_KNOWN: dict[str, tuple[str, Direction]] = {
    "avh": ("Angular visual hardness", "harder"),
    "confidence": ("Model confidence", "easier"),
    "margin": ("Logit margin", "easier"),
    "angular_margin": ("Angular margin", "easier"),
    "norm": ("Feature norm", "easier"),
    "entropy": ("Entropy", "harder"),
    "loss": ("Cross-entropy loss", "harder"),
    "el2n": ("EL2N", "harder"),
    "grand": ("Last-layer GraNd", "harder"),
    "suspicion": ("Suspicion", "harder"),
}
# Pictures by how their files begin.
_PICTURES = {b"\x89PNG\r\n\x1a\n": "png", b"RIFF": "webp"}
# A page of larger ones, or of more than these together, would no longer be one that mails well.
_LARGEST_PICTURE, _PICTURES_TOGETHER = 64 * 1024, 6 * 2**20


@dataclass(frozen=True)
class Score:
    """A score column as its field describes it; `direction` is None where it is not recorded."""

    name: str
    title: str
    direction: Direction | None
    range: str | None = None

    @property
    def sign(self) -> int:
        """Multiply by it and larger is harder; an undescribed score is taken as it is."""
        return -1 if self.direction == "easier" else 1

    @property
    def reading(self) -> str:
        return f"larger is {self.direction}" if self.direction else "direction not recorded"


@dataclass(frozen=True)
class Labels:
    """The label columns as codes into one sorted list of the values that occur; -1 is no label."""

    values: list[Any]
    names: list[str]
    codes: dict[str, np.ndarray]


class Samples:
    """The samples of a run or an audit, read one column at a time: a million of them cost a few columns of memory.

    Without the file there are no samples and no columns.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.exists = path, path.exists()
        self.rows, self.schema = 0, pa.schema([])
        if self.exists:
            self._file = Parquet(path)
            self.rows, self.schema = self._file.rows, self._file.schema
            if "id" not in self.schema.names:
                raise ValueError(f"{path} must have a column 'id'; it has {', '.join(self.schema.names) or 'none'}")
        self.scores = [_described(field) for field in self.schema if _is_score(field)]

    @property
    def shown(self) -> list[str]:
        """The columns that an audit was asked to show of each sample, the text first."""
        names = [
            one.name for one in self.schema if (one.metadata or {}).get(b"kind") == b"shown" and one.name != "path"
        ]
        return sorted(names, key=lambda name: name != "text")

    @property
    def classes(self) -> int:
        """The number of classes; 0 where the table does not record it."""
        classes = text_metadata(self.schema).get("classes", "")
        return int(classes) if classes.isdecimal() else 0

    @property
    def against_predictions(self) -> bool:
        """Whether the scores measure the model's own predictions, and so say nothing about a label."""
        return text_metadata(self.schema).get("hardness against") == "predicted class"

    def __contains__(self, column: str) -> bool:
        return column in self.schema.names

    def score(self, *names: str) -> Score | None:
        by_name = {score.name: score for score in self.scores}
        return next((by_name[name] for name in names if name in by_name), None)

    def values(self, column: str) -> np.ndarray:
        """A score as float64; what is null is NaN."""
        read = self._read(column)
        try:
            values: np.ndarray = read.cast(pa.float64()).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ValueError(f"column {column!r} of {self.path} must hold numbers; it holds {read.type}") from None
        return values

    def texts(self, column: str, rows: np.ndarray) -> list[str]:
        """A column's entries at `rows`, as text; empty where there is none."""
        return ["" if value is None else str(value) for value in self._entries(column, rows)]

    def kinds(self, rows: np.ndarray) -> list[list[str]]:
        found = self._entries(_KINDS, rows) if self._has_kinds else [None] * len(rows)
        return [[str(kind) for kind in value or ()] for value in found]

    def rows_of_kinds(self) -> dict[str, np.ndarray]:
        if not self._has_kinds:
            return {}
        column = self._file.read([_KINDS]).column(_KINDS).combine_chunks()
        kinds, rows = pc.list_flatten(column), pc.list_parent_indices(column).to_numpy()
        kinds = kinds.cast(pa.string())
        found = pc.unique(kinds).to_pylist()
        return {kind: rows[pc.equal(kinds, kind).to_numpy(zero_copy_only=False)] for kind in found if kind}

    @property
    def _has_kinds(self) -> bool:
        kind = self.schema.field(_KINDS).type if _KINDS in self else pa.null()
        return pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type)

    def _entries(self, column: str, rows: np.ndarray) -> list[Any]:
        """A column's entries at `rows`, read in batches: a million file names are never held at once."""
        found, start = [None] * len(rows), 0
        if not found or column not in self:
            return found
        order = np.argsort(rows, kind="stable")
        for batch in self._file.batches([column]):
            first, last = np.searchsorted(rows[order], [start, start + len(batch)])
            places = order[first:last]
            for place, value in zip(places, batch.column(0).take(pa.array(rows[places] - start)), strict=True):
                found[place] = value.as_py()
            start += len(batch)
        return found

    def labels(self, class_names: Sequence[str]) -> Labels:
        """Every label column that holds a label, over one common list of classes; a negative number is no label."""
        columns = {name: self._read(name) for name in ("label", "expected", "predicted", "clean_label") if name in self}
        types = [column.type for column in columns.values()]
        integers = all(pa.types.is_integer(one) or pa.types.is_null(one) for one in types)
        wanted = pa.int64() if integers else pa.string()
        for name, column in columns.items():
            try:
                columns[name] = column.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise ValueError(
                    f"column {name!r} of {self.path} must hold classes as whole numbers or text; it holds {column.type}"
                ) from None
        if integers:
            columns = {name: pc.if_else(pc.less(column, 0), None, column) for name, column in columns.items()}
        columns = {name: column for name, column in columns.items() if column.null_count < len(column)}
        found = {value for column in columns.values() for value in pc.unique(column).to_pylist()}
        values = sorted(found - {None})
        known = pa.array(values, wanted)
        codes = {name: pc.fill_null(pc.index_in(column, known), -1).to_numpy() for name, column in columns.items()}
        return Labels(values, [class_name(value, class_names) for value in values], codes)

    def _read(self, column: str) -> pa.ChunkedArray:
        read = self._file.read([column]).column(column)
        return read.cast(read.type.value_type) if pa.types.is_dictionary(read.type) else read


@dataclass(frozen=True)
class Run:
    """A record: what its JSON file says, and the tables beside it that exist."""

    folder: Path
    details: Mapping[str, Any]
    samples: Samples
    epochs: pa.Table | None
    rounds: pa.Table | None

    @property
    def name(self) -> str:
        return str(self.details.get("name") or self.folder.resolve().name)

    @property
    def class_names(self) -> list[str]:
        names = self.details.get("class_names")
        return [str(name) for name in names] if isinstance(names, list) else []

    def section(self, *keys: str) -> Mapping[str, Any]:
        """A mapping inside the JSON file, empty where there is none."""
        found: Any = self.details
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}


def thumbnails(folder: Path, ids: Sequence[str]) -> dict[str, str]:
    """Pictures of these samples as data URIs, by id, the first of them that together are small enough to send."""
    path = folder / "thumbnails.parquet"
    if not path.is_file() or not ids:
        return {}
    wanted, pictures = pa.array(sorted(set(ids))), {}
    with Parquet(path) as file, reading(path, "a table of pictures"):
        for batch in file.batches(["id", "png"]):
            names = batch.column("id").cast(pa.string())
            chosen = pc.is_in(names, wanted)
            stored = batch.column("png").cast(pa.binary()).filter(chosen)
            for name, picture in zip(names.filter(chosen), stored, strict=True):
                pictures[name.as_py()] = picture.as_py() or b""
    found, together = {}, 0
    for name in ids:
        data = pictures.get(name, b"")
        kind = next((kind for start, kind in _PICTURES.items() if data.startswith(start)), None)
        together += len(data) if kind and len(data) <= _LARGEST_PICTURE else 0
        if kind and len(data) <= _LARGEST_PICTURE and together <= _PICTURES_TOGETHER:
            found[name] = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return found


def read_run(folder: Path | str) -> Run:
    """Open a record, or a Parquet table of scores alone; a folder that is neither raises an error."""
    folder = Path(folder)
    if not folder.exists():
        raise ValueError(f"there is no run record at {folder}: no such folder")
    if folder.suffix == ".parquet" and folder.is_file():
        return Run(folder.parent, {"name": folder.stem, "kind": "score"}, Samples(folder), None, None)
    path, samples = record_files(folder)
    if not path.exists():
        raise ValueError(f"{folder} is not a run record: a record is a folder that holds run.json")
    details = read_json(path)
    if not isinstance(details, dict):
        raise ValueError(f"{path} must hold a JSON object; it holds a {type(details).__name__}")
    epochs, rounds = (
        read_table(table) if table.exists() else None
        for table in (folder / "epochs.parquet", folder / "rounds.parquet")
    )
    return Run(folder, details, Samples(samples), epochs, rounds)


def class_name(value: Any, class_names: Sequence[str]) -> str:
    """The name of a class: its own when it is text or has no name, otherwise the one at its index."""
    named = isinstance(value, int) and 0 <= value < len(class_names)
    return (named and class_names[value]) or str(value)


def _is_score(field: pa.Field) -> bool:
    kind = text_metadata(field).get("kind")
    named = pa.types.is_integer(field.type) and kind == "score"
    return (
        (field.name not in _FACTS or kind == "score")
        and kind not in ("shown", "place")
        and (named or pa.types.is_floating(field.type))
    )


def _described(field: pa.Field) -> Score:
    written = text_metadata(field)
    title, usual = _KNOWN.get(field.name, (field.name.replace("_", " ").strip().capitalize(), None))
    direction = written.get("direction", "").removeprefix("larger is ")
    return Score(
        name=field.name,
        title=written.get("title") or title,
        direction=_DIRECTIONS.get(direction, usual),
        range=written.get("range"),
    )
