"""The audit of a scored data set: suspects with reasons, a list to edit, and a record that a page is made from."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from hardsight.cleaning.action_list import read_actions, write_actions
from hardsight.cleaning.issues import LabelIssues
from hardsight.cleaning.kinds import Findings
from hardsight.cleaning.probabilities import COLUMN as PROBABILITIES
from hardsight.cleaning.scored import Scored
from hardsight.files.parquet import text_metadata
from hardsight.records import (
    AUDIT_FILE,
    RUN_FILE,
    TABLE_FILE,
    is_shown,
    write_json,
    write_table,
)

ACTIONS_FILE = "actions.csv"
# Of the samples left out so many are listed in `audit.json`.
_LISTED = 1000
# Columns of what is audited that would be wrong, or far too much, in its audit.
_LEFT_BEHIND = (PROBABILITIES, "kinds", "neighbours")
# Where a sample is drawn: no score of it.
_PLACES = {name: {"kind": "place", "title": f"Principal component {at}"} for at, name in enumerate("xy", 1)}


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
        metadata = _PLACES.get(name) or (described.metadata if described else None)
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


def _refuse_to_overwrite(folder: Path, source: Path | None) -> None:
    same = source is not None and folder.resolve() == source.resolve()
    if same or (folder / RUN_FILE).is_file():
        raise ValueError(f"output must be a folder of its own; {folder} holds a record that is no audit, or is audited")
    path = folder / ACTIONS_FILE
    if path.is_file() and any(one.action != "keep" for one in read_actions(path)):
        raise ValueError(f"{path} has been edited: apply it, move it away, or say with --output where to write")


def _details(scored: Scored, issues: LabelIssues) -> dict[str, Any]:
    found = {"estimated": issues.estimated, "estimate": issues.estimate, "ranked_by": list(issues.scores)}
    if issues.agreed is not None:
        found["agreed"] = issues.agreed
    if issues.of is not None:
        found["of"] = issues.of
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
