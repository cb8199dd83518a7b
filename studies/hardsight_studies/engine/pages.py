"""Pages by people: numbers, tables and figures are filled in, and claims are checked, when the site is built."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hardsight.names import check_name, unknown_name
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.expressions import FUNCTIONS, NotMeasuredError, evaluate, plain
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, read
from hardsight_studies.engine.study import HOME, Study
from hardsight_studies.engine.tables import failures, make_table, paper_number, provenance, show

PAGES = next((one for one in (HOME / "pages", HOME.parent / "pages") if one.is_dir()), HOME.parent / "pages")
_FILLED = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_CLAIM = re.compile(r"\n?[ \t]*<!-- claim:(.*?)-->", re.DOTALL)
_FILTERS = {"percent": ".1%", "percent0": ".0%", "points": "+.1%"}


class Scope:
    """What the expressions of one page may name; rows of a study are read once.

    `preset`: that of the page's own study; left out, the largest that was measured.
    """

    def __init__(
        self,
        study: Study | None,
        results: Path | str = PUBLISHED,
        figures: Path | None = None,
        *,
        preset: str | None = None,
    ) -> None:
        self.study, self.results, self.figures, self.preset = study, Path(results), figures, preset
        self._studies: dict[str, Study] = {} if study is None else {study.id: study}
        self._rows: dict[tuple[str, str | None], Rows] = {}
        self._failed: list[str] = []

    def value(self, text: str) -> Any:
        """The value of an expression, in which every metric is a function of settings."""
        own = ("values", "options", "paper", "table", "figure", "provenance")
        names = {**FUNCTIONS, **{name: getattr(self, f"_{name}") for name in own}}
        return evaluate(text, names, lambda name: Metric(self, name, names))

    def true(self, claim: str, page: str) -> bool:
        """Whether a comparison holds; an error, with the page and the claim, where it cannot be said."""
        try:
            holds = plain(self.value(claim))
        except ValueError as problem:
            raise type(problem)(f"{page}: claim {claim!r}: {problem}") from None
        if not isinstance(holds, bool):
            raise ValueError(f"{page}: claim must be a comparison, true or false; got {claim!r}")
        return holds

    def rows(self, study: str | None = None, preset: str | None = None) -> Rows:
        """The rows of a study; left out, the page's own and the largest preset that was measured."""
        id = self.of(study).id
        preset = preset or (self.preset if self.study is not None and id == self.study.id else None)
        if (id, preset) not in self._rows:
            try:
                self._rows[id, preset] = read(id, self.results, preset)
            except FileNotFoundError as problem:
                raise NotMeasuredError(str(problem)) from None
        return self._rows[id, preset]

    def of(self, study: str | None) -> Study:
        """A study by id; left out, the page's own."""
        if study is None:
            if self.study is None:
                raise ValueError("study must be given on a page that is of no study")
            return self.study
        if study not in self._studies:
            self._studies[study] = studies.get(study)
        return self._studies[study]

    def number(self, metric: str, *, study: str | None = None, preset: str | None = None, **settings: Any) -> Number:
        """A metric over the seeds of one point."""
        rows = self._checked(metric, study, preset, settings)
        found = rows.number(metric, **settings)
        if found is None:
            called = f"{metric}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"
            raise NotMeasuredError(f"{called} is not measured in {rows.study}, preset {rows.preset}")
        return found

    def _checked(self, metric: str, study: str | None, preset: str | None, settings: Mapping[str, Any]) -> Rows:
        rows, of = self.rows(study, preset), self.of(study)
        check_name(f"metric of {of.id}", metric, dict.fromkeys([*of.tree.get("metrics", {}), *rows.metrics]))
        for axis in settings:
            check_name(f"axis of {of.id}", axis, dict.fromkeys([*of.axes, *rows.axes]))
        return rows

    def _values(
        self, metric: "Metric", *, study: str | None = None, preset: str | None = None, **settings: Any
    ) -> list[Any]:
        name = metric.name
        rows = self._checked(name, study, preset, settings)
        points = {frozenset((k, repr(v)) for k, v in row.settings.items()): row.settings
                  for row in rows.where(**settings) if row.metrics.get(name) is not None}  # fmt: skip
        absent = dict.fromkeys(rows.axes)
        return [rows.number(name, **{**absent, **point}) for point in points.values()]

    def _options(self, axis: str, *, study: str | None = None, preset: str | None = None, **settings: Any) -> list[Any]:
        rows = self.rows(study, preset)
        check_name(f"axis of {rows.study}", axis, rows.axes)
        return rows.options(axis, **settings)

    def _paper(self, table: str, row: Any, column: Any, *, study: str | None = None) -> float:
        printed = paper_number(self.of(study), table, row, column)
        found = re.match(r"[+-]?\d+\.?\d*", printed.replace("−", "-"))
        if found is None:
            raise ValueError(f"paper must be a number in {table}, {row}, {column}; it is {printed!r}")
        return float(found[0])

    def _table(self, name: str | None = None, *, study: str | None = None, preset: str | None = None) -> str:
        rows = self.rows(study, preset)
        # A page says once what failed.
        failed = "" if failures(rows) in self._failed else failures(rows)
        self._failed.append(failed)
        return (make_table(self.of(study), rows, name).markdown() + failed).rstrip("\n")

    def _figure(self, name: str | None = None, *, study: str | None = None, preset: str | None = None) -> str:
        from hardsight_studies.engine.figures import make_figure, save

        of = self.of(study)
        about = of.entry("figure", name)
        file = f"{of.id}-{about['name']}.png"
        if self.figures is not None:
            save(make_figure(of, self.rows(study, preset), name), self.figures / file)
        return f"![{about.get('title', of.head.title)}]({file})"

    def _provenance(self, *, study: str | None = None, preset: str | None = None) -> str:
        return provenance(self.of(study), self.rows(study, preset))


class Metric:
    """A metric by name: called with settings, its number over the seeds of that point."""

    def __init__(self, scope: Scope, name: str, functions: Iterable[str]) -> None:
        self.scope, self.name, self.functions = scope, name, functions

    def __call__(self, *arguments: Any, **settings: Any) -> Number:
        if arguments:
            raise unknown_name("a function in an expression", self.name, self.functions, "functions")
        return self.scope.number(self.name, **settings)


def filled(text: str, scope: Scope, page: str = "page") -> str:
    """The text with every `{{ }}` filled in and every claim checked; the comments of claims are left out."""
    for claim in claims(text):
        if not scope.true(claim, page):
            raise ValueError(f"{page}: claim no longer holds: {claim}")

    def fill(found: "re.Match[str]") -> str:
        expression, filter = _parts(found[1])
        try:
            return _shown(scope.value(expression), filter)
        except ValueError as problem:
            raise type(problem)(f"{page}: {{{{ {found[1].strip()} }}}}: {problem}") from None

    return _FILLED.sub(fill, _CLAIM.sub("", text))


def claims(text: str) -> list[str]:
    """The claims of a page, as they are written."""
    return [" ".join(claim.split()) for claim in _CLAIM.findall(text)]


def build_page(study: Study, folder: Path, *, results: Path | str = PUBLISHED, pages: Path = PAGES) -> Path:
    """Write a study's page and its figures into the folder."""
    scope = Scope(study, results, folder)
    source = pages / f"{study.id}.md"
    path = folder / source.name
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(filled(source.read_text(encoding="utf-8"), scope, source.name), encoding="utf-8")
    return path


def build_pages(folder: Path, *, results: Path | str = PUBLISHED, pages: Path = PAGES) -> list[Path]:
    """Write every study's page that people have written."""
    known = {head.id: head for head in studies.heads()}
    for page in sorted(pages.glob("*.md")):
        if page.name not in ("findings.md", "measured.md"):
            check_name(f"the study of {page.name}", page.stem, known, "studies")
    there = [head for head in known.values() if (pages / f"{head.id}.md").is_file()]
    return [build_page(studies.load(head.path), folder, results=results, pages=pages) for head in there]


def _parts(text: str) -> tuple[str, str]:
    expression, bar, filter = text.rpartition("|")
    return (expression.strip(), filter.strip()) if bar else (text.strip(), "")


def _shown(value: Any, filter: str) -> str:
    if callable(value):
        value = value()
    if isinstance(value, list) and filter:
        return " / ".join(_shown(one, filter) for one in value)
    if isinstance(value, str) or not filter:
        return value if isinstance(value, str) else f"{plain(value)}"
    return show(value, _spec(filter))


def _spec(filter: str) -> str:
    if filter in _FILTERS:
        return _FILTERS[filter]
    found = re.fullmatch(r"(signed)?(\.\d+[f%])", filter)
    if found is None:
        raise unknown_name("a filter", filter, [*_FILTERS, ".3f", "signed.2f"], "filters")
    return ("+" if found[1] else "") + found[2]
