"""Computing a study's missing cells, and judging the finished ones into its results file."""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight import records
from hardsight.training.record import commit
from hardsight.training.sweeps import FINISHED, Cell, run_sweep, status_of
from hardsight_studies.clock import OutOfTime
from hardsight_studies.framework import Options, Study, check_preset, finished_cells, picked, run_details
from hardsight_studies.keeping import joined, say_what_stays, staying, versions_of
from hardsight_studies.results_file import compact_json, results_at, results_path


def run_study(
    study: Study,
    preset: str,
    folder: Path | str,
    results: Path | str,
    *,
    only: Sequence[str] = (),
    options: Options | None = None,
) -> Path:
    """Compute the missing cells below `folder`, judge all that are finished; returns the results file.

    `only`: the cells that one of these words picks (see `picked`). What the clock leaves undone is computed next time.
    """
    check_preset(preset)
    folder, options = Path(folder), options or Options()
    # Refused before anything is computed, whether or not a cell asks for it.
    _ = options.torch_device
    at_once = study.at_once[preset] if options.at_once is None else options.at_once
    Path(results).mkdir(parents=True, exist_ok=True)
    cells = picked(study, preset, only)
    pace = _Pace(study, preset, options)
    try:
        run_sweep(folder, cells, pace.run, at_once=at_once)
    except OutOfTime:
        left = sum(status_of(folder / cell.name) != FINISHED for cell in cells)
        options.say(f"out of time: {left} of {len(cells)} cells are left for next time")
    return judge_study(study, preset, folder, results, say=options.say)


class _Pace:
    """Runs groups of cells, and none that half of the last group's time would not be left for.

    Half, because a first group also compiles; while it runs, a group knows better and stops by itself.
    """

    def __init__(self, study: Study, preset: str, options: Options) -> None:
        self.study, self.preset, self.options = study, preset, options
        self.last = 0.0

    def run(self, mine: Sequence[tuple[Cell, Path]]) -> None:
        self.options.clock.check(self.last / 2)
        began = time.monotonic()
        self.study.compute(self.preset, mine, self.options)
        self.last = time.monotonic() - began
        self.options.say(f"{self.last:.1f} s: {', '.join(cell.name for cell, _ in mine)}")
        if self.options.keep is not None:
            self.options.keep()


def judge_study(
    study: Study, preset: str, folder: Path | str, results: Path | str, *, say: Callable[[str], object] | None = None
) -> Path:
    """Judge the finished cells below `folder` and write the results file.

    What a file that lies there holds and the records do not, stays where the settings are the same; `say` is told.
    """
    check_preset(preset)
    folder, planned = Path(folder), study.cells(preset)
    done = finished_cells(folder, planned)
    if not done:
        raise ValueError(f"folder must hold at least one finished cell of {study.id}; {folder} holds none")
    about = [_checked(folder / cell.name) for cell in done]
    judged, path = study.judge(preset, folder), results_path(study, preset, results)
    old = results_at(study, preset, path)
    stays = None if old is None or study.entries is None else staying(study.entries, preset, planned, old, judged, done)
    if say is not None and old is not None:
        say_what_stays(say, path, old["cells"], stays, len(done))
    if old is None or study.entries is None or stays is None:
        records.write_text(path, compact_json(_header(study, preset, about) | judged))
        return path
    mine = [one for cell, one in zip(done, about, strict=True) if study.entries.subject(cell) not in stays.cells]
    if mine:
        payload = _header(study, preset, mine) | judged
        records.write_text(path, compact_json(joined(study.entries, planned, old, payload, stays)))
    return path


def _header(study: Study, preset: str, about: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What every results file says first, of the records that it rests on."""
    return {
        "study": study.id,
        "preset": preset,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": sorted({str(one["device"]) for one in about}),
        "versions": versions_of([one["versions"] for one in about]),
        "commit": commit(),
        "cells": len(about),
        "cells_planned": len(study.cells(preset)),
        "seeds": sorted({int(one["seed"]) for one in about}),
    }


def _checked(folder: Path) -> dict[str, Any]:
    """What a finished record says, refused where it is not a study's: it may have come from anywhere."""
    about = run_details(folder)
    if not isinstance(about.get("versions"), dict) or "device" not in about or not isinstance(about.get("seed"), int):
        raise ValueError(f"{folder} must be a record with seed, device and versions, as a study writes it: remove it")
    return about
