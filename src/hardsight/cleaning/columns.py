"""Reads score tables: which columns are scores, their values turned so that larger is harder, ranks, means by group."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hardsight.hardness import SCORES
from hardsight.records import is_shown, require_column

# What samplers, issues and slices treat as facts about a sample, never as a score of it.
FACTS = frozenset({"id", "label", "predicted", "expected", "clean_label", "split", "suspicion", "rank"})
# Resamples of a group's mean; values of one block of them: 2**18 indices are 2 MiB, which a core's cache holds.
_RESAMPLES, _BLOCK = 1000, 2**18


def direction_of(field: pa.Field) -> bool | None:
    """Whether larger is harder: from the column's own description, else from the registry; None where nobody says."""
    written = (field.metadata or {}).get(b"direction", b"")
    if written in (b"larger is harder", b"larger is easier"):
        return bool(written == b"larger is harder")
    return SCORES[field.name].larger_is_harder if field.name in SCORES else None


def score_names(table: pa.Table) -> list[str]:
    """The columns that are scores with a known direction, in the table's order."""
    numbers = [field for field in table.schema if field.name not in FACTS and is_number(field.type)]
    return [field.name for field in numbers if not is_shown(field) and direction_of(field) is not None]


def title_of(field: pa.Field) -> str:
    """The score's name for people: as its column says, else as the registry does, else the column's name."""
    written: str = (field.metadata or {}).get(b"title", b"").decode(errors="replace")
    return written or (SCORES[field.name].title if field.name in SCORES else field.name)


def hardness_values(table: pa.Table, name: str) -> np.ndarray:
    """A score column as float64, its sign turned so that larger is harder; what is null is NaN."""
    require_column(table, name)
    field = table.schema.field(name)
    if not is_number(field.type):
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
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not text and not pa.types.is_integer(column.type):
        raise TypeError(f"column {name!r} must hold classes as integers or text; it holds {column.type}")
    if column.null_count:
        raise ValueError(
            f"column {name!r} must be filled, one class for each sample; {column.null_count} of {len(column)} are null"
        )
    return np.asarray(column.to_numpy())


def matrix_of(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """The lists as rows, copied once and in the precision they have; a missing list, or number, becomes NaN."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise TypeError(f"column {name!r} must hold a list of numbers for each sample; it holds {kind}")
    if not is_number(kind.value_type):
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
    share[known] = (rankdata(values[known]) - 1) / (count - 1) if count > 1 else 0.5
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


def hardness_by_group(table: pa.Table, score: str, by: str = "label", *, generator: torch.Generator) -> pa.Table:
    """Mean of a score in each group of the column `by`, with its 95 % bootstrap interval; hardest group first.

    Columns: group, count, missing (samples without the score), mean, low, high (the interval's ends), difference
    (mean of the group minus mean of all others). Means are of the score as it stands in the table; the order is by
    hardness. Fewer than 2 samples have no interval, and without others there is no difference: null. Infinite scores,
    which have no mean, are rejected. The order of the table's rows does not matter.
    """
    require_rows(table)
    require_column(table, by)
    kind = table.schema.field(by).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(kind):
        raise TypeError(f"by must name a column of single values; {by!r} holds {kind}")
    hardness = hardness_values(table, score)
    infinite = int(np.isinf(hardness).sum())
    if infinite:
        raise ValueError(
            f"score must be finite or missing where means are taken; {score!r} is infinite for {infinite} of "
            f"{len(hardness)} samples"
        )
    sign = 1.0 if direction_of(table.schema.field(score)) else -1.0
    values = sign * hardness
    encoded = table.column(by).cast(kind).combine_chunks().dictionary_encode(null_encoding="encode")
    codes, names = np.asarray(encoded.indices), encoded.dictionary.to_pylist()
    members = np.split(np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(names)).cumsum()[:-1])
    total, known = np.nansum(values), int((~np.isnan(values)).sum())
    rows = []
    # Resamples are drawn by place, group after group: both in an order that is not the rows'.
    for code in sorted(range(len(names)), key=lambda one: repr(names[one])):
        own = np.sort(values[members[code]])
        own = own[~np.isnan(own)]
        others = known - len(own)
        row = {"group": names[code], "count": len(members[code]), "missing": len(members[code]) - len(own)}
        row |= dict.fromkeys(("mean", "low", "high", "difference"))
        if len(own):
            row["mean"] = float(own.mean())
        if len(own) > 1:
            means = bootstrap_means(own, _RESAMPLES, generator)
            row["low"], row["high"] = np.quantile(means, [0.025, 0.975]).tolist()
        if len(own) and others:
            row["difference"] = float(row["mean"] - (total - own.sum()) / others)
        rows.append(row)
    rows.sort(key=lambda row: -np.inf if row["mean"] is None else sign * row["mean"], reverse=True)
    kinds = {"group": kind, "count": pa.int64(), "missing": pa.int64()}
    kinds |= dict.fromkeys(("mean", "low", "high", "difference"), pa.float64())
    about = {"score": title_of(table.schema.field(score)), "by": by}
    return pa.Table.from_pylist(rows, pa.schema(kinds.items(), metadata=about))


def bootstrap_means(values: np.ndarray, resamples: int, generator: torch.Generator) -> np.ndarray:
    """Means of `resamples` samples of the values, each as large as they are and drawn with replacement."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    block = max(1, _BLOCK // len(values))
    means = np.empty(resamples)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = torch.randint(len(values), (rows, len(values)), generator=generator)
        # Not by torch: the last bit of its mean depends on the number of threads.
        means[start : start + rows] = values[drawn.numpy()].mean(1)
    return means


def is_number(kind: pa.DataType) -> bool:
    number: bool = pa.types.is_floating(kind) or pa.types.is_integer(kind)
    return number
