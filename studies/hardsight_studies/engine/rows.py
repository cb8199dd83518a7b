"""Rows: one JSON line for a finished run, and the points of figures beside them as one Parquet file per study.

Results of two machines are merged by putting the lines together; of one point and seed the newest line counts.
"""

import contextlib
import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.files import parse_json, read_text, reading
from hardsight.names import check_name
from hardsight_studies.engine.study import HOME, PRESETS, text

if TYPE_CHECKING:
    import pyarrow as pa

# Beside the package in a checkout, inside it in an installed wheel.
PUBLISHED = next((one for one in (HOME / "results", HOME.parent / "results") if one.is_dir()), HOME.parent / "results")

# What a row must have and may have, and of which type.
_KINDS = {"study": str, "preset": str, "settings": dict, "seed": int | None, "metrics": dict}
_MORE = {"hardware": str, "versions": dict, "date": str, "error": str | None}


@dataclass(frozen=True)
class Row:
    """One finished run, or with `seed` None an aggregate of which the runs are not known; `error` of a failed run."""

    study: str
    preset: str
    settings: Mapping[str, Any]
    seed: int | None
    metrics: Mapping[str, Any]
    hardware: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    error: str | None = None

    @property
    def key(self) -> str:
        """What tells rows apart: of two rows with one key the newest counts."""
        return json.dumps([self.study, self.preset, point_key(self.settings), self.seed])

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorted by preset, settings and seed."""
        settings = json.dumps(self.settings, ensure_ascii=False)
        return self.preset, settings, -1 if self.seed is None else self.seed

    def line(self) -> str:
        """The row as a line of JSON."""
        found = {name: value for name, value in dataclasses.asdict(self).items() if name != "error" or value}
        return json.dumps(found, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Number:
    """A metric over seeds: values by seed, their mean and standard deviation; or a stored aggregate or interval."""

    mean: float
    sd: float | None = None
    count: int = 1
    values: tuple[float, ...] = ()
    seeds: tuple[int | None, ...] = ()
    low: float | None = None
    high: float | None = None
    over: str = "seeds"

    @classmethod
    def of(cls, values: Mapping[int | None, Any]) -> "Number":
        """Of the values by seed, or of one stored aggregate or interval."""
        alone = next(iter(values.values())) if len(values) == 1 else None
        if isinstance(alone, Mapping):
            if "low" in alone:
                return cls(alone["value"], low=alone["low"], high=alone["high"], over=alone.get("over", "seeds"))
            return cls(alone["mean"], alone.get("sd"), alone["count"], seeds=tuple(alone.get("seeds", ())))
        # Of several intervals, one a seed, the values are what varies with the seed.
        kept = {seed: one["value"] if isinstance(one, Mapping) else one for seed, one in values.items()}
        given = list(kept.values())
        if len(given) == 1 and isinstance(given[0], list):
            return cls(statistics.fmean(given[0]), values=tuple(map(float, given[0])), seeds=tuple(kept))
        numbers = tuple(map(float, given))
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
        return cls(statistics.fmean(numbers), deviation, len(numbers), numbers, tuple(kept))

    def __float__(self) -> float:
        return float(self.mean)


def point_key(settings: Mapping[str, Any]) -> str:
    """What the same settings have in common, whatever their order, and whether a number is written 0 or 0.0."""
    same = {name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in settings.items()}  # fmt: skip
    return json.dumps(same, sort_keys=True)


class Rows(Sequence[Row]):
    """The rows of one study and preset, and the points of its figures."""

    def __init__(self, study: str, preset: str, rows: Iterable[Row], folder: Path | str = ".") -> None:
        self.study, self.preset, self.folder = study, preset, Path(folder)
        self._rows = [one for one in rows if one.preset == preset]
        self._settings = [{**row.settings, "seed": row.seed} for row in self._rows]

    def __getitem__(self, at: Any) -> Any:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def points(self) -> "pa.Table":
        """The points of all figures: columns preset, settings (JSON), seed, series, x, y."""
        import pyarrow.compute as pc

        table = read_points(self.study, self.folder)
        return table.filter(pc.equal(table["preset"], self.preset))

    @property
    def metrics(self) -> list[str]:
        """The metrics that any row has."""
        return list(dict.fromkeys(name for row in self for name in row.metrics))

    @property
    def axes(self) -> list[str]:
        """The settings that any row has."""
        return list(dict.fromkeys(name for row in self for name in row.settings))

    def options(self, axis: str, **settings: Any) -> list[Any]:
        """The values of an axis that were measured, in their order."""
        return list({text(row.settings[axis]): row.settings[axis] for row in self.where(**settings)
                     if axis in row.settings}.values())  # fmt: skip

    def where(self, **settings: Any) -> list[Row]:
        """The rows of these settings; a list allows several values, None an absent setting; `seed` counts as one."""
        wanted = [(name, value if isinstance(value, list) else [value]) for name, value in settings.items()]
        return [
            row
            for row, own in zip(self._rows, self._settings, strict=True)
            if all(own.get(name) in values for name, values in wanted)
        ]

    def number(self, metric: str, **settings: Any) -> Number | None:
        """A metric over the seeds of one point; None where it is not measured.

        Settings that are left out must not vary among the rows that have the metric.
        """
        found = [row for row in self.where(**settings) if row.metrics.get(metric) is not None]
        points = {point_key(row.settings): row.settings for row in found}
        if len(points) > 1:
            varying = [name for name in self.axes if len({text(one.get(name)) for one in points.values()}) > 1]
            given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
            raise ValueError(f"{metric}({given}) must say which {' and '.join(varying)}: {self.study} has several")
        seeded = {row.seed: row.metrics[metric] for row in found if row.seed is not None}
        alone = {row.seed: row.metrics[metric] for row in found}
        return Number.of(dict(sorted(seeded.items())) or alone) if found else None

    def failed(self, **settings: Any) -> list[Row]:
        """The rows of runs that failed."""
        return [row for row in self.where(**settings) if row.error]


def path_of(study: str, folder: Path | str) -> Path:
    """Where the rows of a study lie."""
    return Path(folder) / f"{study}.jsonl"


def read_rows(path: Path | str) -> list[Row]:
    """The rows of a file, of one key the newest; a damaged line is an error that names file and line."""
    try:
        # Split at line ends alone: text in JSON may hold what else Python takes for one.
        lines = read_text(path).split("\n") if Path(path).is_file() else []
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path} must be UTF-8 text: {problem}") from None
    return merge(_row(line, f"{path}, line {at}") for at, line in enumerate(lines, 1) if line.strip())


def merge(rows: Iterable[Row]) -> list[Row]:
    """The rows in their order, of one key the one with the newest date (the later line, where dates are equal)."""
    newest: dict[str, Row] = {}
    for row in rows:
        if row.key not in newest or row.date >= newest[row.key].date:
            newest[row.key] = row
    return sorted(newest.values(), key=lambda row: row.order)


def write_rows(path: Path | str, rows: Iterable[Row]) -> None:
    """Write the rows, one line each, sorted."""
    from hardsight import records

    records.write_text(Path(path), "".join(row.line() + "\n" for row in merge(rows)))


def read(study: str, folder: Path | str | None = None, preset: str | None = None) -> Rows:
    """A study's rows of a preset; left out, of the largest preset that was run.

    Without a folder: those below `results`, and where there are none, the published ones.
    """
    if preset is not None:
        check_name("preset", preset, PRESETS)
    if folder is None:
        with contextlib.suppress(FileNotFoundError):
            return read(study, "results", preset)
        return read(study, PUBLISHED, preset)
    rows = read_rows(path_of(study, folder))
    measured = [one for one in reversed(PRESETS) if any(row.preset == one for row in rows)]
    if not measured or preset not in (None, *measured):
        command = f"hardsight study run {study}" + (f" --preset {preset}" if preset else "")
        raise FileNotFoundError(f"results of {study} are not in {folder}: run `{command}`")
    return Rows(study, preset or measured[0], rows, folder)


def read_points(study: str, folder: Path | str) -> "pa.Table":
    """The points of a study's figures; an empty table where there are none."""
    import pyarrow as pa

    from hardsight import records

    path = path_of(study, folder).with_suffix(".parquet")
    return _checked(records.read_table(path), path) if path.is_file() else pa.Table.from_pylist([], _points_schema())


def write_points(study: str, folder: Path | str, points: "pa.Table", new: Sequence[Mapping[str, Any]]) -> None:
    """Write the points, new ones in place of those of the same preset, settings, seed and series."""
    import pyarrow as pa

    from hardsight import records

    def key(one: Mapping[str, Any]) -> tuple[Any, ...]:
        return one["preset"], one["settings"], one["seed"], one["series"]

    gone = {key(one) for one in new}
    kept = [one for one in points.to_pylist() if key(one) not in gone]
    every = sorted([*kept, *new], key=lambda one: (*map(str, key(one)), one["x"]))
    further = sorted({name for one in every for name in one} - set(_points_schema().names))
    schema = pa.schema([*_points_schema(), *(pa.field(name, pa.float64()) for name in further)])
    records.write_table(path_of(study, folder).with_suffix(".parquet"), pa.Table.from_pylist(every, schema))


def _checked(points: "pa.Table", path: Path) -> "pa.Table":
    """The points in the types that whoever draws them expects; those of another kind are rejected."""
    import pyarrow as pa

    schema = _points_schema()
    lacking = [name for name in schema.names if name not in points.column_names]
    if lacking:
        raise ValueError(f"{path} must have the columns {', '.join(schema.names)}; it lacks {', '.join(lacking)}")
    further = [pa.field(name, pa.float64()) for name in points.column_names if name not in schema.names]
    with reading(path, "the points of a study's figures", reason=True):
        points = points.select([*schema.names, *(one.name for one in further)]).cast(pa.schema([*schema, *further]))
    gaps = [name for name in schema.names if name != "seed" and points[name].null_count]
    if gaps:
        raise ValueError(f"{path} must have no gaps in column {gaps[0]}; it has {points[gaps[0]].null_count}")
    for settings in points["settings"].unique().to_pylist():
        with reading(path, "the points of a study's figures", reason=True):
            if not isinstance(parse_json(settings), dict):
                raise ValueError(f"settings must be an object of JSON; got {settings[:100]!r}")
    return points


def _points_schema() -> "pa.Schema":
    import pyarrow as pa

    words = [(name, pa.string()) for name in ("preset", "settings")]
    return pa.schema([*words, ("seed", pa.int64()), ("series", pa.string()), ("x", pa.float64()), ("y", pa.float64())])


def _row(line: str, place: str) -> Row:
    try:
        found = parse_json(line)
        # Not what Python's own reader takes as well: NaN, infinities and numbers that no float holds.
        json.dumps(found, allow_nan=False)
    except ValueError as problem:
        raise ValueError(f"{place} must be a row as JSON: {problem}") from None
    whole = isinstance(found, dict) and all(isinstance(found.get(name, ...), kind) for name, kind in _KINDS.items())
    if not whole or not all(isinstance(value, (_KINDS | _MORE).get(name, ())) for name, value in found.items()):
        raise ValueError(f"{place} must be a row with study, preset, settings, seed and metrics; it is not")
    wrong = [name for name, value in found["metrics"].items() if not is_metric(value)]
    if wrong:
        raise ValueError(
            f"{place}: metrics must be numbers; got {str(found['metrics'][wrong[0]])[:100]} for {wrong[0]}"
        )
    return Row(**found)


def is_metric(value: Any) -> bool:
    """Whether this can be a metric: a number or a gap, numbers, or a stored aggregate or interval."""
    if isinstance(value, dict):
        wanted = ("value", "low", "high") if "low" in value else ("mean", "count")
        return all(_is_number(value.get(name)) for name in wanted) and _is_number(value.get("sd", 0), gap=True)
    return all(map(_is_number, value)) if isinstance(value, list) and value else _is_number(value, gap=True)


def _is_number(value: Any, *, gap: bool = False) -> bool:
    """Whether this is a number that a float holds; `gap`: or None."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63) or (gap and value is None)
