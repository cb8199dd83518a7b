"""Tables as the TOML declares them: rows grouped by all but the seed, pivoted, the paper's number beside ours."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardsight.names import check_name
from hardsight_studies.engine.grid import matches, plan
from hardsight_studies.engine.rows import Number, Row, Rows, point_key
from hardsight_studies.engine.study import Study, Tree, metrics_of, text

MISSING = "–"
# Values of the axes of one row or column, in the axes' order.
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """Heads and lines of text."""

    heads: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as Markdown, with a line end."""
        every = (self.heads, ["---"] * len(self.heads), *self.lines)
        return "".join("| " + " | ".join(line) + " |\n" for line in every)


def make_table(study: Study, rows: Rows, name: str | None = None) -> Table:
    """A table of the study, by name; left out, its first."""
    about = study.entry("table", name)
    if "function" in about:
        from hardsight_studies.engine.running import hook

        return Table(*hook(about["function"])(rows))
    known = [*study.tree.get("metrics", {}), *rows.metrics]
    # Of a part that is not measured there are no metrics yet.
    measured = any(matches(row.settings, about.get("where", {})) for row in rows)
    for metric in (one for format in _formats(about).values() if measured for one in metrics_of(format)):
        check_name(f"{study.id}: metric of table {about['name']}", metric, known)
    return _Pivot(study, rows, about).table()


class _Pivot:
    """A declared table: which rows and columns it has, and what a cell shows."""

    def __init__(self, study: Study, rows: Rows, about: Tree) -> None:
        self.study, self.rows, self.about = study, rows, about
        self.tree = study.at(rows.preset)
        self.where = about.get("where", {})
        self.down, self.across = list(about.get("rows", [])), list(about.get("columns", []))
        # What is planned is shown where it is missing; what was measured beside the plan is shown too.
        planned = [run.point for run in plan(study, rows.preset)] + [row.settings for row in rows]
        self.points = [one for one in planned if matches(one, self.where)]

    def table(self) -> Table:
        """Heads: the axes of the rows, then a column for each value of the columns' axes or for each format."""
        formats = _formats(self.about)
        columns = self._values(self.across)
        heads = [
            " ".join(part for part in (self._title(self.across, column), head) if part)
            for column in columns for head in formats
        ]  # fmt: skip
        corner = [axis_title(self.tree, axis) for axis in self.down]
        lines = [
            [*(value_title(self.tree, axis, value) for axis, value in zip(self.down, row, strict=True)),
             *(self._cell(row, column, head, format) for column in columns for head, format in formats.items())]
            for row in self._values(self.down)
        ]  # fmt: skip
        # A row that nobody has measured, neither we nor the paper, says nothing beside others that were.
        told = [line for line in lines if any(cell not in ("", MISSING) for cell in line[len(corner) :])]
        return Table([*corner, *heads], told)

    def _values(self, axes: Sequence[str]) -> list[Values]:
        """The combinations of values there are, in the order of the axes' values."""
        found = {tuple(text(one[axis]) for axis in axes): tuple(one[axis] for axis in axes)
                 for one in self.points if all(axis in one for axis in axes)}  # fmt: skip
        orders = [self._order(axis) for axis in axes]
        return sorted(
            found.values(),
            key=lambda values: [of.get(text(one), len(of)) for of, one in zip(orders, values, strict=True)],
        )

    def _order(self, axis: str) -> dict[str, int]:
        """The place of each value: as the axis lists them in the study's own table, else in its preset's."""
        axes = [tree.get("axes", {}).get(axis, []) for tree in (self.study.tree, self.tree)]
        names = [*(text(value) for values in axes for value in values), *self.tree.get("values", {}).get(axis, {})]
        return {name: at for at, name in enumerate(dict.fromkeys(names))}

    def _title(self, axes: Sequence[str], values: Values) -> str:
        titles = [value_title(self.tree, *pair) for pair in zip(axes, values, strict=True)]
        title: str = self.about.get("join", ", ").join(one for one in titles if one)
        return title

    def _cell(self, row: Values, column: Values, head: str, format: str) -> str:
        axes = zip([*self.down, *self.across], [*row, *column], strict=True)
        settings = {**self.where, **dict(axes)}
        printed = self.about.get("paper", {}).get(",".join(map(text, column)) or head, {}).get(",".join(map(text, row)))
        if not any(matches(one, settings) for one in self.points):
            return f"[{printed}]" if printed else ""
        ours = formatted(self.rows, format, settings)
        if ours == MISSING and self.rows.failed(**settings):
            ours = "failed"
        return f"{ours} [{printed}]" if printed else ours


def axis_title(tree: Mapping[str, Any], axis: str) -> str:
    """An axis as it is printed."""
    return str(tree.get("axis", {}).get(axis, {}).get("title", axis))


def value_title(tree: Mapping[str, Any], axis: str, value: Any) -> str:
    """A setting's value as it is printed: its own title, or by its axis' format."""
    title = tree.get("values", {}).get(axis, {}).get(text(value), {}).get("title")
    format = tree.get("axis", {}).get(axis, {}).get("format")
    if title is not None or not format:
        return text(value) if title is None else str(title)
    return str(format.format(value)).replace("%", " %")


def paper_number(study: Study, name: str, row: Any, column: Any) -> str:
    """What the paper prints in that place of a table."""
    paper = study.entry("table", name).get("paper", {})
    check_name(f"column of the paper's numbers in {study.id}, {name}", text(column), paper)
    check_name(f"row of the paper's numbers in {study.id}, {name}", text(row), paper[text(column)])
    return str(paper[text(column)][text(row)])


def formatted(rows: Rows, format: str, settings: Mapping[str, Any]) -> str:
    """A cell's text: each `{metric:.1%}` as mean ± standard deviation over seeds; – where none is measured."""
    numbers = {metric: rows.number(metric, **settings) for metric in metrics_of(format)}
    if all(number is None for number in numbers.values()):
        return MISSING

    def shown(field: "re.Match[str]") -> str:
        return show(numbers[field[1]], field[2] or "")

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", shown, format)


def show(number: Number | float | int | None, spec: str = ".3f") -> str:
    """`78.9 ± 0.3` by a spec such as `.1%` (in percent, without the sign) or `.3f`; an interval as `0.35 [0.33, 0.37]`.

    Rounded here and nowhere before.
    """
    if number is None:
        return MISSING
    one = number if isinstance(number, Number) else Number(float(number))

    def plain(value: float) -> str:
        return format(100 * value, spec[:-1] + "f") if spec.endswith("%") else format(value, spec)

    if one.low is not None and one.high is not None:
        return f"{plain(one.mean)} [{plain(one.low)}, {plain(one.high)}]"
    return plain(one.mean) + (f" ± {plain(one.sd).lstrip('+')}" if one.sd is not None and one.count > 1 else "")


def provenance(study: Study, rows: Rows) -> str:
    """One sentence: preset, runs, seeds, hardware, versions, date."""
    planned = plan(study, rows.preset)
    finished = [row for row in rows if not row.error]
    there = {(point_key(row.settings), row.seed) for row in finished}
    done = sum((point_key(run.point), run.seed) in there for run in planned)
    seeds = sorted({seed for row in finished for seed in _seeds_of(row)})
    versions = sorted({part for row in finished for part in row.versions.get("torch", "").split(", ") if part})
    counted = f"{done} of {len(planned)} run{'' if len(planned) == 1 else 's'}"
    hardware = ", ".join(sorted({part for row in finished for part in row.hardware.split(", ") if part}))
    date = max((row.date for row in finished), default="")
    return f"Preset `{rows.preset}`, {counted}, {_seeds(seeds)}; {hardware}, torch {', '.join(versions)}, {date}."


def _seeds_of(row: Row) -> Iterator[int]:
    if row.seed is not None:
        yield row.seed
    for value in row.metrics.values() if row.seed is None else ():
        yield from value.get("seeds", ()) if isinstance(value, Mapping) else ()


def _seeds(seeds: Sequence[int]) -> str:
    """`seed 0`, `seeds 0, 1`; a long row without a gap by its ends."""
    if len(seeds) > 4 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def failures(rows: Rows) -> str:
    """Runs that failed, and why: without them a mean over the seeds that lived would flatter."""
    failed = [row for row in rows if row.error]
    said = [f"`{', '.join(f'{name}={text(value)}' for name, value in row.settings.items())}`, seed {row.seed} "
            f"({str(row.error).partition(', in the batch')[0]})" for row in failed]  # fmt: skip
    return f"Failed, and in no mean: {'; '.join(said)}.\n" if said else ""


def _formats(about: Mapping[str, Any]) -> dict[str, str]:
    """What each cell of a row and column shows: one format, or several under heads of their own."""
    return dict(about["cells"]) if "cells" in about else {"": about.get("cell", "")}
