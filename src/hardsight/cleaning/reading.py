"""Reads tables, records and files of arrays that are to be audited."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.labelled import Scored, distinct
from hardsight.files import parse_json
from hardsight.files.arrays import npy_array, npz_arrays, tensor_arrays
from hardsight.files.csv_tables import read_csv
from hardsight.records import read_json, read_table, record_files

# Files that hold several arrays by name.
STORED = (".npz", ".safetensors")


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


def read_scored(path: Path | str) -> Scored:
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
        return Scored(table, distinct(names), path.stem, path)
    record, samples = record_files(path)
    if not samples.is_file():
        raise FileNotFoundError(
            f"{path} holds no {samples.name}: it is no run record, or the run kept no samples; "
            "a folder of images is scored first, by hardsight score"
        )
    details = read_json(record) if record.is_file() else {}
    details = details if isinstance(details, dict) else {}
    name = str(details.get("name") or path.resolve().name)
    return Scored(read_table(samples), distinct(details.get("class_names")), name, path)


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
