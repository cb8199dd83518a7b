"""Features of a table's own columns: numbers on one scale, categories as a column each."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import FACTS
from hardsight.cleaning.reading import array_of
from hardsight.records import require_column

# A column of more different texts holds names or sentences, not categories.
MOST_CATEGORIES = 100


def features_of_table(table: pa.Table, named: Any, besides: Collection[str | None]) -> Any:
    """A column of lists or a file as it is named; other columns, one or several, as numbers on one scale.

    "all" is every column of numbers, truth values and categories but those in `besides`, ids, and what is known.
    """
    if isinstance(named, str) and named == "all" and named not in table.column_names:
        return features_of_columns(table, columns_of_rows(table, {*besides, *FACTS, "path", "domain"}))
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
        values = _values(name, table.column(name).combine_chunks())
        # Without the samples that are left out.
        known = values[np.isfinite(values).all(1)].astype(np.float64)
        spread = np.sqrt(known.var(0).sum()) if len(known) else 1.0
        if spread > 0:
            parts.append(((values - known.mean(0)) / spread if len(known) else values).astype(np.float32))
    if not parts:
        raise ValueError(f"features must name columns that differ between samples; {', '.join(names)} are constant")
    return np.concatenate(parts, axis=1)


def columns_of_rows(table: pa.Table, besides: Collection[str | None]) -> list[str]:
    """The columns of numbers, truth values and categories, besides the id and those that are named."""
    names = [field.name for field in table.schema if field.name != "id" and field.name not in besides]
    found = [name for name in names if _is_number(table.field(name).type) or _is_category(table.column(name))]
    if not found:
        raise ValueError(f"features must be columns of numbers or categories; the table has {', '.join(names)}")
    return found


def _values(name: str, column: pa.Array) -> np.ndarray:
    if _is_number(column.type):
        numbers: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers[:, None]
    if not _is_category(column):
        raise TypeError(
            f"features must name columns of numbers, or of at most {MOST_CATEGORIES} different texts; {name!r} holds "
            f"{column.type}"
        )
    codes = _encoded(column).indices.to_numpy()
    categories: np.ndarray = np.eye(codes.max(initial=0) + 1, dtype=np.float32)[codes]
    return categories


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_category(column: pa.Array | pa.ChunkedArray) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(text) and len(_encoded(column).dictionary) <= MOST_CATEGORIES


def _encoded(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Texts as codes; a missing text has a code too."""
    texts = column.cast(pa.large_string())
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return texts.dictionary_encode(null_encoding="encode")
