"""The audit of a scored data set: suspects with reasons, a list to edit, and a record that a page is made from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hardsight.cleaning.actions import Applied, apply_actions, read_actions, write_actions
from hardsight.cleaning.columns import labels_of, require_column
from hardsight.cleaning.issues import LabelIssues, find_label_issues
from hardsight.records import write_json, write_table

ACTIONS_FILE, SAMPLES_FILE, LABELS_FILE = "actions.csv", "samples.parquet", "labels.parquet"


@dataclass(frozen=True)
class Scored:
    """Scores to be audited: of a run record or of a single table."""

    table: pa.Table
    class_names: list[str] | None
    name: str
    path: Path

    @property
    def output(self) -> Path:
        """Where its audit goes when nobody says: `RUN/audit`, or `NAME-audit` beside the table."""
        return self.path / "audit" if self.path.is_dir() else self.path.with_name(f"{self.path.stem}-audit")


def read_scored(path: Path | str) -> Scored:
    """The scores in a run's folder (`samples.parquet`, class names from `run.json`) or in a Parquet file."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no run folder and no scores file at {path}")
    if not path.is_dir():
        table = _read_table(path)
        written = (table.schema.metadata or {}).get(b"class names")
        return Scored(table, json.loads(written) if written else None, path.stem, path)
    if not (path / SAMPLES_FILE).is_file():
        raise FileNotFoundError(f"{path} holds no {SAMPLES_FILE}: it is no run record, or the run kept no samples")
    details = _read_details(path / "run.json")
    names = details.get("class_names")
    name = str(details.get("name") or path.resolve().name)
    return Scored(_read_table(path / SAMPLES_FILE), [str(each) for each in names] if names else None, name, path)


def audit(scored: Scored, score: str | Sequence[str] | None = None, estimate: str = "auto") -> LabelIssues:
    """`find_label_issues` of what was read; class names are used where the labels are numbers that they name."""
    require_column(scored.table, "label")
    names = scored.class_names if pa.types.is_integer(scored.table.schema.field("label").type) else None
    return find_label_issues(scored.table, score, class_names=names, estimate=estimate)


def write_audit(folder: Path | str, scored: Scored, issues: LabelIssues, *, action: str = "keep") -> None:
    """Write the record: `samples.parquet` (most suspicious first), `actions.csv` for the suspects, `run.json` last."""
    folder = Path(folder)
    samples = scored.table.take(pa.array(issues.order))
    for name in ("expected", "suspicion", "rank", "issue", "reasons"):
        if name in samples.column_names:
            samples = samples.drop_columns([name])
        samples = samples.append_column(issues.table.schema.field(name), issues.table.column(name))
    write_table(folder / SAMPLES_FILE, samples)
    suspects = issues.suspects()
    if "path" in samples.column_names:
        suspects = suspects.append_column("path", samples.column("path").slice(0, len(suspects)))
    write_actions(folder / ACTIONS_FILE, suspects, action=action)
    write_json(folder / "run.json", _details(scored, issues))


def apply_to(scored: Scored, actions: Path | str) -> tuple[pa.Table, Applied]:
    """The data's labels after an edited action list: id, label, new_label and path, without the dropped samples."""
    labels = torch.from_numpy(labels_of(scored.table).astype("int64", casting="safe"))
    applied = apply_actions(
        read_actions(actions), scored.table.column("id").to_pylist(), labels, class_names=scored.class_names
    )
    columns = {"id": scored.table.column("id"), "label": scored.table.column("label")}
    columns["new_label"] = pa.chunked_array([pa.array(applied.labels.numpy())])
    if "path" in scored.table.column_names:
        columns["path"] = scored.table.column("path")
    return pa.table(columns).filter(pa.array(applied.kept.numpy())), applied


def _details(scored: Scored, issues: LabelIssues) -> dict[str, Any]:
    found = {"estimated": issues.estimated, "estimate": issues.estimate, "best": issues.scores[0]}
    return {
        "name": f"audit of {scored.name}",
        "kind": "audit",
        "status": "finished",
        "config": {"source": str(scored.path), "scores": list(issues.scores), "estimate": issues.estimate},
        "class_names": scored.class_names,
        "results": {"label_issues": found},
    }


def _read_table(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError):
        raise ValueError(f"{path} is truncated or is not a Parquet table") from None


def _read_details(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        details = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not readable JSON: {error}") from None
    return details if isinstance(details, dict) else {}
