"""What every study shares: its presets, its cells, its results file, and the table made from that file.

A study trains cells (see `training.sweeps`): each finished cell is a record, and running again computes only what is
missing. Judging is a separate, pure step from records to `results/STUDY-PRESET.json`, a small file with seeds, spread,
hardware, versions and date; every printed table is made from such a file and from nothing else. What the file that lies
there holds of other subjects stays (see `keeping`).
"""

import datetime
import difflib
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from hardsight import records
from hardsight.studies.clock import Clock, OutOfTime
from hardsight.studies.keeping import HEADER, Entries, joined, say_what_stays, staying, versions_of
from hardsight.studies.wording import plural
from hardsight.training.devices import chosen_device
from hardsight.training.record import commit
from hardsight.training.sweeps import FINISHED, Cell, run_sweep, status_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Made = TypeVar("_Made")
PRESETS = ("smoke", "cpu", "paper")


@dataclass(frozen=True)
class Options:
    """How cells are computed, which changes no number but the time: the device, and how many at once.

    `keep` is called whenever a group of cells is finished: what is killed later has kept them.
    """

    device: str | None = None
    at_once: int | None = None
    stacked: bool = False
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = print
    keep: Callable[[], object] | None = None

    @property
    def torch_device(self) -> torch.device:
        """The device that was asked for; left open, a GPU where there is one."""
        return chosen_device(self.device)


def curves_first(cell: Cell, file: str) -> int | None:
    """The curves of every cell before anything larger."""
    return 0 if file == "epochs.parquet" else 1


@dataclass(frozen=True)
class Study:
    """One table or figure. `about` says for the docs how it is made and what it shows.

    `cells` are in order of value; `compute` turns some of them into records.
    `judge` reads the records of a preset's folder and gives the results; `table` shows results as Markdown, ours
    beside the reference's, and `figures` draws them, by name. `reference` is the paper's number of it. `worth` orders a
    record's files for transport, smallest first; None leaves one out. Studies of the same cells name one folder of
    `records`, so that each cell is computed once; left out, it is the id. `entries`: what of the results stands for
    itself, subject by subject; None where all is judged over all cells.
    """

    id: str
    title: str
    about: str
    reference: str
    cells: Callable[[str], list[Cell]]
    compute: Callable[[str, Sequence[tuple[Cell, Path]], Options], None]
    judge: Callable[[str, Path], dict[str, Any]]
    table: Callable[[Mapping[str, Any]], str]
    at_once: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(PRESETS, 1))
    worth: Callable[[Cell, str], int | None] = curves_first
    figures: Callable[[Mapping[str, Any]], Mapping[str, "Figure"]] | None = None
    records: str | None = None
    entries: Entries | None = None


def check_preset(preset: str) -> None:
    """Refuse an unknown preset."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}; got {preset!r}")


def picked(study: Study, preset: str, words: Sequence[str]) -> list[Cell]:
    """The cells that one of the words names, in the study's order; without words all of them.

    A word that is a cell's whole name names that one. Others name cells by parts between commas, each a part of the
    cell's name such as `seed=1`; one that is no whole part of any cell's name, such as `resnet`, may stand anywhere
    within a part.
    """
    cells = study.cells(preset)
    whole = {cell.name for cell in cells}
    known = {part for name in whole for part in name.split(",")}

    def names(word: str, cell: Cell) -> bool:
        if word in whole:
            return word == cell.name
        own = cell.name.split(",")
        asked = [part for one in word.split(",") if (part := one.strip())]
        return bool(asked) and all(part in own if part in known else part in cell.name for part in asked)

    for word in words:
        if not any(names(word, cell) for cell in cells):
            such = ", ".join(cell.name for cell in cells[:3])
            raise ValueError(f"cells must match a cell of {study.id}, such as {such}; got {word!r}")
    return [cell for cell in cells if not words or any(names(word, cell) for word in words)]


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
    old = _lying(study, preset, path)
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


def _lying(study: Study, preset: str, path: Path) -> dict[str, Any] | None:
    """The results that lie at the place; None where there are none of this study and preset, or they are damaged."""
    try:
        found = _read(study, path)
    except (OSError, ValueError):
        return None
    whole = (
        found["preset"] == preset
        and isinstance(found["cells"], int)
        and _all_of(str, found["hardware"])
        and _all_of(int, found["seeds"])
        and isinstance(found["versions"], dict)
        and _all_of(str, list(found["versions"].values()))
    )
    return found if whole else None


def _all_of(kind: type, values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


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


def finished_cells(folder: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Those of the cells whose record below `folder` is finished."""
    return [cell for cell in cells if status_of(folder / cell.name) == FINISHED]


def run_details(folder: Path) -> dict[str, Any]:
    """What a record's `run.json` says."""
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of text cells, without a line end."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def results_path(study: Study, preset: str, results: Path | str) -> Path:
    """Where a preset's results lie."""
    return Path(results) / f"{study.id}-{preset}.json"


def read_results(study: Study, results: Path | str, preset: str | None = None) -> dict[str, Any]:
    """The results of a preset; left out, of the largest preset that was run."""
    if preset is not None:
        check_preset(preset)
    for one in (preset,) if preset else reversed(PRESETS):
        path = results_path(study, one, results)
        if path.is_file():
            return _read(study, path)
    command = f"hardsight study run {study.id}" + (f" --preset {preset}" if preset else "")
    raise FileNotFoundError(f"results of {study.id} were looked for in {results} and are not there: run `{command}`")


def _read(study: Study, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("study") != study.id or not found.keys() >= HEADER:
        raise ValueError(f"{path} must be a results file of {study.id}, as `hardsight study run` writes it")
    return found


def made_from(results: Mapping[str, Any], make: Callable[[Mapping[str, Any]], _Made]) -> _Made:
    """A study's table or figures of its results, refused where they are of another version and lack what is shown."""
    try:
        return make(results)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        study, preset = results["study"], results["preset"]
        raise ValueError(
            f"results of {study}, preset {preset}, must be of this version to be shown; these are of another "
            f"({type(error).__name__}: {error}): remove them and run `hardsight study run {study} --preset {preset}`"
        ) from error


def nearest_names(name: str, known: Sequence[str]) -> str:
    """The known names nearest to a misspelt one, as text."""
    return ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.0))


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation over seeds (None of a single one), and the values."""
    return {
        "mean": round(statistics.fmean(values), 4),
        "sd": round(statistics.stdev(values), 4) if len(values) > 1 else None,
        "values": [round(value, 4) for value in values],
    }


def shown(number: Mapping[str, Any] | None, digits: int = 3, factor: int = 1) -> str:
    """`0.782 ± 0.003`, times the factor; without a spread where there was one seed, empty where there is no number."""
    if number is None:
        return ""
    mean, apart = (None if one is None else f"{factor * one:.{digits}f}" for one in (number["mean"], number["sd"]))
    return f"{mean}" if apart is None else f"{mean} ± {apart}"


def provenance(results: Mapping[str, Any]) -> str:
    """One sentence: preset, cells, seeds, hardware, versions, date."""
    return (
        f"Preset `{results['preset']}`, {results['cells']} of {plural(results['cells_planned'], 'cell')}, "
        f"{'seed' if len(results['seeds']) == 1 else 'seeds'} {', '.join(map(str, results['seeds']))}; "
        f"{', '.join(results['hardware'])}, "
        f"torch {results['versions']['torch']}, {results['date']}."
    )


def compact_json(value: Any, depth: int = 4) -> str:
    """JSON indented down to `depth`, one line below it: a diff of results shows one line a number."""
    return _indented(value, depth, "") + "\n"


def _indented(value: Any, depth: int, margin: str) -> str:
    if not isinstance(value, Mapping) or depth == 0 or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = margin + "  "
    lines = [f"{inner}{json.dumps(str(key))}: {_indented(item, depth - 1, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
