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
import binascii
import functools
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor

from hardsight.engines.streaming import ScoreColumns, id_column
from hardsight.files import LARGEST_MAPPED, plain_file
from hardsight.hardness.registry import parts_of
from hardsight.hardness.scoring import DEFAULT_SCORES, choose_scores
from hardsight.hardness.summary import summarise
from hardsight.records import ROWS_OF_LISTS, atomic_path, open_parquet
from hardsight.validation import check_features_and_weight, check_labels

HEAD_KEY = b"hardsight.head"
ENDINGS = (".npz", ".safetensors", ".parquet")
_SINGULAR = {"label": "labels", "id": "ids"}
_NAMES = frozenset({"features", "weight", "bias", "labels", "ids", *_SINGULAR})


@dataclass(frozen=True)
class FeatureFile:
    """What a file held; None where it did not hold it."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None = None
    labels: Tensor | None = None
    ids: list[Any] | None = None


def score_file(path: Path | str, scores: Sequence[str] = DEFAULT_SCORES, *, head: Path | str | None = None) -> pa.Table:
    """Every sample's scores as a table, the same as `score_model` gives: id, label, predicted, one column per score."""
    chosen = choose_scores(scores)
    read = read_features(path, head)
    check_features_and_weight(read.features, read.weight, read.bias)
    if read.labels is not None:
        check_labels(read.labels, len(read.features), len(read.weight))
    summary = summarise(read.features, read.weight, read.labels, read.bias, parts=parts_of(chosen) | {"predicted"})
    columns = ScoreColumns()
    columns.add(summary, read.labels is not None, read.ids)
    return columns.table(chosen)


def read_features(path: Path | str, head: Path | str | None = None) -> FeatureFile:
    """Features, head and labels of one file, the head of a second one where given."""
    path = Path(path)
    arrays = _read(path)
    if head is not None:
        arrays |= {name: value for name, value in _read(Path(head)).items() if name in ("weight", "bias")}
    missing = [name for name in ("features", "weight") if name not in arrays]
    if missing:
        hint = "; give the head's file with --head-file" if missing == ["weight"] and head is None else ""
        if "logits" in arrays:
            hint = "; logits alone have no angles: hardsight.hardness scores them, and hardsight audit takes the table"
        elif "probabilities" in arrays:
            hint = "; probabilities alone have no angles: hardsight audit takes them as a column of lists"
        raise ValueError(f"{path} must hold {' and '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}{hint}")
    text = [
        name for name in ("features", "weight", "bias", "labels") if not isinstance(arrays.get(name), Tensor | None)
    ]
    if text:
        raise TypeError(f"{text[0]} of {path} must be numbers; it holds text")
    ids = arrays.get("ids")
    if ids is not None:
        shape = list(np.shape(ids))
        if shape != [len(arrays["features"])]:
            raise ValueError(f"ids of {path} must be one for each sample, {len(arrays['features'])}; got shape {shape}")
    features, weight, bias = _one_precision(arrays["features"], arrays["weight"], arrays.get("bias"))
    return FeatureFile(features, weight, bias, arrays.get("labels"), ids)


def _one_precision(features: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """All in the finest of their precisions: features saved as float64 and a float32 head multiply otherwise not."""
    given = [each for each in (features, weight, bias) if each is not None]
    if not all(isinstance(each, Tensor) and each.is_floating_point() for each in given):
        return features, weight, bias
    common = functools.reduce(torch.promote_types, (each.dtype for each in given))
    return features.to(common), weight.to(common), None if bias is None else bias.to(common)


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
    own = {} if numbers is None else {"ids": _as_array(numbers)}
    with atomic_path(path) as temporary:
        if path.suffix == ".npz":
            np.savez(temporary, **{name: value.numpy() for name, value in tensors.items()}, **own)  # type: ignore[arg-type]
        elif path.suffix == ".safetensors":
            save_file(tensors | {name: torch.as_tensor(values) for name, values in own.items()}, temporary)
        else:
            pq.write_table(_as_table(tensors, numbers), temporary)


def _as_array(ids: Sequence[Any]) -> np.ndarray:
    column = id_column(ids)
    return np.array(column.to_numpy() if pa.types.is_integer(column.type) else list(ids))


def _as_table(tensors: dict[str, Tensor], ids: Sequence[Any] | None) -> pa.Table:
    features = tensors["features"]
    values = pa.array(features.numpy().reshape(-1))
    columns = {"features": pa.FixedSizeListArray.from_arrays(values, features.shape[1])}
    if "labels" in tensors:
        columns["labels"] = pa.array(tensors["labels"].numpy())
    if ids is not None:
        columns["ids"] = id_column(ids)
    head = save({name: tensors[name] for name in ("weight", "bias") if name in tensors})
    return pa.table(columns).replace_schema_metadata({HEAD_KEY: base64.b64encode(head)})


def _read(path: Path) -> dict[str, Any]:
    path = _known(path)
    if not path.exists():
        raise FileNotFoundError(f"the file {path} is not there")
    plain_file(path, LARGEST_MAPPED)
    arrays = {".npz": _read_npz, ".safetensors": _read_safetensors, ".parquet": _read_parquet}[path.suffix](path)
    for one, many in _SINGULAR.items():
        if one in arrays and many in arrays:
            raise ValueError(f"{path} must hold {many} once; it holds {many} and {one}")
    return {_SINGULAR.get(name, name): value for name, value in arrays.items()}


def _known(path: Path) -> Path:
    if path.suffix not in ENDINGS:
        hint = "; np.savez('features.npz', features=..., weight=..., labels=...) puts arrays together"
        raise ValueError(
            f"the file must end in {', '.join(ENDINGS)}; got {path.name!r}{hint if path.suffix == '.npy' else ''}"
        )
    return path


def _read_npz(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    try:
        # Opened here: NumPy leaves the file open where it turns out not to be an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in archive.files:
                try:
                    # What is not read is named all the same, so that a refusal can say what the file holds.
                    arrays[name] = archive[name] if name in _NAMES else None
                except ValueError as error:
                    if "allow_pickle" not in str(error):
                        raise
                    raise _NeedsUnpicklingError(name) from None
    except _NeedsUnpicklingError as needs:
        raise ValueError(
            f"{path} would need unpickling, which can run code: {needs} holds Python objects, not numbers"
        ) from None
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError) as error:
        pickled = "pickle" in str(error)
        state = "would need unpickling, which can run code" if pickled else "is truncated or is not an .npz file"
        raise ValueError(f"{path} {state}") from None
    return {name: None if value is None else _values(name, value, path) for name, value in arrays.items()}


class _NeedsUnpicklingError(Exception):
    pass


def _values(name: str, values: np.ndarray, path: Path) -> Any:
    """Numbers as a tensor; text, and ids of either kind, as Python's own: a hash of 64 bits has no place in int64."""
    ids = _SINGULAR.get(name, name) == "ids"
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{name} of {path} must be UTF-8 where they are text") from None
    if values.dtype.kind == "U" or (ids and values.dtype.kind in "iuf"):
        return values.tolist()
    if values.dtype.kind not in "iufbc" or ids:
        raise TypeError(f"{name} of {path} must be numbers{' or text' if ids else ''}; it holds {values.dtype}")
    return _tensor(values)


def _tensor(values: np.ndarray) -> Tensor:
    # Files may be written on machines of the other byte order, and torch knows no unsigned integers of most sizes.
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if values.dtype == np.longdouble:
        values = values.astype(np.float64)
    if values.dtype.kind == "u":
        values = values.astype(np.int64)
    # Arrow's memory is read-only, which torch has no word for.
    return torch.from_numpy(np.require(values, requirements=("C", "W")))


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        tensors = load_file(path)
        return {
            name: value.tolist() if _SINGULAR.get(name, name) == "ids" else value for name, value in tensors.items()
        }
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is truncated or is not a safetensors file: {error}") from None


def _read_parquet(path: Path) -> dict[str, Any]:
    try:
        with open_parquet(path) as file:
            schema = file.schema_arrow
            wanted = [name for name in schema.names if _SINGULAR.get(name, name) in ("features", "labels", "ids")]
            table = file.read(columns=[name for name in wanted if name != "features"])
            features = _matrix(file, path) if "features" in wanted else None
    except (pa.ArrowException, OSError):
        raise ValueError(f"{path} is truncated or is not a Parquet file") from None
    # What is not read is named all the same, so that a refusal can say what the file holds; a column is never the head.
    arrays: dict[str, Any] = {name: None for name in schema.names if name not in (*wanted, "weight", "bias")}
    for name in wanted:
        if name == "features":
            arrays[name] = features
            continue
        column = table.column(name).combine_chunks()
        _refuse_gaps(name, column.null_count, len(column), path)
        numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        labels = numbers and _SINGULAR.get(name, name) == "labels"
        arrays[name] = _tensor(column.to_numpy()) if labels else column.to_pylist()
    return arrays | _head_of(schema, path)


def _refuse_gaps(name: str, missing: int, rows: int, path: Path) -> None:
    if missing:
        raise ValueError(f"column {name!r} of {path} must be filled; {missing} of {rows} are null")


def _matrix(file: pq.ParquetFile, path: Path) -> Tensor:
    """The features, some rows after others: the column beside the matrix would be the same gigabytes again."""
    kind, rows = file.schema_arrow.field("features").type, file.metadata.num_rows
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not listed or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise ValueError(f"column 'features' of {path} must be a list of numbers for each sample; it is {kind}")
    if rows == 0:
        raise ValueError(f"{path} must hold at least one sample; it holds none")
    matrix, filled, gaps, missing = None, 0, 0, 0
    for batch in file.iter_batches(ROWS_OF_LISTS, columns=["features"]):
        column = batch.column(0)
        values = column.flatten()
        gaps, missing = gaps + column.null_count, missing + values.null_count
        if gaps or missing:
            continue
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(lengths) > 1 or (matrix is not None and lengths[0] != matrix.shape[1]):
            raise ValueError(f"column 'features' of {path} must have lists of one length; they differ")
        part = _tensor(values.to_numpy()).reshape(len(column), lengths[0])
        if matrix is None:
            matrix = part.new_empty(rows, lengths[0])
        matrix[filled : filled + len(part)] = part
        filled += len(part)
    _refuse_gaps("features", gaps, rows, path)
    if missing or matrix is None:
        raise ValueError(f"column 'features' of {path} must be filled; {missing} numbers are null")
    if not matrix.shape[1]:
        raise ValueError(f"column 'features' of {path} must have at least one number per sample; it has none")
    return matrix


def _head_of(schema: pa.Schema, path: Path) -> dict[str, Tensor]:
    written = (schema.metadata or {}).get(HEAD_KEY)
    if written is None:
        return {}
    try:
        return dict(load(base64.b64decode(written, validate=True)))
    except (binascii.Error, SafetensorError) as error:
        raise ValueError(
            f"{path} must hold its head as base64 of safetensors in {HEAD_KEY.decode()!r}: {error}"
        ) from None
