"""Reading what is to be aligned: a table of scores (Parquet or CSV), a CSV of human values, joined by their ids."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.alignment.correlation import Column
from hardsight.alignment.inputs import FEWEST_PAIRS, check_usable
from hardsight.files import parse_json
from hardsight.files.parquet import read_table, text_metadata
from hardsight.files.plain import read_csv

# Columns of a table of scores that are facts about a sample, never scores of it.
_FACTS = frozenset({"label", "predicted", "expected", "clean_label", "split", "rank"})
# Usual names of the human column, in the order they are looked for.
_HUMAN_NAMES = ("human_selection_frequency", "selection_frequency", "hsf", "human")


@dataclass(frozen=True)
class Joined:
    """The samples that both files have: ids, scores, human values, and what else is known of them.

    `match` says how many ids match and which lack; `incomplete`, whether any do.
    """

    ids: list[Any]
    scores: list[Column]
    human: Column
    match: str
    incomplete: bool
    labels: np.ndarray | None = None
    correct: np.ndarray | None = None
    left_out: dict[str, str] = field(default_factory=dict)


def read_joined(
    scores: Path | str, humans: Path | str, *, human: str | None = None, names: Sequence[str] | None = None,
    id_column: str = "id", human_direction: str = "easier", partial: bool = False,
) -> Joined:  # fmt: skip
    """Read both files and join them by id.

    Without `names` every score of the table is taken, and those that cannot be correlated are left out with the reason;
    a score that was asked for by name is an error instead. `partial` goes on where each file has ids the other lacks.
    """
    scores, humans = Path(scores), Path(humans)
    table = read_csv(scores) if scores.suffix.lower() == ".csv" else read_table(scores)
    _need(table, id_column, scores)
    ids = _plain(table.column(id_column), scores)
    # An id that is text must stay text: "007" is not 7.
    answers = read_csv(humans, column_types={id_column: pa.string()} if pa.types.is_string(ids.type) else {})
    _need(answers, id_column, humans)
    human_name = _human_column(answers, human, id_column, humans)
    names_of_files = (scores.name, humans.name)
    rows, other_rows, match = _matched(ids, _plain(answers.column(id_column), humans), names_of_files, partial)
    matched, incomplete = ids.take(rows).to_pylist(), not len(rows) == len(table) == len(answers)
    table, answers = table.take(rows), answers.take(other_rows)
    seen = Column(human_name, _numbers(answers, human_name), human_direction)
    check_usable(f"human column {human_name!r}", seen.values, matched, remedy="; leave out rows without an answer")
    chosen, left_out = _usable(table, names, matched, {id_column, *_FACTS})
    missing = _missing(table.column("label")) if "label" in table.column_names else 0
    if missing:
        reason = f"must name the class of every sample; {missing} of {len(table)} are missing"
        left_out["label"] = f"classes: column 'label' {reason}"
    return Joined(matched, chosen, seen, match, incomplete, _labels(table), _correct(table), left_out)


def _plain(ids: pa.ChunkedArray, path: Path) -> pa.Array:
    """Ids as one array of numbers or text, none of them missing or there twice."""
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    if pa.types.is_nested(kind):
        raise ValueError(f"ids of {path} must be numbers or text; got {kind}")
    plain = ids.cast(pa.string() if pa.types.is_large_string(kind) else kind).combine_chunks()
    missing = _missing(plain)
    if missing:
        raise ValueError(f"every row of {path} must have an id; {missing} have none")
    counted = pc.value_counts(plain)
    repeated = counted.filter(pc.greater(counted.field("counts"), 1)).to_pylist()
    if repeated:
        value, count = repeated[0]["values"], repeated[0]["counts"]
        raise ValueError(f"ids of {path} must be unique; {value!r} occurs {count} times")
    return plain


def _matched(
    first: pa.Array, second: pa.Array, names: tuple[str, str], partial: bool
) -> tuple[pa.Array, pa.Array, str]:
    """The rows of both that carry the same id, in the first's order, and how many match, as a sentence.

    Ids are matched as text where one side is text; 7 and 7.0 are one id. One file may be part of the other; where each
    has ids the other lacks, something is probably wrong: an error, unless `partial`. So is a match of fewer than 4.
    """
    if first.type != second.type:
        numbers = _is_number(first.type) and _is_number(second.type)
        first, second = (one.cast(pa.float64() if numbers else pa.string()) for one in (first, second))
    places = pc.index_in(first, second)
    rows = pa.array(np.flatnonzero(places.is_valid()))
    only_first = first.filter(places.is_null())
    only_second = second.filter(pc.invert(pc.is_in(second, first)))
    missing = [
        f"{len(only):,} of {here} are missing in {there}, first {only[0].as_py()!r}"
        for only, here, there in ((only_first, *names), (only_second, *reversed(names)))
        if only
    ]
    sentence = "; ".join([f"{len(rows):,} ids of {names[0]} and {names[1]} match", *missing])
    if len(rows) < FEWEST_PAIRS:
        raise ValueError(f"at least {FEWEST_PAIRS} ids must match: {sentence}")
    if len(missing) == 2 and not partial:
        raise ValueError(f"the ids of one table must all be in the other, unless --partial allows it: {sentence}")
    return rows, places.drop_null(), sentence


def _need(table: pa.Table, column: str, path: Path) -> None:
    if column not in table.column_names:
        raise ValueError(f"{path} must have a column {column!r}; it has {_short(table.column_names) or 'none'}")


def _short(words: Sequence[str]) -> str:
    """A list for a sentence, on one line; what is long ends in dots."""
    return textwrap.shorten(", ".join(words), 400, placeholder=" ...")


def _human_column(table: pa.Table, asked: str | None, id_column: str, path: Path) -> str:
    if asked is not None:
        _need(table, asked, path)
        return asked
    others = [one for one in table.schema if one.name != id_column]
    # A column of gaps alone has no type; where nothing else could be meant, the error about it comes later.
    numeric = [one.name for one in others if _is_number(one.type)] or [
        one.name for one in others if pa.types.is_null(one.type)
    ]
    known = [name for name in _HUMAN_NAMES if name in numeric]
    if known or len(numeric) == 1:
        return (known or numeric)[0]
    listed = _short(numeric) or "none (0.5 is a number, 0,5 is text)"
    raise ValueError(f"{path} must have one column of numbers, or --human must name one; it has {listed}")


def _usable(
    table: pa.Table, names: Sequence[str] | None, ids: Sequence[Any], facts: set[str]
) -> tuple[list[Column], dict[str, str]]:
    listed = _short(table.column_names)
    if names is not None and not names:
        raise ValueError(f"scores must name at least one column of the table, {listed}; got none")
    for name in names or ():
        if name not in table.column_names:
            raise ValueError(f"scores must be columns of the table, {listed}; got {name!r}")
    numbers = [one for one in table.schema if _is_number(one.type) and one.name not in facts]
    chosen, left_out = [], {}
    for one in numbers if names is None else [table.schema.field(name) for name in names]:
        written = text_metadata(one)
        if names is None and pa.types.is_integer(one.type) and written.get("kind") != "score":
            reason = "holds whole numbers, which may count anything: name it in --scores"
            left_out[one.name] = f"column {one.name!r} {reason}"
            continue
        values = _numbers(table, one.name)
        try:
            check_usable(f"score {one.name!r}", values, ids)
        except ValueError as problem:
            if names is not None:
                raise
            left_out[one.name] = str(problem)
            continue
        direction = written.get("direction", "").removeprefix("larger is ")
        known = direction if direction in ("harder", "easier") else None
        chosen.append(Column(one.name, values, known, written.get("title")))
    if not chosen:
        raise ValueError(next(iter(left_out.values()), "scores must hold a column of numbers; the table has none"))
    return chosen, left_out


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    column = table.column(name)
    if not _is_number(column.type) and not pa.types.is_null(column.type):
        raise ValueError(f"column {name!r} must hold numbers; it holds {column.type}")
    values: np.ndarray = column.cast(pa.float64()).to_numpy()
    return values


def _missing(column: pa.Array | pa.ChunkedArray) -> int:
    """How many values are missing: null, or the number that is none."""
    return int(pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0)


def _is_whole(table: pa.Table, column: str) -> bool:
    """Whether there is such a column, without gaps and without lists."""
    there = column in table.column_names and not pa.types.is_nested(table.schema.field(column).type)
    return there and not _missing(table.column(column))


def _labels(table: pa.Table) -> np.ndarray | None:
    """The class of each sample, by name where the table names its classes; None where a label is missing."""
    if not _is_whole(table, "label"):
        return None
    labels = table.column("label").to_pylist()
    try:
        names = parse_json(text_metadata(table.schema).get("class names", "[]"))
    except ValueError:
        names = []
    names = names if isinstance(names, list) else []
    if not names and pa.types.is_integer(table.schema.field("label").type):
        return np.array(labels)
    return np.array([str(names[one] if isinstance(one, int) and 0 <= one < len(names) else one) for one in labels])


def _correct(table: pa.Table) -> np.ndarray | None:
    """1 where the prediction is the label, else 0; None where the table does not say."""
    if not _is_whole(table, "label") or not _is_whole(table, "predicted"):
        return None
    label, predicted = table.column("label"), table.column("predicted")
    if label.type != predicted.type and not (_is_number(label.type) and _is_number(predicted.type)):
        return None
    right: np.ndarray = pc.equal(label, predicted).cast(pa.int8()).to_numpy().astype(np.float64)
    return right
