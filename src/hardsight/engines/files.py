"""Features, head and labels in files: read to be scored, written to be handed over.

| name | shape | |
|---|---|---|
| `features` | [samples, dim], float | what goes into the head |
| `weight` | [classes, dim], float | the head's weight |
| `bias` | [classes], float | optional |
| `labels` | [samples], integer | optional: without them, against the predicted class |
| `ids` | [samples], integer or, in npz and Parquet, text | optional: without them, positions from 0 |

An `.npz` or `.safetensors` file holds arrays of these names. A Parquet file holds one row per sample in the columns
`features` (a list, all of one length), `labels` and `ids`; its head lies in a second file (`.npz` or `.safetensors`
with `weight` and `bias`), or in the schema's metadata under `hardsight.head`: a safetensors file of both, in base64.
Singular names, `label` and `id`, are read too. Nothing is unpickled.
"""

import base64
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save, save_file
from torch import Tensor

from hardsight.engines.rows import check_lists, filled, id_column, matrix_of, tensor_of
from hardsight.engines.streaming import ScoreColumns
from hardsight.files import check_unpacked, plain_file
from hardsight.files.arrays import StoredArray, npz_arrays, tensor_arrays
from hardsight.files.parquet import Parquet
from hardsight.hardness.registry import parts_of
from hardsight.hardness.scoring import DEFAULT_SCORES, choose_scores
from hardsight.hardness.summary import summarise
from hardsight.records import atomic_path
from hardsight.validation import check_finite, check_head, check_labels, check_layout

HEAD_KEY = b"hardsight.head"
ENDINGS = (".npz", ".safetensors", ".parquet")
_SINGULAR = {"label": "labels", "id": "ids"}
_NAMES = frozenset({"features", "weight", "bias", "labels", "ids", *_SINGULAR})


# Numbers of the features that are held at once while they are scored: 32 MiB of float32.
_PIECE = 1 << 23
# Bytes of what is found out about a sample, without its features.
_A_SAMPLE = 128


@dataclass(frozen=True)
class FeatureFile:
    """What a file holds; None where it does not hold it. The features stay where they are until they are asked for.

    `stored` gives them as the file has them, so many rows after others.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    stored: Callable[[int], Iterator[Tensor]]
    weight: Tensor
    bias: Tensor | None = None
    labels: Tensor | None = None
    ids: pa.Array | None = None

    def pieces(self) -> Iterator[Tensor]:
        """Some rows of the features after others, in the finest precision that the head and they have."""
        rows = max(1, _PIECE // max(1, *self.shape[1:], 1))
        for piece in self.stored(rows):
            yield piece.to(self.weight.dtype) if piece.is_floating_point() else piece


def score_file(path: Path | str, scores: Sequence[str] = DEFAULT_SCORES, *, head: Path | str | None = None) -> pa.Table:
    """Every sample's scores as a table, the same as `score_model` gives: id, label, predicted, one column per score.

    The features are never held as a whole: memory beyond the table does not grow with the number of samples.
    """
    chosen = choose_scores(scores)
    read = read_features(path, head)
    check_layout(torch.empty(read.shape, dtype=read.dtype, device="meta"), read.weight, read.bias)
    check_head(read.weight, read.bias)
    samples = read.shape[0]
    check_unpacked(path, samples * _A_SAMPLE, Path(path).stat().st_size)
    if read.labels is not None:
        check_labels(read.labels, samples, len(read.weight))
    columns, start = ScoreColumns(samples), 0
    for piece in read.pieces():
        check_finite("features", piece, start)
        rows = slice(start, start + len(piece))
        labels, ids = (None if each is None else each[rows] for each in (read.labels, read.ids))
        summary = summarise(piece, read.weight, labels, read.bias, parts=parts_of(chosen) | {"predicted"})
        columns.add(summary, labels is not None, ids)
        start += len(piece)
    return columns.table(chosen)


def read_features(path: Path | str, head: Path | str | None = None) -> FeatureFile:
    """Features, head and labels of one file, the head of a second one where given."""
    path = Path(path)
    arrays = _read(path)
    if head is not None:
        arrays |= {name: value for name, value in _read(Path(head)).items() if name in ("weight", "bias")}
    missing = [name for name in ("features", "weight") if arrays.get(name) is None]
    if missing:
        hint = "; give the head's file with --head" if missing == ["weight"] and head is None else ""
        if "logits" in arrays:
            hint = "; logits alone have no angles: hardsight.hardness scores them, and hardsight audit takes the table"
        elif "probabilities" in arrays:
            hint = "; probabilities alone have no angles: hardsight audit takes them as a column of lists"
        raise ValueError(f"{path} must hold {' and '.join(missing)}; it holds {_names(arrays)}{hint}")
    features = arrays["features"]
    if isinstance(features, StoredArray):
        _check_numbers(features)
        features = (features.shape, features.torch_dtype, features.tensors)
    shape, dtype, stored = features
    weight, bias, labels = (_in_memory(arrays.get(name)) for name in ("weight", "bias", "labels"))
    ids = _ids(arrays.get("ids"), path, shape[0] if shape else 0)
    given = [dtype, *(each.dtype for each in (weight, bias) if each is not None)]
    if all(one.is_floating_point for one in given):
        # The finest of their precisions: features saved as float64 and a float32 head multiply otherwise not.
        common = functools.reduce(torch.promote_types, given)
        weight, bias = weight.to(common), None if bias is None else bias.to(common)
    return FeatureFile(shape, dtype, stored, weight, bias, labels, ids)


def read_head(path: Path | str) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear head, in a file of arrays of these names."""
    arrays = _read(Path(path))
    weight, bias = (_in_memory(arrays.get(name)) for name in ("weight", "bias"))
    if weight is None:
        raise ValueError(f"head must be a file that holds weight, and bias if any; {path} holds {_names(arrays)}")
    check_head(weight, bias)
    return weight, bias


def _names(arrays: Iterable[str]) -> str:
    return ", ".join(name[:100] for name in arrays) or "nothing"


def _in_memory(array: Any) -> Any:
    """A stored array as a tensor; what is one already, or is not there, as it is."""
    if not isinstance(array, StoredArray):
        return array
    _check_numbers(array)
    return array.tensor_of(array.read())


def _check_numbers(array: StoredArray) -> None:
    if array.dtype.kind not in "iufbc":
        held = "text" if array.dtype.kind in "US" else array.dtype
        raise TypeError(f"{array.name} must be numbers; it holds {held}")


def _ids(array: Any, path: Path, samples: int) -> pa.Array | None:
    """Ids as Arrow holds them: a hash of 64 bits has no place in a tensor."""
    if array is None:
        return None
    shape = list(array.shape) if isinstance(array, StoredArray) else [len(array)]
    if shape != [samples]:
        raise ValueError(f"ids of {path} must be one for each sample, {samples}; got shape {shape}")
    if not isinstance(array, StoredArray):
        return id_column(array)
    if array.dtype.kind not in "iufUS":
        raise TypeError(f"{array.name} must be numbers or text; it holds {array.dtype}")
    values = array.read()
    values = values.astype(np.float64 if array.dtype.kind == "f" else values.dtype.newbyteorder("="), copy=False)
    column = id_column(values)
    try:
        return column.cast(pa.string()) if array.dtype.kind == "S" else column
    except pa.ArrowInvalid:
        raise ValueError(f"{array.name} must be UTF-8 where they are text") from None


def write_features(
    path: Path | str,
    features: Tensor,
    weight: Tensor,
    labels: Tensor | None = None,
    bias: Tensor | None = None,
    ids: Sequence[Any] | Tensor | None = None,
) -> None:
    """Write what `hardsight score FILE` reads; the ending of `path` chooses the format.

    NumPy and Parquet know no bfloat16: there it becomes float32, which holds it exactly.
    """
    path = _known(Path(path))
    for name, column in (("labels", labels), ("ids", ids)):
        if column is not None and len(column) != len(features):
            raise ValueError(f"{name} must be one for each of the {len(features)} samples; got {len(column)}")
    named = {"features": features, "weight": weight, "bias": bias, "labels": labels}
    tensors = {name: value.detach().cpu().contiguous() for name, value in named.items() if value is not None}
    if path.suffix != ".safetensors":
        tensors = {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in tensors.items()}
    numbers = ids.tolist() if isinstance(ids, Tensor) else ids
    if path.suffix == ".safetensors" and numbers is not None and not all(isinstance(one, int) for one in numbers):
        raise TypeError("ids must be whole numbers in a safetensors file; text goes into .npz or .parquet")
    # By way of Arrow: of 64-bit hashes, some of them small, NumPy would make floats.
    column = None if numbers is None else id_column(numbers)
    if column is not None and path.suffix != ".parquet":
        arrays = {"ids": np.array(column.to_numpy() if pa.types.is_integer(column.type) else list(numbers or ()))}
    else:
        arrays = {}
    with atomic_path(path) as temporary:
        if path.suffix == ".npz":
            np.savez(temporary, **{name: value.numpy() for name, value in tensors.items()}, **arrays)  # type: ignore[arg-type]
        elif path.suffix == ".safetensors":
            save_file(tensors | {name: torch.as_tensor(values) for name, values in arrays.items()}, temporary)
        else:
            flat = pa.array(tensors["features"].numpy().reshape(-1))
            columns = {"features": pa.FixedSizeListArray.from_arrays(flat, features.shape[1])}
            columns |= {"labels": pa.array(tensors["labels"].numpy())} if "labels" in tensors else {}
            columns |= {} if column is None else {"ids": column}
            own = save({name: tensors[name] for name in ("weight", "bias") if name in tensors})
            table = pa.table(columns).replace_schema_metadata({HEAD_KEY: base64.b64encode(own)})
            pq.write_table(table, temporary)


def _read(path: Path) -> dict[str, Any]:
    path = _known(path)
    if not path.exists():
        raise FileNotFoundError(f"the file {path} is not there")
    plain_file(path)
    read: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".npz": lambda place: npz_arrays(place, _NAMES),
        ".safetensors": lambda place: dict(tensor_arrays(place)),
        ".parquet": _read_parquet,
    }
    arrays = read[path.suffix](path)
    held = [one for name, one in arrays.items() if isinstance(one, StoredArray) and name != "features"]
    check_unpacked(path, sum(one.size for one in held), sum(one.packed for one in held))
    for one, many in _SINGULAR.items():
        if one in arrays and many in arrays:
            raise ValueError(f"{path} must hold {many} once; it holds {many} and {one}")
    return {_SINGULAR.get(name, name): value for name, value in arrays.items()}


def _known(path: Path) -> Path:
    if path.suffix not in ENDINGS:
        hint = "; np.savez('features.npz', features=..., weight=..., labels=...) puts arrays together"
        also = hint if path.suffix == ".npy" else ""
        raise ValueError(f"the file must end in {', '.join(ENDINGS)}; got {path.name!r}{also}")
    return path


def _read_parquet(path: Path) -> dict[str, Any]:
    with Parquet(path) as file:
        schema, rows = file.schema, file.rows
        wanted = [name for name in schema.names if _SINGULAR.get(name, name) in ("features", "labels", "ids")]
        table = file.read([name for name in wanted if name != "features"])
    # What is not read is named all the same, so that an error can say what the file holds; a column is never the head.
    arrays: dict[str, Any] = {name: None for name in schema.names if name not in (*wanted, "weight", "bias")}
    if "features" in wanted:
        arrays["features"] = _listed(path, schema.field("features"), rows)
    for name in table.column_names:
        column = filled(table.column(name).combine_chunks(), name, path)
        if _SINGULAR.get(name, name) == "ids":
            arrays[name] = column
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            arrays[name] = tensor_of(column.to_numpy())
        else:
            raise TypeError(f"{name} of {path} must be numbers; it holds {column.type}")
    written = (schema.metadata or {}).get(HEAD_KEY)
    if written is None:
        return arrays
    try:
        return arrays | tensor_arrays(path, base64.b64decode(written, validate=True))
    except ValueError as error:
        raise ValueError(f"{path} must hold its head as base64 of safetensors in 'hardsight.head': {error}") from None


def _listed(path: Path, field: pa.Field, rows: int) -> tuple[tuple[int, int], torch.dtype, Any]:
    """The column of lists as a matrix: its shape, its type and its rows; every list has the length of the first."""
    check_lists(field, path)
    if rows == 0:
        raise ValueError(f"{path} must hold at least one sample; it holds none")

    def matrices(length: int | None) -> Iterator[Tensor]:
        with Parquet(path) as file:
            for batch in file.batches(["features"]):
                yield matrix_of(batch.column(0), field, path, length)

    first = next(matrices(None), None)
    if first is None or not first.shape[1]:
        raise ValueError(f"column 'features' of {path} must have at least one number per sample; it has none")
    return (rows, first.shape[1]), first.dtype, lambda _: matrices(first.shape[1])
