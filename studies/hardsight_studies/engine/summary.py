"""`docs/results.md`: every table and figure of the papers in a line, from the rows and the studies' `[[result]]`."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardsight_studies.engine import study as studies
from hardsight_studies.engine.pages import Scope, filled
from hardsight_studies.engine.rows import PUBLISHED, Rows, path_of, point_key, read_rows
from hardsight_studies.engine.study import Study
from hardsight_studies.engine.tables import Table

HEAD = """# Results

Each line is a table or figure of a paper, or a question of our own: what the paper prints, what we measured, and
whether the two agree. `hardsight study table ID` prints the whole table, `hardsight study run ID` measures again, and
`hardsight study pages` builds a page for each study. Accuracies are in percent, after the last epoch; ± is the
standard deviation over seeds, brackets hold 95 % intervals. `make docs` makes this page from `studies/results`.

"""
PLANNED = """
## Planned

These can be run, and have been on small data only.

"""


def results_page(results: Path | str = PUBLISHED) -> str:
    """The page as Markdown."""
    every = [studies.load(head.path) for head in studies.heads()]
    lines = {study.id: lines_of(study, results) for study in every}
    found = Table(
        ("study", "stands beside", "what", "paper", "ours", "seeds", "verdict"),
        [line for study in every for line in lines[study.id]],
    )
    planned = [(study.id, study.head.paper, study.head.title) for study in every if not lines[study.id]]
    more = PLANNED + Table(("study", "stands beside", "what"), planned).markdown() if planned else ""
    return HEAD + found.markdown() + more


def lines_of(study: Study, results: Path | str) -> list[list[str]]:
    """The lines of a study; none where it is not measured beyond the smoke preset."""
    if all(row.preset == "smoke" for row in read_rows(path_of(study.id, results))):
        return []
    return [_line(study, about, results) for about in study.tables("result")]


def _line(study: Study, about: Mapping[str, Any], results: Path | str) -> list[str]:
    scope = Scope(study, results, preset=about.get("preset"))
    page = f"[[result]] of {study.id}"
    told = [filled(str(about.get(name, "")), scope, page) for name in ("paper", "ours", "seeds")]
    beside, what = about.get("of", study.head.paper), about.get("what", study.head.title)
    seeds = told[2] or _seeds(scope.rows())
    return [study.id, beside, what, told[0], told[1], seeds, _verdict(about["verdict"], scope, page)]


def _verdict(verdict: str | Mapping[str, str], scope: Scope, page: str) -> str:
    """The first verdict whose expression is true."""
    if isinstance(verdict, str):
        return verdict
    for said, expression in verdict.items():
        if scope.true(expression, page):
            return said
    raise ValueError(f"{page}: verdict must hold one expression that is true; none of {', '.join(verdict)} is")


def _seeds(rows: Rows) -> str:
    """How many seeds a point has: `3`, or `1 to 5`."""
    counts = Counter(point_key(row.settings) for row in rows if not row.error and row.seed is not None)
    stored = [metric["count"] for row in rows for metric in row.metrics.values()
              if isinstance(metric, Mapping) and "count" in metric]  # fmt: skip
    every = sorted({*counts.values(), *stored})
    return "" if not every else f"{every[0]}" if len(every) == 1 else f"{every[0]} to {every[-1]}"
