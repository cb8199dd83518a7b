"""What needs all samples of score shards: counts, order statistics, thresholds, ranks, found by passes over the shards.

A pass counts samples of each shard; counts are added, so it does not matter where or in which order the shards are
looked at: `each` may be `map` or `hardsight.engines.ray.ray_map`. All results are exact, and memory does not grow with
the number of samples, but for `class_ranks`, which says so.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hardsight.files.parquet import MANIFEST_FILE, Parquet, is_sharded, table_files
from hardsight.records import read_json, require_column

Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
# Bytes of the counts of one pass; ranks are made for so many samples at a time.
_COUNTS, _RANKED = 1 << 26, 1 << 26
# With 11 bits a pass, numbers of 32 bits take three.
_MOST_BITS = 11
# Of 0.29 * 100 the float is below 29.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ScoreShards:
    """A finished folder of score shards: its files in order, what its manifest says, and how a pass is spread."""

    folder: Path
    manifest: dict[str, Any]
    files: tuple[Path, ...]
    each: Each = map

    @property
    def classes(self) -> int:
        """How many classes the head had."""
        return int(self.manifest["classes"])

    @property
    def rows(self) -> int:
        """How many samples there are, those without scores counted."""
        return int(self.manifest["rows"])

    def schema(self) -> pa.Schema:
        """The columns of every shard."""
        with Parquet(self.files[0]) as file:
            return file.schema

    def total(self, counted: Callable[[Path], Any]) -> Any:
        """What `counted` gives for each shard, added up."""
        parts = iter(self.each(counted, self.files))
        total = next(parts)
        for part in parts:
            total = total + part
        return total


def open_score_shards(folder: Path | str, each: Each = map) -> ScoreShards:
    """The score shards in a folder; all must be finished."""
    folder = Path(folder)
    if not is_sharded(folder):
        raise FileNotFoundError(f"score shards must be a folder with {MANIFEST_FILE}; {folder} has none")
    manifest, *files = table_files(folder)
    return ScoreShards(folder, read_json(manifest), tuple(files), each)


class Orders(NamedTuple):
    """Order statistics [groups, ranks]: the values, and how many samples of the group lie below and at each."""

    values: np.ndarray
    below: np.ndarray
    equal: np.ndarray


def counts(shards: ScoreShards, by: str | None, score: str | None = None) -> np.ndarray:
    """How many samples each class has, [classes]; with a score, those that have it. Without `by` all are one group."""
    return np.asarray(shards.total(partial(_counted, by=by, score=score, groups=shards.classes if by else 1)))


def order_statistics(shards: ScoreShards, score: str, ranks: np.ndarray, by: str | None = None) -> Orders:
    """The values at `ranks` [groups, ranks] of a score, counted from 0 in ascending order, among a class's samples.

    `by` is label or predicted; without it all samples are one group. Exact: float32 numbers are found bit by bit, some
    bits in each pass. A rank outside a group gives NaN.
    """
    ranks = np.asarray(ranks, np.int64)
    groups, wanted = ranks.shape
    sizes = counts(shards, by, score)
    inside = (ranks >= 0) & (ranks < sizes[:, None])
    # The bits of the keys at these ranks that are known, and how many samples lie below them.
    prefix, below = np.zeros(ranks.shape, np.int64), np.zeros(ranks.shape, np.int64)
    equal = np.broadcast_to(sizes[:, None], ranks.shape).copy()
    bits = max(1, min(_MOST_BITS, int(np.log2(max(2, _COUNTS // (8 * max(1, groups * wanted)))))))
    known = 0
    while known < 32:
        step = min(bits, 32 - known)
        found = shards.total(partial(_histogram, score=score, by=by, prefix=prefix, known=known, step=step))
        ends = np.cumsum(found, axis=2)
        # The first bin whose end passes the rank.
        place = np.minimum((ends <= (ranks - below)[:, :, None]).sum(2), (1 << step) - 1)
        at = place[:, :, None]
        equal = np.take_along_axis(found, at, 2)[:, :, 0]
        below += np.take_along_axis(ends, at, 2)[:, :, 0] - equal
        prefix, known = (prefix << step) | place, known + step
    values = np.where(inside, _number(prefix), np.nan)
    return Orders(values, np.where(inside, below, 0), np.where(inside, equal, 0))


def quantiles(shards: ScoreShards, score: str, shares: Sequence[float], by: str | None = None) -> np.ndarray:
    """The values [groups, shares] that these shares of a score's samples do not exceed (numpy's `inverted_cdf`)."""
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"shares must lie in [0, 1]; got {list(shares)!r}")
    sizes = counts(shards, by, score)
    ranks = np.ceil(sizes[:, None] * np.asarray(shares) - _ROUNDING).astype(np.int64) - 1
    # A group without samples has no quantile.
    return order_statistics(shards, score, np.where(sizes[:, None] > 0, ranks.clip(0), -1), by).values


def portion_thresholds(shards: ScoreShards, portion: float, score: str = "confidence") -> tuple[np.ndarray, np.ndarray]:
    """For each predicted class, the score at rank floor(n * portion) of its n samples from the top, and that rank.

    What `hardsight.domains.rank_thresholds` gives of all samples in memory: where the rank is 0 the
    threshold is 1.
    """
    if not 0 < portion <= 1:
        raise ValueError(f"portion must lie in (0, 1], the share of samples to pseudo-label; got {portion!r}")
    sizes = counts(shards, "predicted", score)
    ranks = np.floor(sizes * portion + _ROUNDING).astype(np.int64)
    values = order_statistics(shards, score, np.where(ranks > 0, sizes - ranks, -1)[:, None], "predicted").values[:, 0]
    return np.where(ranks > 0, values, 1.0).astype(np.float32), ranks


def class_ranks(shards: ScoreShards, score: str, by: str = "label") -> Iterator[np.ndarray]:
    """For the samples of each shard, the share of their class whose score is below theirs, ties counted half; exact.

    As `share_below_within` of all samples at once. NaN where a sample has no score. Memory: eight bytes for each of
    64 million samples, or of the largest class, and the result on disk; passes: two for each such part.
    """
    sizes = counts(shards, by, score)
    starts = np.cumsum(sizes) - sizes
    rows = np.cumsum([0, *map(_rows_of, shards.files)])
    with tempfile.TemporaryFile() as file:
        file.truncate(8 * max(1, rows[-1]))
        result = np.memmap(file, np.float64, "r+", shape=(max(1, rows[-1]),))
        first = 0
        while first < len(sizes):
            last = max(first + 1, int(np.searchsorted(np.cumsum(sizes[first:]), _RANKED, "right")) + first)
            keys = partial(_keys, score=score, by=by, first=first, last=last)
            sorted_keys = np.sort(np.concatenate(list(shards.each(keys, shards.files))))
            for path, start in zip(shards.files, rows, strict=False):
                for at, groups, own, known in _batches(path, score, by):
                    held = result[start + at : start + at + len(own)]
                    if first == 0:
                        held[~known] = np.nan
                    mine = known & (groups >= first) & (groups < last)
                    group = groups[mine]
                    wanted = (group << 32) | own[mine]
                    low, high = (np.searchsorted(sorted_keys, wanted, side) for side in ("left", "right"))
                    shares = ((low + high - 1) / 2 - (starts[group] - starts[first])) / np.maximum(sizes[group] - 1, 1)
                    shares[sizes[group] == 1] = 0.5
                    held[mine] = shares
            first = last
        for start, end in itertools.pairwise(rows):
            yield np.array(result[start:end])


# ---------------------------------------------------------------------------------------------------------------------
# What is counted in one shard.


def _counted(path: Path, by: str | None, score: str | None, groups: int) -> np.ndarray:
    found = np.zeros(groups, np.int64)
    for _, group, _, known in _batches(path, score, by):
        found += np.bincount(group[known], minlength=groups)[:groups]
    return found


def _histogram(path: Path, score: str, by: str | None, prefix: np.ndarray, known: int, step: int) -> np.ndarray:
    """How the keys that begin with a prefix [groups, ranks] of `known` bits go on, in the next `step` bits."""
    groups, wanted = prefix.shape
    found = np.zeros((groups, wanted, 1 << step), np.int64)
    for _, group, keys, there in _batches(path, score, by):
        group, keys = group[there], keys[there]
        next_bits = (keys >> (32 - known - step)) & ((1 << step) - 1)
        for rank in range(wanted):
            mine = (keys >> (32 - known)) == prefix[group, rank] if known else slice(None)
            bins = (group[mine] << step) | next_bits[mine]
            found[:, rank] += np.bincount(bins, minlength=groups << step).reshape(groups, -1)
    return found


def _keys(path: Path, score: str, by: str, first: int, last: int) -> np.ndarray:
    """The keys of the samples of some groups, in the order of their groups and scores."""
    parts = [np.zeros(0, np.int64)]
    for _, group, keys, known in _batches(path, score, by):
        mine = known & (group >= first) & (group < last)
        parts.append((group[mine] << 32) | keys[mine])
    return np.concatenate(parts)


def _batches(path: Path, score: str | None, by: str | None) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Where some samples begin, their groups and the keys of their scores, and which of them have both."""
    columns = [name for name in (by, score) if name]
    start = 0
    with Parquet(path) as file:
        for name in columns:
            require_column(file.schema.empty_table(), name)
        for batch in file.batches(columns or file.schema.names[:1]):
            known = np.ones(len(batch), bool)
            groups, keys = np.zeros(len(batch), np.int64), np.zeros(len(batch), np.int64)
            if by:
                known &= batch.column(by).is_valid().to_numpy(zero_copy_only=False)
                groups = batch.column(by).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            if score:
                values = batch.column(score).to_numpy(zero_copy_only=False).astype(np.float32)
                known &= ~np.isnan(values)
                keys = _key(values)
            yield start, groups, keys, known
            start += len(batch)


def _key(values: np.ndarray) -> np.ndarray:
    """Numbers of 32 bits in the order of the floats: of negative ones all bits are turned, of others the first."""
    bits = (values + np.float32(0)).view(np.uint32).astype(np.int64)
    return np.where(bits >> 31, 0xFFFFFFFF - bits, bits | 0x80000000)


def _number(keys: np.ndarray) -> np.ndarray:
    bits = np.where(keys >> 31, keys & 0x7FFFFFFF, 0xFFFFFFFF - keys)
    return bits.astype(np.uint32).view(np.float32)


def _rows_of(path: Path) -> int:
    with Parquet(path) as file:
        return file.rows
