"""Hardness by group: whether a class, or the samples that share an attribute, are harder than the rest."""

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.columns import hardness_values, require_column, require_rows, title_of

# Values of one block of bootstrap samples: 2**22 indices are 32 MiB.
_BLOCK = 2**22


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
    hardness. Fewer than 2 samples have no interval, and without others there is no difference: null.
    """
    require_rows(table)
    require_column(table, by)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie in (0, 1), the share of resamples inside the interval; got {coverage!r}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1; got {resamples!r}")
    hardness = hardness_values(table, score)
    values = table.column(score).cast(pa.float64()).to_numpy()
    encoded = table.column(by).combine_chunks().dictionary_encode(null_encoding="encode")
    codes, names = np.asarray(encoded.indices), encoded.dictionary.to_pylist()
    known = ~np.isnan(values)
    total, count_all = values[known].sum(), int(known.sum())
    rows = []
    for code, name in enumerate(names):
        own = values[(codes == code) & known]
        low, high = _interval(own, generator, coverage, resamples)
        others = count_all - len(own)
        mean = float(own.mean()) if len(own) else None
        rest = (total - own.sum()) / others if others and len(own) else None
        rows.append(
            {
                "group": name,
                "count": int((codes == code).sum()),
                "missing": int((codes == code).sum()) - len(own),
                "mean": mean,
                "low": low,
                "high": high,
                "difference": None if mean is None or rest is None else float(mean - rest),
                "order": float(hardness[(codes == code) & known].mean()) if len(own) else -np.inf,
            }
        )
    rows.sort(key=lambda row: -row["order"])
    return _table(rows, table.schema.field(by).type, title_of(table.schema.field(score)), by)


def bootstrap_means(values: np.ndarray, resamples: int, generator: torch.Generator) -> np.ndarray:
    """Means of `resamples` samples of the values, each as large as they are and drawn with replacement."""
    numbers = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
    block = max(1, _BLOCK // len(numbers))
    means = []
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = torch.randint(len(numbers), (rows, len(numbers)), generator=generator)
        means.append(numbers[drawn].mean(1))
    return torch.cat(means).numpy()


def _interval(
    values: np.ndarray, generator: torch.Generator, coverage: float, resamples: int
) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    means = bootstrap_means(values, resamples, generator)
    low, high = np.quantile(means, [(1 - coverage) / 2, (1 + coverage) / 2])
    return float(low), float(high)


def _table(rows: list[dict], group_type: pa.DataType, title: str, by: str) -> pa.Table:
    kinds: dict[str, pa.DataType] = {
        "group": group_type.value_type if pa.types.is_dictionary(group_type) else group_type,
        "count": pa.int64(),
        "missing": pa.int64(),
        **dict.fromkeys(("mean", "low", "high", "difference"), pa.float64()),
    }
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()]
    return pa.table(arrays, schema=pa.schema(kinds.items(), metadata={"score": title, "by": by}))
