"""Label issues of score shards: what `find_label_issues` says of all samples in one table, without such a table.

The count and the order of the suspects are found in a few passes that add up counts; only the most suspicious samples
are ever held, at most a million.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import direction_of, hardness_values, score_names
from hardsight.cleaning.confident import fit_two_humps
from hardsight.cleaning.issues import PREFERRED, LabelIssues, find_label_issues
from hardsight.cleaning.samples import Samples
from hardsight.engines.shard_jobs import read_mark
from hardsight.engines.statistics import ScoreShards, counts, open_score_shards, order_statistics
from hardsight.files.parquet import Parquet
from hardsight.names import check_name

# Samples that are listed: all suspects up to the most, and some more to look at where there are few.
_FEWEST, _MOST = 1000, 1_000_000
# The mixture is fitted to so many samples, evenly spaced: a share of them is off by 0.05 points (its standard error).
_FITTED = 1_000_000


def find_issues_of_shards(
    folder: Path | str, score: str | Sequence[str] | None = None, estimate: str = "auto"
) -> tuple[Samples, LabelIssues]:
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
    if estimate == "mixture":
        every = partial(_every, name=name, step=max(1, -(-known // _FITTED)))
        sample = np.concatenate(list(shards.each(every, shards.files)))
        estimated = round(fit_two_humps(sample).count * known / len(sample))
    else:
        estimate = "disagreement"
        estimated = known - sum(read_mark(file)["agreeing"] for file in shards.files)
    listed = min(known, max(_FEWEST, min(estimated, _MOST)))
    # The last sample that is listed, and all that are harder.
    last = known - listed if harder else listed - 1
    edge = order_statistics(shards, name, np.array([[last]]))
    least = float(edge.values[0, 0]) if harder else -float(edge.values[0, 0])
    hardest = partial(_hardest, name=name, least=least, listed=listed)
    table = shards.schema().empty_table()
    for part in shards.each(hardest, shards.files):
        table = _trimmed(pa.concat_tables([table, part]), name, listed)
    issues = find_label_issues(table, name, estimate="disagreement")
    order = issues.order[:listed]
    values = hardness_values(table, name)[order]
    found = _among_all(issues.table.slice(0, listed), values, name, int(edge.equal[0, 0]), known, estimated)
    issues = replace(issues, table=found, order=order, estimated=estimated, estimate=estimate, of=known)
    return Samples(table=table, name=shards.folder.resolve().name, path=shards.folder), issues


def _among_all(found: pa.Table, values: np.ndarray, name: str, at_edge: int, known: int, estimated: int) -> pa.Table:
    """The hardest samples with suspicion, issue and reasons as among all of them; `at_edge` equal the last one."""
    ascending = np.sort(values)
    above = len(values) - np.searchsorted(ascending, values, "right")
    equal = len(values) - above - np.searchsorted(ascending, values, "left")
    # Of those equal to the last one that is listed there may be more.
    equal = np.where(values == values[-1], at_edge, equal)
    suspicion = (known - above - equal + (equal - 1) / 2) / max(1, known - 1) if known > 1 else np.full(1, 0.5)
    disagrees = found.column("label").to_numpy() != found.column("expected").to_numpy()
    extreme = (above + equal) / known <= 0.01
    lines = np.array(["", "the model expects another class", f"hardest 1 % by {name}",
                      f"the model expects another class; hardest 1 % by {name}"])  # fmt: skip
    columns: dict[str, Any] = {
        "suspicion": pa.array(suspicion),
        "issue": pa.array(np.arange(len(values)) < estimated),
        "reasons": pa.array(lines[disagrees + 2 * extreme]).dictionary_encode(),
    }
    for column, array in columns.items():
        at = found.schema.get_field_index(column)
        found = found.set_column(at, found.schema.field(at).with_type(array.type), array)
    return found


def _chosen(shards: ScoreShards, score: str | Sequence[str] | None) -> str:
    names = score_names(shards.schema().empty_table())
    if score is None:
        found = next((name for name in (*PREFERRED, *names) if name in names), None)
        if found is None:
            raise ValueError(f"{shards.folder} must have a score whose direction is known; it has none")
        return found
    chosen = [score] if isinstance(score, str) else list(score)
    if len(chosen) != 1:
        raise ValueError(f"score must name one column of score shards; got {', '.join(chosen)}")
    check_name("score", chosen[0], names)
    return chosen[0]


def _hardest(path: Path, name: str, least: float, listed: int) -> pa.Table:
    """Of a shard the rows at least as hard as the edge; no more of them than are listed."""

    def hard(part: pa.Table) -> pa.Table:
        return part.filter(pa.array(hardness_values(part, name) >= least))

    with Parquet(path) as file:
        parts = [hard(pa.Table.from_batches([batch])) for batch in file.batches(list(file.schema.names))]
    return _trimmed(pa.concat_tables(parts), name, listed)


def _trimmed(table: pa.Table, name: str, listed: int) -> pa.Table:
    """Without those equal to the edge that come too late."""
    if len(table) <= listed:
        return table
    order = np.argsort(-hardness_values(table, name), kind="stable")[:listed]
    return table.take(pa.array(np.sort(order)))


def _every(path: Path, name: str, step: int) -> np.ndarray:
    """Every so many known values of a score in a shard, larger is harder."""
    with Parquet(path) as file:
        batches = [pa.Table.from_batches([batch]) for batch in file.batches([name])]
    values = np.concatenate([hardness_values(batch, name) for batch in batches])[::step]
    known: np.ndarray = values[~np.isnan(values)]
    return known
