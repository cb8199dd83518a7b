"""Reads score tables: which columns are scores, which way they point, their values turned so that larger is harder."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.hardness import SCORES
from hardsight.records import is_shown, require_column

# What samplers, issues and slices treat as facts about a sample, never as a score of it.
FACTS = frozenset({"id", "label", "predicted", "expected", "clean_label", "split", "suspicion", "rank"})


def direction_of(field: pa.Field) -> bool | None:
    """Whether larger is harder: from the column's own description, else from the registry; None where nobody says."""
    written = (field.metadata or {}).get(b"direction", b"")
    if written in (b"larger is harder", b"larger is easier"):
        return bool(written == b"larger is harder")
    return SCORES[field.name].larger_is_harder if field.name in SCORES else None


def score_names(table: pa.Table) -> list[str]:
    """The columns that are scores with a known direction, in the table's order."""
    return [
        field.name
        for field in table.schema
        if field.name not in FACTS
        and _is_number(field.type)
        and not is_shown(field)
        and direction_of(field) is not None
    ]


def title_of(field: pa.Field) -> str:
    """The score's name for people: as its column says, else as the registry does, else the column's name."""
    written: str = (field.metadata or {}).get(b"title", b"").decode(errors="replace")
    return written or (SCORES[field.name].title if field.name in SCORES else field.name)


def hardness_values(table: pa.Table, name: str) -> np.ndarray:
    """A score column as float64, its sign turned so that larger is harder; what is null is NaN."""
    require_column(table, name)
    field = table.schema.field(name)
    if not _is_number(field.type):
        raise TypeError(f"score must name a column of numbers; {name!r} holds {field.type}")
    harder = direction_of(field)
    if harder is None:
        raise ValueError(
            f"score must name a column that says its direction; {name!r} has neither a 'direction' in its metadata "
            "nor a registered score's name"
        )
    values: np.ndarray = table.column(name).cast(pa.float64()).to_numpy()
    return values if harder else -values


def hardness_for(table: pa.Table, score: str, ids: Sequence[Any] | Tensor) -> Tensor:
    """A score of the samples with these ids, in their order, larger is harder: what the samplers take, float64."""
    require_column(table, "id")
    hardness = hardness_values(table, score)
    wanted = ids.tolist() if isinstance(ids, Tensor) else list(ids)
    where = {one: at for at, one in enumerate(table.column("id").to_pylist())}
    if len(where) != table.num_rows:
        raise ValueError(
            f"table must have each id once; {table.num_rows - len(where)} of {table.num_rows} rows repeat one"
        )
    missing = [one for one in wanted if one not in where]
    if missing:
        raise ValueError(f"table must have a row for every id; {len(missing)} are missing, first {missing[0]!r}")
    return torch.from_numpy(hardness[[where[one] for one in wanted]])


def labels_of(table: pa.Table, name: str = "label") -> np.ndarray:
    """A column of classes as an array of integers or text; rejects one with nulls."""
    require_column(table, name)
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (
        pa.types.is_integer(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ):
        raise TypeError(f"column {name!r} must hold classes as integers or text; it holds {column.type}")
    if column.null_count:
        raise ValueError(
            f"column {name!r} must be filled, one class for each sample; {column.null_count} of {len(column)} are null"
        )
    values: np.ndarray = column.to_numpy()
    return values


def require_rows(table: pa.Table) -> None:
    """One sentence where a table is none, or is empty."""
    if not isinstance(table, pa.Table):
        raise TypeError(
            "table must be a pyarrow.Table with id, label and scores, as score_model, score_file and a recorder make "
            f"it; got {type(table).__name__}"
        )
    if table.num_rows == 0:
        raise ValueError("table must have at least one row; it has none")


def share_below(values: np.ndarray) -> np.ndarray:
    """For each value the share of the others below it, ties counted half: in [0, 1], NaN where the value is NaN.

    This equals (rank - 1) / (n - 1) with average ranks; a single value gets 0.5. Unchanged by any increasing map.
    """
    from scipy.stats import rankdata

    share = np.full(len(values), np.nan)
    known = ~np.isnan(values)
    count = int(known.sum())
    if count == 1:
        share[known] = 0.5
    elif count:
        share[known] = (rankdata(values[known]) - 1) / (count - 1)
    return share


def share_below_within(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """`share_below` of each sample among those of its own group."""
    share = np.full(len(values), np.nan)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(groups[order][1:] != groups[order][:-1]) + 1
    for members in np.split(order, starts):
        share[members] = share_below(values[members])
    return share


def rank_average(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over the scores of each sample's `share_below`: no score's scale counts. A missing score is left out."""
    shares = np.stack([share_below(column) for column in columns])
    known = ~np.isnan(shares)
    counted = known.sum(0)
    total = np.where(known, shares, 0.0).sum(0)
    return np.where(counted > 0, total / np.maximum(counted, 1), np.nan)


def _is_number(kind: pa.DataType) -> bool:
    number: bool = pa.types.is_floating(kind) or pa.types.is_integer(kind)
    return number
