"""Reads tables, records and files of arrays that are to be audited, and the features in their columns."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import FACTS, is_number
from hardsight.cleaning.samples import Samples, distinct
from hardsight.files import parse_json
from hardsight.files.arrays import npy_array, npz_arrays, tensor_arrays
from hardsight.files.plain import read_csv
from hardsight.records import read_json, read_table, record_files, require_column

# Files that hold several arrays by name.
STORED = (".npz", ".safetensors")
# A column of more different texts holds names or sentences, not categories.
MOST_CATEGORIES = 100


def arrow_table(source: Any) -> pa.Table:
    """A table of pandas, polars, pyarrow or anything else with the Arrow protocol."""
    if isinstance(source, pa.Table):
        return source
    if any(hasattr(source, f"__arrow_c_{kind}__") for kind in ("stream", "array")) or hasattr(source, "iterrows"):
        return pa.table(source)
    raise TypeError(
        "source must be a table that speaks Arrow (pandas, polars, pyarrow), a path, or left out beside labels; got "
        f"{type(source).__name__}"
    )


def read_samples(path: Path | str) -> Samples:
    """The table in the folder of a run or an audit, or in a Parquet or CSV file, with the names of its classes."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no run folder and no table at {path}")
    if not path.is_dir():
        table = read_rows(path)
        try:
            names = parse_json((table.schema.metadata or {}).get(b"class names", b"null"))
        except ValueError as error:
            raise ValueError(
                f"{path} must hold its 'class names' as a JSON list in the schema's metadata: {error}"
            ) from None
        return Samples(table=table, class_names=distinct(names), name=path.stem, path=path)
    record, samples = record_files(path)
    if not samples.is_file():
        raise FileNotFoundError(
            f"{path} holds no {samples.name}: it is no run record, or the run kept no samples; "
            "a folder of images is scored first, by hardsight score"
        )
    details = read_json(record) if record.is_file() else {}
    details = details if isinstance(details, dict) else {}
    name = str(details.get("name") or path.resolve().name)
    return Samples(table=read_table(samples), class_names=distinct(details.get("class_names")), name=name, path=path)


def read_rows(path: Path | str) -> pa.Table:
    """The rows of a Parquet or CSV table."""
    path = Path(path)
    if path.suffix in (".npy", ".json"):
        raise ValueError(f"{path} must be a table, Parquet or CSV, or an .npz or safetensors file with labels")
    if path.suffix != ".csv":
        return read_table(path)
    # A text like "NA" stays text: it may be the name of a class.
    return read_csv(path, strings_can_be_null=True, null_values=[""])


def array_of(name: str, value: Any, columns: Sequence[str] = ()) -> Any:
    """A column's name, or an array, as it is; else the array of a file: .npy stays on the disk, the others are read."""
    if not isinstance(value, str | Path) or str(value) in columns:
        return value
    path = Path(value)
    if not path.exists():
        has = f", and the table has {', '.join(columns)}" if columns else ""
        raise ValueError(
            f"{name} must name a column or a .npy, .npz or safetensors file; {str(value)!r} is neither{has}"
        )
    if path.suffix == ".npy":
        npy_array(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if path.suffix not in STORED:
        raise ValueError(f"{name} must lie in a column, or a .npy, .npz or safetensors file; got {path}")
    arrays = arrays_of(path)
    matrices = [key for key, array in arrays.items() if array.ndim == 2]
    key = name if name in arrays else matrices[0] if len(matrices) == 1 else None
    if key is None:
        raise ValueError(f"{name} must be the one matrix of {path}, or be called so in it; it has {', '.join(arrays)}")
    return arrays[key]


def arrays_of(path: Path) -> dict[str, Any]:
    """The arrays of an .npz or a safetensors file by name; halves of safetensors may be tensors of bfloat16."""
    stored = npz_arrays(path) if path.suffix == ".npz" else tensor_arrays(path)
    found: dict[str, Any] = {}
    for key, array in stored.items():
        if array is not None:
            values = array.read()
            found[key] = values if values.dtype.kind in "US" else array.tensor_of(values)
    return found


def features_of_table(table: pa.Table, named: Any, besides: Collection[str | None]) -> Any:
    """A column of lists or a file as it is named; other columns, one or several, as numbers on one scale.

    "all" is every one of `columns_of_rows`.
    """
    if isinstance(named, str) and named == "all" and named not in table.column_names:
        return features_of_columns(table, columns_of_rows(table, besides))
    if isinstance(named, str) and named in table.column_names and not pa.types.is_nested(table.field(named).type):
        named = [named]
    if isinstance(named, list | tuple) and all(isinstance(one, str) for one in named):
        return features_of_columns(table, named)
    return array_of("features", named, table.column_names)


def features_of_columns(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """One row per sample: every column centred, and scaled so that each varies as much as any other.

    Numbers and truth values become one column each. Texts become one for each category, and a missing text is a
    category of its own. A missing number is NaN, so its sample is left out and listed. Constant columns tell nothing.
    """
    parts = []
    for name in names:
        require_column(table, name)
        values = _values(name, table.column(name).combine_chunks()).astype(np.float64)
        # Without the samples that are left out.
        known = values[np.isfinite(values).all(1)]
        # A power of two, so that no bit changes, and the largest numbers have a variance.
        exponent = -np.frexp(np.abs(known).max(initial=0))[1]
        known, values = np.ldexp(known, exponent), np.ldexp(values, exponent)
        spread = np.sqrt(known.var(0).sum()) if len(known) else 1.0
        if spread > 0:
            parts.append(((values - known.mean(0)) / spread if len(known) else values).astype(np.float32))
    if not parts:
        raise ValueError(f"features must name columns that differ between samples; {', '.join(names)} are constant")
    return np.concatenate(parts, axis=1)


def columns_of_rows(table: pa.Table, besides: Collection[str | None]) -> list[str]:
    """The columns of numbers, truth values and categories but those in `besides`, ids, and what is known."""
    names = [name for name in table.column_names if name not in {*besides, *FACTS, "path", "domain"}]
    found = [name for name in names if _is_feature(table.column(name))]
    if not found:
        raise ValueError(f"features must be columns of numbers or categories; the table has {', '.join(names)}")
    return found


def _values(name: str, column: pa.Array) -> np.ndarray:
    if not _is_feature(column):
        raise TypeError(
            f"features must name columns of numbers, or of at most {MOST_CATEGORIES} different texts; {name!r} holds "
            f"{column.type}"
        )
    if is_number(column.type) or pa.types.is_boolean(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))[:, None]
    codes = _encoded(column).indices.to_numpy()
    return np.asarray(np.eye(codes.max(initial=0) + 1, dtype=np.float32)[codes])


def _is_feature(column: pa.Array | pa.ChunkedArray) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    few = text and len(_encoded(column).dictionary) <= MOST_CATEGORIES
    return bool(few or is_number(column.type) or pa.types.is_boolean(column.type))


def _encoded(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Texts as codes; a missing text has a code too."""
    texts = column.cast(pa.large_string())
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return texts.dictionary_encode(null_encoding="encode")
