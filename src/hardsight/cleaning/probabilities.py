"""Probabilities beside a table: read from its column or an argument, and turned into scores where it has none."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hardsight.cleaning.columns import score_names
from hardsight.cleaning.confident import check_probabilities, in_pieces

COLUMN = "probabilities"


def beliefs_of(table: pa.Table, given: Tensor | np.ndarray | None = None) -> Tensor | None:
    """Probabilities [samples, classes]: those given, else those of the table's list column; None without either."""
    if given is None and COLUMN in table.column_names:
        given = matrix_of(table.column(COLUMN), COLUMN)
    if given is None:
        return None
    beliefs = torch.as_tensor(given).detach().cpu()
    if beliefs.ndim != 2 or len(beliefs) != table.num_rows:
        raise ValueError(
            f"probabilities must be [samples, classes] with a row for each of the {table.num_rows} rows of the table; "
            f"got {list(beliefs.shape)}"
        )
    kind = table.schema.field("label").type
    if not pa.types.is_integer(kind):
        raise TypeError(f"label must be integers, the columns of probabilities; the table holds {kind}")
    return beliefs


def with_scores(table: pa.Table, beliefs: Tensor | None) -> pa.Table:
    """The table with `confidence`, `margin`, `el2n` and `predicted` of the probabilities, where it has no score.

    None needs logits: the margin is the logarithm of the label's probability over the largest other. A sample without a
    label has none.
    """
    if beliefs is None or score_names(table):
        return table
    known = table.column("label").is_valid().to_numpy(zero_copy_only=False)
    labels = torch.from_numpy(np.array(pc.fill_null(table.column("label"), 0).to_numpy(), np.int64))
    check_probabilities(beliefs, labels)
    for name, values in zip(("confidence", "margin", "el2n"), in_pieces(_scores, beliefs, labels), strict=True):
        table = table.append_column(name, pa.array(values.numpy(), mask=~known))
    if "predicted" not in table.column_names:
        table = table.append_column("predicted", pa.array(beliefs.argmax(1).numpy()))
    return table


def _scores(beliefs: Tensor, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    beliefs = beliefs.double()
    logarithms = beliefs.clamp_min(torch.finfo(torch.float64).tiny).log()
    other = logarithms.scatter(1, column, -torch.inf).amax(1)
    error = beliefs.scatter_add(1, column, torch.full(column.shape, -1.0, dtype=beliefs.dtype))
    margin = logarithms.gather(1, column).squeeze(1) - other
    return beliefs.gather(1, column).squeeze(1), margin, torch.linalg.vector_norm(error, dim=1)


def matrix_of(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """The lists as rows, copied once and in the precision they have; a missing list, or number, becomes NaN."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise TypeError(f"column {name!r} must hold a list of numbers for each sample; it holds {kind}")
    if not len(column):
        raise ValueError("table must have at least one row; it has none")
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise TypeError(f"column {name!r} must hold lists of numbers; it holds {kind}")
    lengths = pc.unique(pc.list_value_length(column)).drop_null().to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"column {name!r} must hold one list for each sample, all of one length")
    narrow = kind.value_type in (pa.float16(), pa.float32())
    matrix = np.full((len(column), lengths[0]), np.nan, np.float32 if narrow else np.float64)
    start = 0
    for chunk in column.chunks:
        filled = start + np.flatnonzero(chunk.is_valid().to_numpy(zero_copy_only=False))
        rows = chunk.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(len(filled), lengths[0])
        matrix[slice(start, start + len(chunk)) if len(filled) == len(chunk) else filled] = rows
        start += len(chunk)
    return matrix
