"""Label issues of score shards: what `find_label_issues` says of all samples in one table, without such a table.

The count and the order of the suspects are found in a few passes that add up counts; only the most suspicious samples
are ever held, at most a million.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import direction_of, score_names
from hardsight.cleaning.estimate import fit_two_humps
from hardsight.cleaning.issues import PREFERRED, LabelIssues, find_label_issues
from hardsight.cleaning.scored import Scored
from hardsight.engines.shards import read_mark
from hardsight.engines.statistics import Orders, ScoreShards, counts, open_score_shards, order_statistics
from hardsight.files.parquet import Parquet
from hardsight.names import check_name

# Samples that are listed: all suspects up to the most, and some more to look at where there are few.
_FEWEST, _MOST = 1000, 1_000_000
# The mixture is fitted to so many samples, evenly spaced: a share of them is off by 0.05 points (its standard error).
_FITTED = 1_000_000


def find_issues_of_shards(
    folder: Path | str, score: str | None = None, estimate: str = "auto"
) -> tuple[Scored, LabelIssues]:
    """The most suspicious samples of a folder of score shards, and how many of all are estimated to be wrong.

    Exact, as `find_label_issues` on the whole: `disagreement` counts the samples whose predicted class is another,
    and the suspicion is the share of all samples below. `mixture` is fitted to a million samples. `issues.of` is how
    many samples there are, those without scores left out.
    """
    shards = open_score_shards(folder)
    if shards.manifest.get("hardness_against") != "given label":
        raise ValueError(f"{shards.folder} must be scored against given labels; it was scored against the predictions")
    check_name("estimate", estimate, ("auto", "disagreement", "mixture"))
    name = _chosen(shards, score)
    harder = direction_of(shards.schema().field(name))
    known = int(counts(shards, "label", name).sum())
    if not known:
        raise ValueError(f"score must be known for at least one sample; {name} is missing for all of {shards.rows:,}")
    marks = [read_mark(file) for file in shards.files]
    if estimate == "mixture":
        sample = shards.total(_Sample(name, max(1, -(-known // _FITTED)))).values
        found = fit_two_humps(sample if harder else -sample)
        estimated = round(found.count * known / len(sample))
    else:
        estimated = sum(mark["agreeing"] for mark in marks)
        estimated = known - estimated
    listed = min(known, max(_FEWEST, min(estimated, _MOST)))
    # The last sample that is listed, and all that are harder.
    last = known - listed if harder else listed - 1
    edge = order_statistics(shards, name, np.array([[last]]))
    table = shards.total(_Hardest(name, bool(harder), float(edge.values[0, 0]), listed)).table
    issues = find_label_issues(table, name, estimate="disagreement")
    return _with_all(shards, table, issues, name, bool(harder), edge, known, listed, estimated, estimate)


def _with_all(
    shards: ScoreShards, table: pa.Table, issues: LabelIssues, name: str, harder: bool, edge: Orders, known: int,
    listed: int, estimated: int, estimate: str,
) -> tuple[Scored, LabelIssues]:  # fmt: skip
    """The issues of the hardest samples with suspicion, rank and reasons as among all of them."""
    order = issues.order[:listed]
    values = table.column(name).to_numpy()[order] * (1.0 if harder else -1.0)
    ascending = np.sort(values)
    above = len(values) - np.searchsorted(ascending, values, "right")
    equal = np.searchsorted(ascending, values, "right") - np.searchsorted(ascending, values, "left")
    # Of those equal to the last one that is listed there may be more.
    equal = np.where(values == values[-1], edge.equal[0, 0], equal)
    suspicion = (known - above - equal + (equal - 1) / 2) / max(1, known - 1) if known > 1 else np.full(1, 0.5)
    found = issues.table.slice(0, listed)
    disagrees = found.column("label").to_numpy() != found.column("expected").to_numpy()
    extreme = (above + equal) / known <= 0.01
    lines = np.array(["", "the model expects another class", f"hardest 1 % by {name}",
                      f"the model expects another class; hardest 1 % by {name}"])  # fmt: skip
    columns: dict[str, Any] = {
        "suspicion": pa.array(suspicion),
        "issue": pa.array(np.arange(listed) < estimated),
        "reasons": pa.array(lines[disagrees + 2 * extreme]).dictionary_encode(),
    }
    for column, array in columns.items():
        at = found.schema.get_field_index(column)
        found = found.set_column(at, found.schema.field(at).with_type(array.type), array)
    how = "mixture" if estimate == "mixture" else "disagreement"
    issues = replace(issues, table=found, order=order, estimated=estimated, estimate=how, of=known)
    return Scored(table, None, shards.folder.resolve().name, shards.folder), issues


def _chosen(shards: ScoreShards, score: str | None) -> str:
    names = score_names(shards.schema().empty_table())
    if score is not None:
        check_name("score", score, names)
        return score
    found = next((name for name in (*PREFERRED, *names) if name in names), None)
    if found is None:
        raise ValueError(f"{shards.folder} must have a score whose direction is known; it has none")
    return found


@dataclass(frozen=True)
class _Hardest:
    """Of each shard, or of several added up, the rows at least as hard as the edge; no more of them than are listed."""

    name: str
    harder: bool
    edge: float
    listed: int

    def __call__(self, path: Path) -> "_Found":
        with Parquet(path) as file:
            names = list(file.schema.names)
            parts = [self._hard(pa.Table.from_batches([batch])) for batch in file.batches(names)]
            return _Found(pa.concat_tables(parts), self)

    def _hard(self, table: pa.Table) -> pa.Table:
        return self.trimmed(table.filter(pa.array(self._values(table) >= self._least)))

    def trimmed(self, table: pa.Table) -> pa.Table:
        """Without those equal to the edge that come too late."""
        if len(table) <= self.listed:
            return table
        order = np.argsort(-self._values(table), kind="stable")[: self.listed]
        return table.take(pa.array(np.sort(order)))

    @property
    def _least(self) -> float:
        return self.edge if self.harder else -self.edge

    def _values(self, table: pa.Table) -> np.ndarray:
        values: np.ndarray = table.column(self.name).to_numpy()
        return values if self.harder else -values


@dataclass(frozen=True)
class _Found:
    table: pa.Table
    asked: _Hardest

    def __add__(self, other: "_Found") -> "_Found":
        return _Found(self.asked.trimmed(pa.concat_tables([self.table, other.table])), self.asked)


@dataclass(frozen=True)
class _Sample:
    """Every so many values of a score, from each shard."""

    name: str
    step: int

    def __call__(self, path: Path) -> "_Values":
        start, parts = 0, []
        with Parquet(path) as file:
            for batch in file.batches([self.name]):
                values = batch.column(0).to_numpy(zero_copy_only=False)
                parts.append(values[-start % self.step :: self.step])
                start += len(values)
        values = np.concatenate(parts).astype(np.float64)
        return _Values(values[~np.isnan(values)])


@dataclass(frozen=True)
class _Values:
    values: np.ndarray

    def __add__(self, other: "_Values") -> "_Values":
        return _Values(np.concatenate([self.values, other.values]))
