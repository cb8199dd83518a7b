"""An audit in short: as text for a terminal, and as HTML with pictures or texts for a notebook."""

import base64
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from hardsight.cleaning.kinds import Findings
from hardsight.engines.images import thumbnails
from hardsight.names import visible

if TYPE_CHECKING:
    from hardsight.cleaning.auditing import Audit

_SHOWN = 10
_LONGEST = 40
_PAIRS = 3


def headline(audit: "Audit") -> str:
    """How many labels are probably wrong, and how that was found."""
    issues, samples = audit.issues, audit.issues.table.num_rows
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
    lines = [f"Audit of {audit.issues.table.num_rows:,} samples: {headline(audit)}", *findings_in_short(audit.findings)]
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
    body = "".join(_row(row, pictures.get(str(row["id"]))) for row in rows)
    return f"{said}<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: dict[str, Any], picture: bytes | None) -> str:
    if picture is None:
        about = _escaped(str(row.get("text") or row.get("path") or ""))
    else:
        about = f'<img alt="" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
    cells = (row["id"], *_classes(row), _number(row["suspicion"]), row["reasons"])
    return f"<tr><td>{about}</td>" + "".join(f"<td>{_escaped(str(one))}</td>" for one in cells) + "</tr>"


def _classes(row: dict[str, Any]) -> tuple[Any, Any]:
    return row.get("label_name", row["label"]), row.get("expected_name", row["expected"])


def _number(suspicion: float | None) -> str:
    return "missing" if suspicion is None else f"{suspicion:.4f}"


def _escaped(text: str) -> str:
    return escape(visible(text))
