"""Reads what is to be audited: a run's record, a table of scores, or a table of labelled data with its arrays."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from hardsight.cleaning.columns import score_names
from hardsight.cleaning.labelled import Labelled, labelled_table, shown_columns, with_label, with_shown
from hardsight.cleaning.scored import Scored, read_scored, written_names
from hardsight.files import LARGEST_TEXT, plain_file
from hardsight.files.arrays import npy_array, npz_arrays, tensor_arrays
from hardsight.files.parquet import Parquet
from hardsight.records import read_table


def read_audited(
    path: Path | str,
    *,
    label: str = "label",
    features: Any = None,
    probabilities: Any = None,
    text: str | None = None,
    show: Sequence[str] = (),
    groups: Any = None,
    class_names: Sequence[str] | None = None,
) -> Scored | Labelled:
    """Scores, where the path is a run's folder or a table that has some; else labels beside features or probabilities.

    A table is Parquet or CSV. `features` and `probabilities` name a column, or a .npy file with a row for each of the
    table's; `label`, `text`, `show` and `groups` name columns.
    """
    path = Path(path)
    named = features is not None or probabilities is not None
    if path.is_dir() or not path.exists():
        if named:
            raise ValueError(f"features and probabilities must be left out, they go with a table; {path} is none")
        return _shown(read_scored(path), label, text, show)
    table = _read_csv(path) if path.suffix == ".csv" else None
    columns = _schema(path) if table is None else table
    if not named and (score_names(columns) or (table is None and not _is_data(columns, label))):
        scored = read_scored(path) if table is None else Scored(table, None, path.stem, path)
        return _shown(scored, label, text, show)
    table = read_table(path) if table is None else table
    if class_names is None:
        class_names = written_names(table, path)
    return labelled_table(
        table,
        label=label,
        features=array_of("features", features, table.column_names),
        probabilities=array_of("probabilities", probabilities, table.column_names),
        text=text,
        show=show,
        groups=groups,
        class_names=class_names,
    )


def _schema(path: Path) -> pa.Table:
    """The table without its rows; what is no Parquet file is left to `read_scored`, which says so."""
    try:
        with Parquet(path) as file:
            return file.schema.empty_table()
    except ValueError:
        return pa.table({})


def _is_data(columns: pa.Table, label: str) -> bool:
    """Whether a table without scores is one of labelled data, and none of probabilities by numbered classes."""
    if "features" in columns.column_names or label != "label":
        return True
    return "label" in columns.column_names and not pa.types.is_integer(columns.schema.field("label").type)


def _shown(scored: Scored, label: str, text: str | None, show: Sequence[str]) -> Scored:
    table = with_label(scored.table, label)
    return replace(scored, table=with_shown(table, shown_columns(table, text, show)))


def _read_csv(path: Path) -> pa.Table:
    size = plain_file(path).stat().st_size
    if size > LARGEST_TEXT:
        raise ValueError(
            f"{path} must be at most {LARGEST_TEXT:,} bytes to be read as CSV; it has {size:,}: use Parquet"
        )
    try:
        return csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=True, null_values=[""]))
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a CSV table: {error}") from None


def read_rows(path: Path | str) -> pa.Table:
    """The rows of a Parquet or CSV table."""
    path = Path(path)
    return _read_csv(path) if path.suffix == ".csv" else read_table(path)


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
    if path.suffix not in (".npz", ".safetensors"):
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
