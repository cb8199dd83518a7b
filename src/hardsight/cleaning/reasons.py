"""Why a sample is suspected, in words: what the model says instead, and by which scores it is extreme."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.cleaning.columns import hardness_values, score_names, share_below, share_below_within

# A score is worth naming of the samples that are among these shares of the hardest.
_EXTREME, _HIGH = 0.01, 0.05
_NAMED = 3
# What a recorder says beside its scores.
NEVER_LEARNED = "never_learned"
# A 64-bit code says which reasons hold: two bits a score, and four for the rest.
_MOST_SCORES = 30


def reasons_of(table: pa.Table, ranked_by: Sequence[str], labels: np.ndarray, disagrees: np.ndarray) -> pa.Array:
    """One line a sample, as a dictionary-encoded column: a million samples share a few hundred different lines."""
    names = list(dict.fromkeys([*ranked_by, *score_names(table)]))[:_MOST_SCORES]
    code = np.zeros(len(labels), np.uint64)
    for at, name in enumerate(names):
        values = hardness_values(table, name)
        among = _among_hardest(share_below(values), (~np.isnan(values)).sum())
        code |= (among <= _EXTREME).astype(np.uint64) << np.uint64(2 * at)
        code |= ((among > _EXTREME) & (among <= _HIGH)).astype(np.uint64) << np.uint64(2 * at + 1)
    rest = 2 * len(names)
    first = hardness_values(table, ranked_by[0])
    code |= disagrees.astype(np.uint64) << np.uint64(rest)
    of_class = np.unique(labels, return_inverse=True)[1].reshape(-1)
    members = np.bincount(of_class, weights=~np.isnan(first))[of_class]
    among = _among_hardest(share_below_within(first, labels), members)
    code |= (among <= _EXTREME).astype(np.uint64) << np.uint64(rest + 1)
    code |= np.isnan(first).astype(np.uint64) << np.uint64(rest + 2)
    if NEVER_LEARNED in table.column_names and pa.types.is_boolean(table.schema.field(NEVER_LEARNED).type):
        never = pc.fill_null(table.column(NEVER_LEARNED), False).to_numpy()
        code |= never.astype(np.uint64) << np.uint64(rest + 3)
    found, inverse = np.unique(code, return_inverse=True)
    lines = [_line(int(one), names) for one in found]
    return pa.DictionaryArray.from_arrays(pa.array(inverse.reshape(-1), pa.int32()), pa.array(lines, pa.string()))


def _among_hardest(below: np.ndarray, samples: np.ndarray | np.integer) -> np.ndarray:
    """The share of the hardest samples, itself counted, that a sample is the last of: of two no one is a hundredth."""
    return 1 - below * (samples - 1) / np.maximum(samples, 1)


def _line(code: int, names: Sequence[str]) -> str:
    rest = code >> (2 * len(names))
    extreme = [name for at, name in enumerate(names) if code >> (2 * at) & 1]
    high = [name for at, name in enumerate(names) if code >> (2 * at + 1) & 1]
    parts = []
    if rest & 1:
        parts.append("the model expects another class")
    if rest & 8:
        parts.append("never learned")
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
