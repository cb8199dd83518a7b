"""An audit on disk: a list to edit and a record that a page is made from; and tables that other tools open."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hardsight.cleaning.action_list import read_actions, write_actions
from hardsight.cleaning.confident import PROBABILITIES
from hardsight.cleaning.issues import LabelIssues
from hardsight.cleaning.kinds import Findings
from hardsight.cleaning.labelled import Scored
from hardsight.datasets.interface import FileDataset
from hardsight.files.parquet import text_metadata
from hardsight.names import check_name
from hardsight.records import (
    AUDIT_FILE,
    RUN_FILE,
    TABLE_FILE,
    atomic_path,
    is_shown,
    plain,
    write_json,
    write_table,
    write_text,
)

if TYPE_CHECKING:
    from hardsight.cleaning.auditing import Audit

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


# ---------------------------------------------------------------------------------------------------------------------
# Other tools.


def export(audit: "Audit", folder: Path | str, form: str) -> Path:
    """Write the audit into a folder in one of `FORMS`, and return the file.

    `fiftyone`: a CSV with `filepath` and a column for each field, for `fiftyone.types.CSVDataset`. `spotlight`: a
    Parquet table, whose columns `image` and `place` are shown as Image and Embedding. `label-studio`: tasks as JSON,
    with the expected class as a prediction.
    """
    check_name("form", form, FORMS)
    suffix, write = FORMS[form]
    path = Path(folder) / f"{form}.{suffix}"
    table = audit.table
    images = audit.opened.images
    if isinstance(images, FileDataset) and "path" in table.column_names:
        root = str(images.root.resolve())
        table = table.append_column("filepath", pc.binary_join_element_wise(root, table.column("path"), "/"))
    write(path, table)
    return path


def _fiftyone(path: Path, table: pa.Table) -> None:
    if "filepath" not in table.column_names:
        raise ValueError("form fiftyone must be of images in files; the audit has none: take spotlight")
    flat = _flat(table)
    first = flat.select(["filepath", *(name for name in flat.column_names if name != "filepath")])
    # FiftyOne's samples have an id of their own.
    names = ["sample_id" if name == "id" else name for name in first.column_names]
    with atomic_path(path) as draft:
        pyarrow.csv.write_csv(first.rename_columns(names), draft)


def _spotlight(path: Path, table: pa.Table) -> None:
    flat = _flat(table)
    if {"x", "y"} <= set(flat.column_names):
        place = [list(one) for one in zip(flat["x"].to_pylist(), flat["y"].to_pylist(), strict=True)]
        flat = flat.drop_columns(["x", "y"]).append_column("place", pa.array(place, pa.list_(pa.float32())))
    names = ["image" if name == "filepath" else name for name in flat.column_names]
    write_table(path, flat.rename_columns(names))


def _label_studio(path: Path, table: pa.Table) -> None:
    tasks = [_task(row) for row in _flat(table).to_pylist()]
    write_text(path, json.dumps(plain(tasks), ensure_ascii=False, indent=1, default=str) + "\n")


def _task(row: dict[str, Any]) -> dict[str, Any]:
    """A task with its prediction; Label Studio serves local files at this address, below its document root, "/"."""
    given, expected = row.get("label_name", row["label"]), row.get("expected_name", row["expected"])
    shown = "image" if "filepath" in row else "text"
    about = str(row.get("text", row["id"]))
    if "filepath" in row:
        about = f"/data/local-files/?d={quote(row['filepath'].lstrip('/'))}"
    data = {shown: about, "id": row["id"], "label": given, "reasons": row["reasons"]}
    if expected is None:
        return {"data": data}
    choice = {"from_name": "class", "to_name": shown, "type": "choices", "value": {"choices": [str(expected)]}}
    return {"data": data, "predictions": [{"score": row["suspicion"], "result": [choice]}]}


def _flat(table: pa.Table) -> pa.Table:
    """Without what no spreadsheet holds: kinds become one text, neighbours go."""
    flat = table.drop_columns([name for name in ("neighbours",) if name in table.column_names])
    for at, field in enumerate(flat.schema):
        if pa.types.is_list(field.type):
            texts = [" ".join(str(each) for each in one or ()) for one in flat.column(field.name).to_pylist()]
            flat = flat.set_column(at, field.name, pa.array(texts))
        elif pa.types.is_dictionary(field.type):
            flat = flat.set_column(at, field.name, flat.column(field.name).cast(field.type.value_type))
    return flat


FORMS: dict[str, tuple[str, Callable[[Path, pa.Table], None]]] = {
    "fiftyone": ("csv", _fiftyone),
    "spotlight": ("parquet", _spotlight),
    "label-studio": ("json", _label_studio),
}
