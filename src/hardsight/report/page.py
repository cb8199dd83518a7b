"""The page: one HTML file that holds everything it shows and asks the network for nothing."""

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.plotting import as_svg
from hardsight.records import write_text
from hardsight.report.gallery import figures_of
from hardsight.report.reading import read_run
from hardsight.report.sentences import facts, notices, sentences, tiles
from hardsight.report.view import View, look_at

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).parent / "templates"
_CONFUSIONS = 12
# Rows of the table of samples that are printed, about a sheet; page.css hides those after them.
_PAPER_ROWS = 40
_SECTIONS = {
    "suspects": "Suspected labels",
    "hardest": "Hardest samples",
    "histograms": "Histograms",
    "plane": "Hardness and confidence",
    "scores": "Scores",
    "curves": "Learning curves",
    "classes": "Classes",
    "confusion": "Confusion",
    "samples": "Table",
    "run": "Run",
}


def write_report(run: Path | str, output: Path | str | None = None) -> Path:
    """Write the report of a record as one self-contained HTML file, `RUN/report.html` unless `output` says where."""
    view = look_at(read_run(run))
    path = Path(run) / "report.html" if output is None else Path(output)
    if path.is_dir():
        raise ValueError(f"output must be a file to write; {path} is a folder")
    write_text(path, render(view))
    return path


def render(view: View) -> str:
    """The page as text; every word that comes from the record is escaped."""
    environment = template_environment(number=number, range=range_text, suspicion="{:.4f}".format)
    from markupsafe import Markup

    drawn = figures_of(view)
    # The only markup that is not escaped: our own style and script, and what matplotlib has escaped itself.
    svgs = {name: Markup(as_svg(figure, text, f"f{at}")) for at, (name, (figure, text)) in enumerate(drawn.items())}
    style, script = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    context = _context(view, svgs)
    context |= {"style": Markup(style), "script": Markup(script), "script_hash": f"sha256-{digest}"}
    return environment.get_template("page.html").render(context).strip() + "\n"


def template_environment(**filters: Callable[..., str]) -> "jinja2.Environment":
    """Where the pages' templates are read: every word is escaped, and a name nobody set is an error."""
    try:
        import jinja2
    except ImportError:
        raise ImportError("a report needs jinja2: pip install jinja2 matplotlib") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment


def number(value: float | int | None) -> str:
    """Four figures that matter; nothing for a value that is missing or not finite."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:.4g}"


def range_text(written: str | None) -> str:
    """A range as a column describes it, `[-3.14159, inf]`, as a person writes it; any other text as it is."""
    sides = re.fullmatch(r"\[(\S+), (\S+)[\])]", written or "")
    try:
        return " … ".join(map(_bound, sides.groups())) if sides else written or ""
    except ValueError:
        return written or ""


def _bound(written: str) -> str:
    value = float(written)
    for exact, text in ((math.pi, "π"), (math.sqrt(2), "√2"), (math.inf, "∞")):
        if f"{abs(value):.6g}" == f"{exact:.6g}":
            return ("−" if value < 0 else "") + text
    return number(value).replace("-", "−")


def _context(view: View, svgs: Mapping[str, Any]) -> dict[str, Any]:
    histograms = [name for name in svgs if name.startswith("histogram")]
    shown = [card.id for ranking in (view.suspects, view.hardest) if ranking for card in ranking.cards]
    there = {
        "suspects": view.suspects,
        "hardest": view.hardest,
        "histograms": histograms,
        "scores": view.lines,
        "confusion": view.confusion,
        "samples": view.table,
        "run": True,
    }
    details = view.run.details
    return {
        "view": view,
        "name": view.run.name,
        "facts": facts(view),
        "notices": notices(view),
        "tiles": tiles(view),
        "sentences": sentences(view),
        "sections": [(anchor, title) for anchor, title in _SECTIONS.items() if there.get(anchor) or anchor in svgs],
        "figures": svgs,
        "histograms": histograms,
        "thumbnails": view.run.thumbnails(shown),
        "detection": any(line.auroc is not None for line in view.lines),
        "missing": any(line.missing for line in view.lines),
        "truth": view.wrong is not None,
        "paper_rows": _PAPER_ROWS,
        "paths": any(card.path for card in view.table),
        "reasons": any(card.reasons for card in view.table),
        "expected_column": "expected" if view.labels and "expected" in view.labels.codes else "predicted",
        "confusions": _confusions(view),
        "run_rows": _flat({key: details.get(key) for key in ("kind", "status", "created", "seed", "device", "commit")}),
        "result_rows": _flat(_results(view)),
        "config_rows": _flat(view.run.section("config")),
        "version_rows": _flat(view.run.section("versions")),
    }


def _results(view: View) -> dict[str, Any]:
    """What the run found, without the scores' own numbers, which have a table of their own."""
    results = dict(view.run.section("results"))
    if view.lines and "label_issues" in results:
        issues = view.run.section("results", "label_issues")
        results["label_issues"] = {key: value for key, value in issues.items() if key != "scores"}
    return results


def _confusions(view: View) -> list[tuple[str, str, int, float]]:
    """The most frequent pairs of a given and another predicted label, with their share of the given."""
    pairs, labels = view.confusion, view.labels
    if pairs is None or labels is None:
        return []
    totals = np.bincount(pairs.given, weights=pairs.counts, minlength=len(labels.names))
    apart = np.flatnonzero(pairs.given != pairs.predicted)
    first = apart[np.argsort(-pairs.counts[apart], kind="stable")][:_CONFUSIONS]
    return [
        (
            labels.names[pairs.given[at]],
            labels.names[pairs.predicted[at]],
            int(pairs.counts[at]),
            float(pairs.counts[at] / totals[pairs.given[at]]),
        )
        for at in first
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines, `optimizer.lr` and its value."""
    lines: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            lines += _flat(value, f"{name}.")
        elif value is not None:
            lines.append((name, _cut(_plain(value))))
    return lines


def _plain(value: Any) -> str:
    """A list as its entries, without Python's quotes; numbers as everywhere."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return number(value) if isinstance(value, float) else str(value)


def _cut(text: str, longest: int = 300) -> str:
    return text if len(text) <= longest else text[:longest] + " …"
