"""Computing what is missing of a study, and writing a row for every finished run."""

import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardsight import training
from hardsight.names import check_name
from hardsight.records import plain, read_run
from hardsight.training.sweeps import FAILED, FINISHED, missing, run_sweep, status_of
from hardsight_studies.engine import study as studies
from hardsight_studies.engine import trainings
from hardsight_studies.engine.clock import Options, OutOfTime
from hardsight_studies.engine.grid import Run, picked, plan
from hardsight_studies.engine.rows import (
    Row,
    is_metric,
    merge,
    path_of,
    read_points,
    read_rows,
    write_points,
    write_rows,
)
from hardsight_studies.engine.study import Study


def run_study(
    study: Study,
    preset: str,
    results: Path | str,
    *,
    output: Path | str | None = None,
    only: Sequence[str] = (),
    options: Options | None = None,
) -> Path:
    """Compute the missing runs, write the rows of all that are finished; returns the file of the rows.

    `only`: the runs that one of these words picks. What the clock leaves undone is computed next time.
    """
    options = options or Options()
    # Bad input is found before anything is computed.
    _ = options.torch_device
    tree = study.at(preset)
    runs = picked(study, plan(study, preset, output), only)
    hooks = {name: hook(of) for name, of in study.tree.get("hooks", {}).items()}
    if not {"run", "compute"} & hooks.keys():
        for run in runs:
            trainings.config_of(run)
    by_name = {run.name: run for run in runs}
    at_once = tree.get("at_once", 1) if options.at_once is None else options.at_once
    swept = [training.Run(run.settings) for run in runs]
    folder = runs[0].folder.parent
    pace = _Pace(lambda mine: _compute(mine, preset, options, hooks), options, len(missing(folder, swept)))

    def compute(mine: Sequence[tuple[training.Run, Path]]) -> None:
        pace.run([by_name[one.name] for one, _ in mine])

    try:
        run_sweep(folder, swept, compute, at_once=at_once)
        if pace.absent is not None and not pace.done:
            raise pace.absent
    except OutOfTime:
        options.say(f"out of time: {len(missing(folder, swept))} of {len(runs)} runs are left for next time")
    finally:
        # Also of what was stopped: what is finished has its rows.
        path = write_results(study, preset, results, output)
    return path


def run_all(preset: str, results: Path | str, options: Options) -> dict[str, str]:
    """Compute what is missing of every study that has the preset; returns what could not be, and why."""
    check_name("preset", preset, studies.PRESETS)
    problems: dict[str, str] = {}
    for head in studies.heads():
        study = studies.load(head.path)
        if preset in study.presets:
            options.say(head.id)
            try:
                run_study(study, preset, results, options=options)
            # A study whose data or packages are not there stops no other.
            except (ValueError, OSError, ImportError) as problem:
                problems[head.id] = str(problem)
    return problems


def hook(name: str) -> Callable[..., Any]:
    """The function that `module:function` names; modules are those of the studies."""
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"a hook must be written module:function; got {name!r}")
    found = getattr(importlib.import_module(f"hardsight_studies.{module}"), function, None)
    if found is None:
        raise ValueError(f"a hook must name a function of hardsight_studies.{module}; got {function!r}")
    return found  # type: ignore[no-any-return]


def write_results(study: Study, preset: str, results: Path | str, output: Path | str | None = None) -> Path:
    """Put a row for every finished or failed run beside the rows that are there; likewise the points of figures."""
    runs = plan(study, preset, output)
    done = [run for run in runs if status_of(run.folder) == FINISHED]
    # What ran out of time, or of a disk's space, is tried again: only a loss that is no number is a result.
    failed = [run for run in runs if status_of(run.folder) == FAILED and not (read_run(run.folder) or {}).get("retry")]
    path = path_of(study.id, results)
    if not done and not failed:
        return path
    hooks = study.tree.get("hooks", {})
    found = list(hook(hooks["rows"])(done, preset)) if "rows" in hooks and done else [_row(study, run) for run in done]
    rows = [completed(row, study.id, preset, runs) for row in [*found, *(_row(study, run) for run in failed)]]
    write_rows(path, merge([*read_rows(path), *rows]))
    curves = [*_curves(study.at(preset), done), *_kept_points(done)]
    points = hook(hooks["points"])(done, preset) if "points" in hooks else curves
    if points:
        full = [{"preset": preset, **one} for one in points]
        write_points(study.id, results, read_points(study.id, results), full)
    return path


def row_of(run: Run, metrics: Mapping[str, Any], *, settings: Mapping[str, Any] | None = None) -> Row:
    """A row of a run for a hook `rows`; the engine adds study, preset, hardware, versions and date.

    `settings`: further ones, where one run gives several rows.
    """
    return replace(_from(run, metrics), settings={**run.point, **(settings or {})})


def results_of(run: Run) -> dict[str, Any]:
    """What the record of a finished run holds."""
    results: dict[str, Any] = (read_run(run.folder) or {})["results"]
    return results


def points_of(
    run: Run, series: str, columns: Mapping[str, Sequence[Any]], settings: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The points of one series, from columns `x`, `y` and others."""
    about = {"settings": json.dumps({**run.point, **(settings or {})}, ensure_ascii=False), "seed": run.seed}
    rows = zip(*columns.values(), strict=True)
    return [{**about, "series": series, **dict(zip(columns, map(float, row), strict=True))} for row in rows]


def _compute(runs: Sequence[Run], preset: str, options: Options, hooks: Mapping[str, Any]) -> None:
    if "compute" in hooks:
        hooks["compute"](runs, preset, options)
        return
    if "run" in hooks:
        for run in runs:
            options.clock.check()
            trainings.write_record(run, hooks["run"](run), config=run.config)
        return
    beside = {name: hooks[name] for name in ("begin", "after_epoch", "measure") if name in hooks}
    trainings.train(runs, options, trainings.Hooks(**beside))


class _Pace:
    """Runs groups of runs, and none that half of the last group's time would not be left for; says how it goes on.

    Half, because a first group also compiles; while it runs, a group knows better and stops by itself.
    """

    def __init__(self, compute: Callable[[Sequence[Run]], None], options: Options, left: int) -> None:
        self.compute, self.options, self.left = compute, options, left
        self.last, self.spent, self.done = 0.0, 0.0, 0
        self.absent: FileNotFoundError | None = None

    def run(self, mine: Sequence[Run]) -> None:
        self.options.clock.check(self.last / 2)
        began = time.monotonic()
        try:
            self.compute(mine)
        except FileNotFoundError as problem:
            # Data that are not on this machine stop no run that needs others.
            self.absent, self.left = problem, self.left - len(mine)
            return
        self.last = time.monotonic() - began
        self.spent, self.done = self.spent + self.last, self.done + len(mine)
        self.left -= len(mine)
        ahead = f"; {self.left} left, about {_duration(self.left * self.spent / self.done)}" if self.left > 0 else ""
        self.options.say(f"{self.last:.1f} s: {'; '.join(run.name for run in mine)}{ahead}")


def _duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _from(run: Run, metrics: Mapping[str, Any]) -> Row:
    """A row of a run: where and when it was computed is in its record."""
    details = read_run(run.folder) or {}
    hardware, date = str(details.get("device", "")), str(details.get("created", ""))[:10]
    return Row("", "", run.point, run.seed, metrics, hardware, details.get("versions", {}), date)


def _row(study: Study, run: Run) -> Row:
    details = read_run(run.folder) or {}
    results = details.get("results", {})
    if details.get("status") == FAILED:
        return replace(_from(run, {}), error=str(details.get("error", "")))
    if "metrics" in study.tree or not {"run", "compute"} & study.tree.get("hooks", {}).keys():
        return _from(run, {name: results.get(key) for name, key in study.tree.get("metrics", {}).items()})
    numbers = {name: value for name, value in results.items() if isinstance(value, int | float | dict)}
    return _from(run, {name: value for name, value in numbers.items() if is_metric(value)})


def completed(row: Row, study: str, preset: str, runs: Sequence[Run]) -> Row:
    """A row with study and preset; one that is of no single run is from where all of them are."""
    if not row.hardware:
        every = [_from(run, {}) for run in runs if status_of(run.folder) == FINISHED]
        hardware, date = ", ".join(sorted({one.hardware for one in every})), max(one.date for one in every)
        row = replace(row, hardware=hardware, versions=every[-1].versions, date=date)
    # A number that is none could not be measured.
    return replace(row, study=study, preset=preset, metrics=plain(row.metrics))


def _curves(tree: Mapping[str, Any], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The columns of the epochs' tables that `[points]` names, at no more than `most` epochs; the last one always."""
    import pyarrow.parquet as pq

    wanted = tree.get("points")
    if not wanted:
        return []
    found: list[dict[str, Any]] = []
    for run in runs:
        path = run.folder / "epochs.parquet"
        if not path.is_file():
            continue
        table = pq.read_table(path)
        x = table[wanted.get("x", "epoch")].to_pylist()
        step = -(-len(x) // wanted.get("most", 40))
        kept = sorted({*range(step - 1, len(x), step), len(x) - 1})
        about = {"settings": json.dumps(run.point, ensure_ascii=False), "seed": run.seed}
        for series, column in wanted["y"].items():
            y = table[column].to_pylist()
            found += [{**about, "series": series, "x": float(x[at]), "y": y[at]} for at in kept]
    return found


def _kept_points(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What a run's results hold as `points`: the columns of each series."""
    kept = ((run, results_of(run).get("points", {})) for run in runs)
    return [
        point for run, series in kept for name, columns in series.items() for point in points_of(run, name, columns)
    ]
