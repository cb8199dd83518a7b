"""An audit in short, as text or HTML; on disk, as a list to edit and a record; and as tables that other tools open."""

import base64
import json
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hardsight.cleaning.confident import PROBABILITIES
from hardsight.cleaning.decisions import read_actions, write_actions
from hardsight.cleaning.issues import LabelIssues
from hardsight.cleaning.kinds import Findings
from hardsight.cleaning.samples import Samples
from hardsight.datasets.interface import FileDataset
from hardsight.engines.images import thumbnails
from hardsight.files.parquet import text_metadata
from hardsight.names import check_name, visible
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
# Samples of a summary, letters of a text, and lines about classes.
_SHOWN, _LONGEST, _PAIRS = 10, 40, 3
# Of the samples left out so many are listed in `audit.json`.
_LISTED = 1000
# Columns of what is audited that would be wrong, or far too much, in its audit.
_LEFT_BEHIND = (PROBABILITIES, "kinds", "neighbours")
# Where a sample is drawn: no score of it.
_PLACES = {name: {"kind": "place", "title": f"Principal component {at}"} for at, name in enumerate("xy", 1)}


# ---------------------------------------------------------------------------------------------------------------------
# In short.


def headline(audit: "Audit") -> str:
    """How many labels are probably wrong, and how that was found."""
    issues, samples = audit.issues, audit.issues.samples
    return (
        f"about {issues.estimated:,} of {samples:,} labels ({issues.estimated / samples:.1%}) are probably wrong, by "
        f"{issues.estimate.replace('_', ' ')}; ranked by {', '.join(issues.scores)}"
    )


def findings_in_short(findings: Findings) -> Iterator[str]:
    """What there is beside wrong labels: counts with their intervals, and what is the matter with classes."""
    counted = [
        f"{name.replace('_', ' ')} {one.count:,}" + ("" if one.low is None else f" ({one.low:,} to {one.high:,})")
        for name, one in findings.counts.items()
        if name != "mislabelled"
    ]
    if counted:
        yield f"also found: {', '.join(counted)}"
    pairs = [f"{one['label']} for {one['expected']} {one['count']}" for one in findings.classes.get("confused", ())]
    if pairs:
        yield f"confused most: {', '.join(pairs[:_PAIRS])}"
    small = findings.classes.get("imbalance", {}).get("small", ())
    if small:
        yield f"small classes: {', '.join(str(one['label']) for one in small[:_PAIRS])}"
    for one in findings.classes.get("alike", ())[:_PAIRS]:
        yield f"look like one class: {one['labels'][0]} and {one['labels'][1]}"
    for one in findings.classes.get("several", ())[:_PAIRS]:
        yield f"looks like several classes: {one['label']}"
    yield from findings.notes


def as_text(audit: "Audit") -> str:
    """The counts, and the ten most suspicious samples."""
    lines = [f"Audit of {audit.issues.samples:,} samples: {headline(audit)}", *findings_in_short(audit.findings)]
    if len(audit.left_out):
        lines.append(f"{len(audit.left_out):,} samples were left out, see left_out")
    lines.append("most suspicious first: id, label -> expected, suspicion")
    for row in audit.table.slice(0, _SHOWN).to_pylist():
        label, expected = _classes(row)
        about = str(row.get("text") or row.get("path") or "")
        cut = about if len(about) <= _LONGEST else about[: _LONGEST - 1] + "…"
        lines.append(f"  {row['id']}  {label} -> {expected}  {_number(row['suspicion'])}  {cut}".rstrip())
    return "\n".join(visible(line) for line in lines)


def as_html(audit: "Audit") -> str:
    """`as_text` as a table: each sample with its picture, its text or its path."""
    rows = audit.table.slice(0, _SHOWN).to_pylist()
    pictures: dict[str, bytes] = {}
    if audit.opened.images is not None:
        found = thumbnails(audit.opened.images, [str(row["id"]) for row in rows]).to_pydict()
        pictures = dict(zip(found["id"], found["png"], strict=True))
    lines = [headline(audit), *findings_in_short(audit.findings)]
    said = "".join(f"<p>{_escaped(line)}</p>" for line in lines)
    header = "".join(f"<th>{name}</th>" for name in ("", "id", "label", "expected", "suspicion", "reasons"))
    body = ""
    for row in rows:
        picture = pictures.get(str(row["id"]))
        about = _escaped(str(row.get("text") or row.get("path") or ""))
        if picture is not None:
            about = f'<img alt="" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        cells = (row["id"], *_classes(row), _number(row["suspicion"]), row["reasons"])
        body += f"<tr><td>{about}</td>" + "".join(f"<td>{_escaped(str(one))}</td>" for one in cells) + "</tr>"
    return f"{said}<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _classes(row: dict[str, Any]) -> tuple[Any, Any]:
    return row.get("label_name", row["label"]), row.get("expected_name", row["expected"])


def _number(suspicion: float | None) -> str:
    return "missing" if suspicion is None else f"{suspicion:.4f}"


def _escaped(text: str) -> str:
    return escape(visible(text))


# ---------------------------------------------------------------------------------------------------------------------
# On disk.


def audited_table(scored: Samples, issues: LabelIssues, findings: Findings) -> pa.Table:
    """The scored samples with what was found of them, most suspicious first.

    Probabilities stay in the table that was audited: a number for each sample and class would be the whole record.
    """
    kept = [name for name in scored.table.column_names if name not in _LEFT_BEHIND]
    samples = scored.table.select(kept).take(pa.array(issues.order))
    columns = {name: issues.table.column(name) for name in issues.table.column_names if name not in ("id", "label")}
    for name, column in (columns | findings.columns).items():
        described = issues.table.schema.field(name) if name in issues.table.column_names else None
        metadata = _PLACES.get(name) or (described.metadata if described else None)
        if name in samples.column_names:
            samples = samples.drop_columns([name])
        samples = samples.append_column(pa.field(name, column.type, metadata=metadata), column)
    return samples


def write_audit(audit: "Audit", folder: Path) -> None:
    """Write the record: `table.parquet` (most suspicious first), `actions.csv` for the suspects, `audit.json` last.

    Not where it would take the place of another record, or of a list that a person has edited.
    """
    source = audit.scored.path
    if (source is not None and folder.resolve() == source.resolve()) or (folder / RUN_FILE).is_file():
        raise ValueError(f"output must be a folder of its own; {folder} holds a record that is no audit, or is audited")
    actions = folder / ACTIONS_FILE
    if actions.is_file() and any(one.action != "keep" for one in read_actions(actions)):
        raise ValueError(f"{actions} has been edited: apply it, move it away, or say with --output where to write")
    # Pictures of an earlier audit would stand beside the wrong samples.
    (folder / "thumbnails.parquet").unlink(missing_ok=True)
    samples = audited_table(audit.scored, audit.issues, audit.findings)
    write_table(folder / TABLE_FILE, samples)
    suspects = audit.issues.suspects()
    for name in samples.column_names:
        if name == "path" or is_shown(samples.schema.field(name)):
            suspects = suspects.append_column(samples.schema.field(name), samples.column(name).slice(0, len(suspects)))
    write_actions(actions, suspects)
    write_json(folder / AUDIT_FILE, details_of(audit))


def details_of(audit: "Audit") -> dict[str, Any]:
    """What `audit.json` says of an audit."""
    scored, issues, left_out = audit.scored, audit.issues, audit.left_out
    found = {"estimated": issues.estimated, "estimate": issues.estimate, "ranked_by": list(issues.scores)}
    found |= {name: value for name, value in (("agreed", issues.agreed), ("of", issues.of)) if value is not None}
    results: dict[str, Any] = {"label_issues": found}
    if audit.findings.counts:
        results["findings"] = audit.findings.facts()
    if len(left_out):
        results["left_out"] = {"count": len(left_out), "first": left_out.slice(0, _LISTED).to_pylist()}
    written, source = text_metadata(scored.table.schema), str(scored.path or scored.name)
    return {
        "name": f"audit of {scored.name}",
        "kind": "audit",
        "status": "finished",
        "config": {"source": source, "scores": list(issues.scores), "estimate": issues.estimate},
        "class_names": scored.class_names,
        "data": {name: written[name] for name in ("root", "layout", "split") if written.get(name)},
        "results": results,
        "notes": list(audit.findings.notes),
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
    """Tasks with their predictions; Label Studio serves local files at this address, below its document root, "/"."""
    tasks = []
    for row in _flat(table).to_pylist():
        given, expected = _classes(row)
        shown, about = "text", str(row.get("text", row["id"]))
        if "filepath" in row:
            shown, about = "image", f"/data/local-files/?d={quote(row['filepath'].lstrip('/'))}"
        data = {shown: about, "id": row["id"], "label": given, "reasons": row["reasons"]}
        choice = {"from_name": "class", "to_name": shown, "type": "choices", "value": {"choices": [str(expected)]}}
        predictions = [] if expected is None else [{"score": row["suspicion"], "result": [choice]}]
        tasks.append({"data": data} | ({"predictions": predictions} if predictions else {}))
    write_text(path, json.dumps(plain(tasks), ensure_ascii=False, indent=1, default=str) + "\n")


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
