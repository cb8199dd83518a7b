"""What every study is: its presets, its cells, what computes and judges them, and how its numbers are shown.

A study trains cells (see `training.sweeps`): each finished cell is a record, and running again computes only what is
missing (`running`). Judging is a separate, pure step from records to `results/STUDY-PRESET.json` (`results_file`), a
small file with seeds, spread, hardware, versions and date; every printed table is made from such a file and from
nothing else. What the file that lies there holds of other subjects stays (`keeping`).
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight import records
from hardsight.names import check_name
from hardsight.training.sweeps import FINISHED, Cell, status_of
from hardsight_studies.engine import clock as engine
from hardsight_studies.keeping import Entries
from hardsight_studies.wording import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS = ("smoke", "cpu", "paper")


@dataclass(frozen=True)
class Options(engine.Options):
    """How cells are computed. `keep` is called whenever a group of cells is finished: what is killed later has kept
    them.
    """

    keep: Callable[[], object] | None = None


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
    check_name("preset", preset, PRESETS)


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


def finished_cells(folder: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Those of the cells whose record below `folder` is finished."""
    return [cell for cell in cells if status_of(folder / cell.name) == FINISHED]


def run_details(folder: Path) -> dict[str, Any]:
    """What a record's `run.json` says."""
    return records.read_json(folder / "run.json")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of text cells, without a line end."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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


def _seeds(seeds: Sequence[int]) -> str:
    """`seed 0`, `seeds 0, 1`; a long row without a gap by its ends."""
    if len(seeds) > 10 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def provenance(results: Mapping[str, Any]) -> str:
    """One sentence: preset, cells, seeds, hardware, versions, date."""
    return (
        f"Preset `{results['preset']}`, {results['cells']} of {plural(results['cells_planned'], 'cell')}, "
        f"{_seeds(results['seeds'])}; "
        f"{', '.join(results['hardware'])}, "
        f"torch {results['versions']['torch']}, {results['date']}."
    )
