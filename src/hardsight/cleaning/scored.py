"""Scores to be audited, of a run's record or of a single table, and the names of their classes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hardsight.cleaning.columns import require_column, score_names
from hardsight.cleaning.issues import LabelIssues, find_label_issues
from hardsight.cleaning.probabilities import beliefs_of, with_scores
from hardsight.datasets.paths import is_text
from hardsight.files import RefusedError, parse_json
from hardsight.records import check_ids, read_json, read_table, record_files


@dataclass(frozen=True)
class Scored:
    """Scores to be audited: of a run record or of a single table; `path` is None where they lie in memory alone."""

    table: pa.Table
    class_names: list[str] | None
    name: str
    path: Path | None

    def named(self, names: Sequence[str]) -> "Scored":
        """With these class names, where it has none of its own and they name every class that it speaks of."""
        columns = [self.table.column(name) for name in ("label", "predicted") if name in self.table.column_names]
        if self.class_names or not columns or not all(pa.types.is_integer(column.type) for column in columns):
            return self
        largest = max(pc.max(column).as_py() or 0 for column in columns)
        return replace(self, class_names=distinct(list(names))) if largest < len(names) else self


def read_scored(path: Path | str) -> Scored:
    """The scores in the folder of a run or an audit, with the class names that it records, or in a Parquet file."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no run folder and no scores file at {path}")
    if not path.is_dir():
        table = _read_table(path)
        return Scored(table, distinct(written_names(table, path)), path.stem, path)
    record, samples = record_files(path)
    if not samples.is_file():
        raise FileNotFoundError(
            f"{path} holds no {samples.name}: it is no run record, or the run kept no samples; "
            "a folder of images is scored first, by hardsight score"
        )
    details = _read_details(record)
    name = str(details.get("name") or path.resolve().name)
    return Scored(_read_table(samples), distinct(details.get("class_names")), name, path)


def issues_of(scored: Scored, score: str | Sequence[str] | None = None, estimate: str = "auto") -> LabelIssues:
    """`find_label_issues` of what was read; class names are used where the labels are numbers that they name."""
    for column in ("id", "label"):
        require_column(scored.table, column)
    check_ids(scored.table.column("id"))
    names = scored.class_names if pa.types.is_integer(scored.table.schema.field("label").type) else None
    return find_label_issues(scored.table, score, class_names=names, estimate=estimate)


def distinct(names: Any) -> list[str] | None:
    """Class names of which none means two classes: one that occurs again is followed by its number, "" is it."""
    if not isinstance(names, list) or not names:
        return None
    texts = [str(name) or str(at) for at, name in enumerate(names)]
    broken = next((text for text in texts if not is_text(text)), None)
    if broken is not None:
        raise ValueError(f"class names must be Unicode text; got {broken!r}, which holds half a letter")
    # What is made so may be the name of a third.
    while len(often := Counter(texts)) < len(texts):
        texts = [f"{text} ({at})" if often[text] > 1 else text for at, text in enumerate(texts)]
    return texts


def written_names(table: pa.Table, path: Path) -> Any:
    """The names of the classes that a table's schema holds; None where it holds none."""
    try:
        return parse_json((table.schema.metadata or {}).get(b"class names", b"null"))
    except ValueError as error:
        raise ValueError(
            f"{path} must hold its 'class names' as a JSON list in the schema's metadata: {error}"
        ) from None


def _read_table(path: Path) -> pa.Table:
    try:
        table = read_table(path)
    except RefusedError:
        if path.suffix in (".npy", ".npz", ".csv", ".json"):
            raise ValueError(
                f"{path} must be a Parquet table with id, label and a score, or the probabilities of all classes as "
                "lists; pyarrow.table and pyarrow.parquet.write_table make one of arrays"
            ) from None
        raise
    if "label" not in table.column_names or score_names(table):
        return table
    return with_scores(table, beliefs_of(table))


def _read_details(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    details = read_json(path)
    return details if isinstance(details, dict) else {}
