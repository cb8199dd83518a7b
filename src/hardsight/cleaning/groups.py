"""Hardness by group: whether a class, or the samples that share an attribute, are harder than the rest."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.columns import direction_of, hardness_values, require_column, require_rows, title_of

# Values of one block of bootstrap samples: 2**18 indices are 2 MiB, which a core's cache holds.
_BLOCK = 2**18


def hardness_by_group(
    table: pa.Table,
    score: str,
    by: str = "label",
    *,
    generator: torch.Generator,
    coverage: float = 0.95,
    resamples: int = 1000,
) -> pa.Table:
    """Mean of a score in each group of the column `by`, with its bootstrap percentile interval; hardest group first.

    Columns: group, count, missing (samples without the score), mean, low, high (the interval's ends), difference
    (mean of the group minus mean of all others). Means are of the score as it stands in the table; the order is by
    hardness. Fewer than 2 samples have no interval, and without others there is no difference: null. Infinite scores,
    which have no mean, are rejected. The order of the table's rows does not matter.
    """
    require_rows(table)
    require_column(table, by)
    if pa.types.is_nested(table.schema.field(by).type):
        raise TypeError(f"by must name a column of single values; {by!r} holds {table.schema.field(by).type}")
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie in (0, 1), the share of resamples inside the interval; got {coverage!r}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1; got {resamples!r}")
    hardness = hardness_values(table, score)
    infinite = int(np.isinf(hardness).sum())
    if infinite:
        raise ValueError(
            f"score must be finite or missing where means are taken; {score!r} is infinite for {infinite} of "
            f"{len(hardness)} samples"
        )
    sign = 1.0 if direction_of(table.schema.field(score)) else -1.0
    values = sign * hardness
    names, members = _members(table.column(by))
    total, known = np.nansum(values), int((~np.isnan(values)).sum())
    rows = []
    # Resamples are drawn by place, group after group: both in an order that is not the rows'.
    for name, positions in sorted(zip(names, members, strict=True), key=lambda group: repr(group[0])):
        own = np.sort(values[positions])
        own = own[~np.isnan(own)]
        low, high = _interval(own, generator, coverage, resamples)
        mean = float(own.mean()) if len(own) else None
        others = known - len(own)
        difference = float(mean - (total - own.sum()) / others) if mean is not None and others else None
        rows.append((name, len(positions), len(positions) - len(own), mean, low, high, difference))
    rows.sort(key=lambda row: -np.inf if row[3] is None else sign * row[3], reverse=True)
    return _table(rows, table.column(by).type, {"score": title_of(table.schema.field(score)), "by": by})


def _members(column: pa.ChunkedArray) -> tuple[list[Any], list[np.ndarray]]:
    """The different values of a column, null among them, and the rows of each."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    codes = np.asarray(encoded.indices)
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    return encoded.dictionary.to_pylist(), np.split(np.argsort(codes, kind="stable"), counts.cumsum()[:-1])


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


def _interval(
    values: np.ndarray, generator: torch.Generator, coverage: float, resamples: int
) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    means = bootstrap_means(values, resamples, generator)
    low, high = np.quantile(means, [(1 - coverage) / 2, (1 + coverage) / 2])
    return float(low), float(high)


def _table(rows: list[tuple[Any, ...]], group_type: pa.DataType, metadata: dict[str, str]) -> pa.Table:
    group = group_type.value_type if pa.types.is_dictionary(group_type) else group_type
    kinds: dict[str, pa.DataType] = {"group": group, "count": pa.int64(), "missing": pa.int64()}
    kinds |= dict.fromkeys(("mean", "low", "high", "difference"), pa.float64())
    arrays = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds.values())]
    return pa.table(arrays, schema=pa.schema(kinds.items(), metadata=metadata))
