"""Samples with features, labels and ids: columns of Arrow's tables, or arrays in a file, as tensors."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from hardsight.files.arrays import StoredArray

FEATURES, LABELS, IDS = "features", ("label", "labels"), ("id", "ids")


class Rows(NamedTuple):
    """Some samples."""

    features: Tensor
    labels: Tensor | None
    ids: pa.Array | None


def first_of(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The first of these names that is a column."""
    return next((name for name in names if name in columns), None)


def rows_of_table(table: pa.Table, where: object, features: str = FEATURES, *, labelled: bool = True) -> Rows:
    """The samples of a table; `where` names it in sentences."""
    if features not in table.column_names:
        raise ValueError(f"{where} must have a column {features!r}; it has {', '.join(table.column_names) or 'none'}")
    label = first_of(LABELS, table.column_names) if labelled else None
    key = first_of(IDS, table.column_names)
    ids = None if key is None else filled(table.column(key).combine_chunks(), key, where)
    matrix = _features_of(table, features, where)
    if label is None:
        return Rows(matrix, None, ids)
    column = table.column(label)
    if not pa.types.is_integer(column.type):
        raise TypeError(f"column {label!r} of {where} must hold classes as whole numbers; it holds {column.type}")
    return Rows(matrix, tensor_of(filled(column, label, where).to_numpy().astype(np.int64, copy=False)), ids)


def rows_of_arrays(arrays: Mapping[str, StoredArray], rows: int, where: object) -> Iterator[Rows]:
    """The samples in a file of arrays, so many after others."""
    features, held = arrays[FEATURES], list(arrays)
    label, key = first_of(LABELS, held), first_of(IDS, held)
    for name in (label, key):
        if name is not None and arrays[name].shape != features.shape[:1]:
            raise ValueError(f"{name} of {where} must be one for each of its {features.shape[0]} samples")
    labels, ids = (None if name is None else arrays[name].read() for name in (label, key))
    start = 0
    for piece in features.pieces(rows):
        place = slice(start, start + len(piece))
        own = None if labels is None or label is None else arrays[label].tensor_of(labels[place])
        yield Rows(features.tensor_of(piece), own, None if ids is None else pa.array(ids[place]))
        start += len(piece)


def _features_of(table: pa.Table, name: str, where: object) -> Tensor:
    chunks, field = table.column(name).chunks, table.schema.field(name)
    if isinstance(field.type, pa.ExtensionType):
        chunks, field = [one.storage for one in chunks], field.with_type(field.type.storage_type)
    check_lists(field, where)
    matrices = [matrix_of(one, field, where) for one in chunks or [pa.array([], field.type)]]
    if len({matrix.shape[1] for matrix in matrices}) > 1:
        raise ValueError(f"column {name!r} of {where} must have lists of one length; they differ")
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices)


def matrix_of(column: pa.Array, field: pa.Field, where: object, length: int | None = None) -> Tensor:
    """Lists of one length, `length` where that is known, as a matrix of floats."""
    values = filled(filled(column, field.name, where).flatten(), field.name, where)
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) > 1 or length not in (None, *lengths):
        raise ValueError(f"column {field.name!r} of {where} must have lists of one length; they differ")
    if is_bfloat16(field):
        flat = from_dlpack(values.view(pa.int16())).view(torch.bfloat16)
    elif pa.types.is_floating(values.type) and len(values):
        # Without a copy: nobody writes into features.
        flat = from_dlpack(values)
    else:
        flat = tensor_of(values.to_numpy(zero_copy_only=False))
    fixed = field.type.list_size if pa.types.is_fixed_size_list(field.type) else 0
    return flat.reshape(len(column), *(lengths or [length or fixed]))


def check_lists(field: pa.Field, where: object) -> None:
    """The column holds a list of numbers for each sample."""
    kind = field.type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not listed or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise ValueError(f"column {field.name!r} of {where} must be a list of numbers for each sample; it is {kind}")


def is_bfloat16(field: pa.Field) -> bool:
    """Whether a column's lists hold bfloat16, which Arrow does not know: 16 bits each, and a word in the metadata."""
    return field.type.value_type == pa.uint16() and (field.metadata or {}).get(b"dtype") == b"bfloat16"


def filled(column: Any, name: str, where: object) -> Any:
    """The column, in which nothing may be missing."""
    if column.null_count:
        raise ValueError(f"column {name!r} of {where} must be filled; {column.null_count} of {len(column)} are null")
    return column


def tensor_of(values: np.ndarray) -> Tensor:
    """An array as a tensor: torch knows few of the unsigned integers, and no memory that is read-only."""
    values = values.astype(np.int64) if values.dtype.kind == "u" else values
    return torch.from_numpy(np.require(values, requirements="W"))


NO_IDS = "ids must be text, or whole numbers that fit 64 bits with one sign"


def id_column(ids: Any) -> pa.Array:
    """Ids as Arrow holds them: hashes of 64 bits, which it would reject as int64, without their sign."""
    column = ids.tolist() if isinstance(ids, Tensor) else ids
    for kind in (None, pa.uint64()):
        if not isinstance(column, pa.Array):
            with contextlib.suppress(OverflowError, pa.ArrowException):
                column = pa.array(column, kind)
    if not isinstance(column, pa.Array):
        raise ValueError(NO_IDS)
    whole = pa.types.is_integer(column.type)
    if whole or pa.types.is_floating(column.type):
        with contextlib.suppress(pa.ArrowInvalid):
            return column.cast(pa.int64() if whole else pa.float64())
    return column
