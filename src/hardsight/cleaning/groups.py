"""Hardness by group: whether a class, or the samples that share an attribute, are harder than the rest."""

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.columns import direction_of, hardness_values, require_rows, title_of
from hardsight.records import require_column

# Values of one block of bootstrap samples: 2**18 indices are 2 MiB, which a core's cache holds.
_BLOCK = 2**18
_RESAMPLES = 1000


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
