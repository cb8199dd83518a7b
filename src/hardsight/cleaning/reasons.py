"""Why a sample is suspected, in words: what the model says instead, and by which scores it is extreme."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import hardness_values, score_names, share_below, share_below_within

# Beyond these shares of the samples a score is worth naming.
_EXTREME, _HIGH = 0.99, 0.95
_NAMED = 3
# A 64-bit code says which reasons hold: two bits a score, and three for the rest.
_MOST_SCORES = 30


def reasons_of(table: pa.Table, ranked_by: Sequence[str], labels: np.ndarray, disagrees: np.ndarray) -> pa.Array:
    """One line a sample, as a dictionary-encoded column: a million samples share a few hundred different lines."""
    names = list(dict.fromkeys([*ranked_by, *score_names(table)]))[:_MOST_SCORES]
    code = np.zeros(len(labels), np.uint64)
    for at, name in enumerate(names):
        share = share_below(hardness_values(table, name))
        code |= (share >= _EXTREME).astype(np.uint64) << np.uint64(2 * at)
        code |= ((share >= _HIGH) & (share < _EXTREME)).astype(np.uint64) << np.uint64(2 * at + 1)
    rest = 2 * len(names)
    first = hardness_values(table, ranked_by[0])
    code |= disagrees.astype(np.uint64) << np.uint64(rest)
    code |= (share_below_within(first, labels) >= _EXTREME).astype(np.uint64) << np.uint64(rest + 1)
    code |= np.isnan(first).astype(np.uint64) << np.uint64(rest + 2)
    found, inverse = np.unique(code, return_inverse=True)
    lines = [_line(int(one), names) for one in found]
    return pa.DictionaryArray.from_arrays(pa.array(inverse.reshape(-1), pa.int32()), pa.array(lines, pa.string()))


def _line(code: int, names: Sequence[str]) -> str:
    rest = code >> (2 * len(names))
    extreme = [name for at, name in enumerate(names) if code >> (2 * at) & 1]
    high = [name for at, name in enumerate(names) if code >> (2 * at + 1) & 1]
    parts = []
    if rest & 1:
        parts.append("the model expects another class")
    if extreme:
        parts.append(f"hardest 1 % by {_few(extreme)}")
    if high:
        parts.append(f"hardest 5 % by {_few(high)}")
    if rest & 2:
        parts.append("hardest 1 % of its class")
    if rest & 4:
        parts.append("its score is missing")
    return "; ".join(parts)


def _few(names: Sequence[str]) -> str:
    # Scores of one model agree mostly: the first few say it, a list of all says no more.
    shown = names if len(names) <= _NAMED + 1 else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
