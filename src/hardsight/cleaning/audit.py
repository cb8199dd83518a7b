"""The audit of a scored data set: suspects with reasons, a list to edit, and a record that a page is made from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from hardsight.cleaning.action_list import read_actions, write_actions
from hardsight.cleaning.actions import Applied, apply_actions
from hardsight.cleaning.columns import is_shown, labels_of, require_column, score_names
from hardsight.cleaning.issues import LabelIssues, find_label_issues
from hardsight.cleaning.kinds import Findings
from hardsight.cleaning.probabilities import COLUMN as PROBABILITIES
from hardsight.cleaning.probabilities import beliefs_of, with_scores
from hardsight.datasets.paths import is_text
from hardsight.files import RefusedError, parse_json
from hardsight.files.parquet import text_metadata
from hardsight.records import (
    AUDIT_FILE,
    RUN_FILE,
    TABLE_FILE,
    check_ids,
    read_json,
    read_table,
    record_files,
    write_json,
    write_table,
)

ACTIONS_FILE, LABELS_FILE = "actions.csv", "labels.parquet"
# Of the samples left out so many are listed in `audit.json`.
_LISTED = 1000
# Columns of what is audited that would be wrong, or far too much, in its audit.
_LEFT_BEHIND = (PROBABILITIES, "kinds", "neighbours")
# Where a sample is drawn: no score of it.
_PLACE = {"kind": "place"}


@dataclass(frozen=True)
class Scored:
    """Scores to be audited: of a run record or of a single table; `path` is None where they lie in memory alone."""

    table: pa.Table
    class_names: list[str] | None
    name: str
    path: Path | None

    @property
    def output(self) -> Path:
        """Where its audit goes when nobody says: `RUN/audit`, or `NAME-audit` beside the table."""
        if self.path is None:
            return Path(f"{self.name}-audit")
        return self.path / "audit" if self.path.is_dir() else self.path.with_name(f"{self.path.stem}-audit")

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


def audit(scored: Scored, score: str | Sequence[str] | None = None, estimate: str = "auto") -> LabelIssues:
    """`find_label_issues` of what was read; class names are used where the labels are numbers that they name."""
    for column in ("id", "label"):
        require_column(scored.table, column)
    check_ids(scored.table.column("id"))
    names = scored.class_names if pa.types.is_integer(scored.table.schema.field("label").type) else None
    return find_label_issues(scored.table, score, class_names=names, estimate=estimate)


def audited_table(scored: Scored, issues: LabelIssues, findings: Findings | None = None) -> pa.Table:
    """The scored samples with what was found of them, most suspicious first.

    Probabilities stay in the table that was audited: a number for each sample and class would be the whole record.
    """
    kept = [name for name in scored.table.column_names if name not in _LEFT_BEHIND]
    samples = scored.table.select(kept).take(pa.array(issues.order))
    columns = {name: issues.table.column(name) for name in issues.table.column_names if name not in ("id", "label")}
    columns |= {} if findings is None else findings.columns
    for name, column in columns.items():
        described = issues.table.schema.field(name) if name in issues.table.column_names else None
        metadata = _PLACE if name in ("x", "y") else described.metadata if described else None
        if name in samples.column_names:
            samples = samples.drop_columns([name])
        samples = samples.append_column(pa.field(name, column.type, metadata=metadata), column)
    return samples


def write_audit(
    folder: Path | str,
    scored: Scored,
    issues: LabelIssues,
    findings: Findings | None = None,
    *,
    action: str = "keep",
    left_out: pa.Table | None = None,
) -> None:
    """Write the record: `table.parquet` (most suspicious first), `actions.csv` for the suspects, `audit.json` last.

    Refused where it would take the place of another record, or of a list that a person has edited. `left_out`: id and
    reason of samples that could not be judged, for `audit.json`.
    """
    folder = Path(folder)
    _refuse_to_overwrite(folder, scored.path)
    # Pictures of an earlier audit would stand beside the wrong samples.
    (folder / "thumbnails.parquet").unlink(missing_ok=True)
    samples = audited_table(scored, issues, findings)
    write_table(folder / TABLE_FILE, samples)
    suspects = issues.suspects()
    for name in samples.column_names:
        if name == "path" or is_shown(samples.schema.field(name)):
            suspects = suspects.append_column(samples.schema.field(name), samples.column(name).slice(0, len(suspects)))
    write_actions(folder / ACTIONS_FILE, suspects, action=action)
    details = _details(scored, issues)
    if findings is not None:
        details["results"]["findings"] = findings.facts()
        details["notes"] = list(findings.notes)
    if left_out is not None and len(left_out):
        details["results"]["left_out"] = {"count": len(left_out), "first": left_out.slice(0, _LISTED).to_pylist()}
    write_json(folder / AUDIT_FILE, details)


def apply_to(scored: Scored, actions: Path | str) -> tuple[pa.Table, Applied]:
    """The data's labels after an edited action list: id, label, new_label and path, without the dropped samples.

    With `new_label_name` where the labels are numbers that have names. A sample without a label is kept without one.
    """
    for column in ("id", "label"):
        require_column(scored.table, column)
    labelled = scored.table.column("label").is_valid().to_numpy(zero_copy_only=False)
    table = scored.table.filter(pa.array(labelled))
    names, labels = _numbered(scored, table)
    listed = read_actions(actions)
    applied = apply_actions(listed, table.column("id").to_pylist(), torch.from_numpy(labels), class_names=names)
    new = pa.array(applied.labels.numpy())
    if not pa.types.is_integer(table.column("label").type):
        new = pa.array(names).take(new)
    places, kept = np.full(len(labelled), -1), np.ones(len(labelled), bool)
    places[labelled], kept[labelled] = np.arange(len(labels)), applied.kept.numpy()
    columns = {"id": scored.table.column("id"), "label": scored.table.column("label")}
    columns["new_label"] = pa.chunked_array([new.take(pa.array(places, mask=~labelled))])
    if names and pa.types.is_integer(table.column("label").type):
        columns["new_label_name"] = pa.chunked_array([pa.array(names).take(columns["new_label"].combine_chunks())])
    if "path" in scored.table.column_names:
        columns["path"] = scored.table.column("path")
    return pa.table(columns).filter(pa.array(kept)), applied


def _numbered(scored: Scored, table: pa.Table) -> tuple[list[str] | None, np.ndarray]:
    """Class names and each label as a number; classes that are text are their own names, predicted ones among them."""
    labels = labels_of(table)
    if labels.dtype.kind in "iu":
        return scored.class_names, labels.astype(np.int64)
    columns = [table.column(name) for name in ("label", "expected", "predicted") if name in table.column_names]
    names = sorted({str(one) for column in columns for one in column.unique().to_pylist() if one is not None})
    return names, np.searchsorted(names, labels.astype(str))


def _refuse_to_overwrite(folder: Path, source: Path | None) -> None:
    same = source is not None and folder.resolve() == source.resolve()
    if same or (folder / RUN_FILE).is_file():
        raise ValueError(f"output must be a folder of its own; {folder} holds a record that is no audit, or is audited")
    path = folder / ACTIONS_FILE
    if path.is_file() and any(one.action != "keep" for one in read_actions(path)):
        raise ValueError(f"{path} has been edited: apply it, move it away, or say with --output where to write")


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


def _details(scored: Scored, issues: LabelIssues) -> dict[str, Any]:
    found = {"estimated": issues.estimated, "estimate": issues.estimate, "ranked_by": list(issues.scores)}
    if issues.agreed is not None:
        found["agreed"] = issues.agreed
    written = text_metadata(scored.table.schema)
    return {
        "name": f"audit of {scored.name}",
        "kind": "audit",
        "status": "finished",
        "config": {
            "source": str(scored.path or scored.name),
            "scores": list(issues.scores),
            "estimate": issues.estimate,
        },
        "class_names": scored.class_names,
        "data": {name: written[name] for name in ("root", "layout", "split") if written.get(name)},
        "results": {"label_issues": found},
    }


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
