"""`hardsight study`: list the studies, run what is missing of one, print its table, carry records between machines."""

import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hardsight.cli.errors import one_sentence

if TYPE_CHECKING:
    from hardsight_studies import Study

study_app = typer.Typer(help="The tables and figures of the papers, each one command.", no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="A study; `hardsight study list` names them.")]
_Preset = Annotated[str, typer.Option(help="smoke: seconds; cpu: minutes on real data; paper: on a GPU.")]
_Output = Annotated[
    Path | None,
    typer.Option(help="Folder of the records; left out: below runs/studies, one for studies of the same cells."),
]
_Results = Annotated[Path, typer.Option(help="Folder of the results files.")]


@study_app.command("list")
def list_studies(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Name the studies.

    Example: hardsight study list
    """
    from hardsight_studies import studies

    rows = [{"id": one.id, "title": one.title, "beside": one.reference} for one in studies()]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        print("\t".join(row.values()))


@study_app.command("run")
def run(
    id: _Id,
    preset: _Preset = "smoke",
    output: _Output = None,
    results: _Results = Path("results"),
    cells: Annotated[
        list[str] | None,
        typer.Option("--cells", help="Only cells of these parts, such as method=cce,seed=0; may be repeated."),
    ] = None,
    limit_seconds: Annotated[float | None, typer.Option(help="Stop cleanly before so many seconds are over.")] = None,
    at_once: Annotated[int | None, typer.Option(help="Cells that train together; left out: the preset's.")] = None,
    stacked: Annotated[bool, typer.Option("--stacked", help="Cells that train together share their passes.")] = False,
    device: Annotated[str | None, typer.Option(help="Left out: a GPU where there is one.")] = None,
    pack_to: Annotated[
        Path | None, typer.Option(help="Pack what is finished into this folder, for `study import` elsewhere.")
    ] = None,
) -> None:
    """Compute the cells that are missing, judge all that are there, and write the results file.

    What a results file of the same settings holds of other cells stays: remove it to begin anew.

    Example: hardsight study run label-errors --preset smoke
    """
    from hardsight_studies import Options, get_study, run_study
    from hardsight_studies.clock import Clock
    from hardsight_studies.transport import pack
    from hardsight_studies.wording import plural

    with one_sentence("preset", "cells", "limit_seconds", "at_once", "device"):
        clock = Clock.of(limit_seconds)
        study = get_study(id)
        folder = _folder(study, preset, output)
        # After every group of cells, not at the end alone: a run that is killed has packed what it finished.
        keep = None if pack_to is None else functools.partial(pack, study, preset, folder, pack_to)
        options = Options(device, at_once, stacked, clock, lambda line: print(line, flush=True), keep)
        print(run_study(study, preset, folder, results, only=cells or (), options=options))
        if keep is not None:
            packed = keep()
            left_out = ", ".join(packed.left_out) or "nothing"
            print(f"packed into {plural(len(packed.files), 'file')}; left out: {left_out}")


@study_app.command("table")
def table(
    id: _Id,
    preset: Annotated[str | None, typer.Option(help="Left out: the largest that was run.")] = None,
    results: _Results = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results file, for machines.")] = False,
) -> None:
    """Print ours beside the reference's, from the results file.

    Example: hardsight study table label-errors --preset smoke
    """
    from hardsight_studies import get_study, read_results
    from hardsight_studies.results_file import made_from

    with one_sentence("preset"):
        study = get_study(id)
        found = read_results(study, results, preset)
        print(json.dumps(found, ensure_ascii=False) + "\n" if as_json else made_from(found, study.table), end="")


@study_app.command("figures")
def figures(
    id: _Id,
    preset: Annotated[str | None, typer.Option(help="Left out: the largest that was run.")] = None,
    results: _Results = Path("results"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the PNG files.")] = Path("figures"),
) -> None:
    """Draw the study's figures from the results file.

    Example: hardsight study figures avh-figure3 --preset smoke -o figures
    """
    from hardsight_studies import get_study
    from hardsight_studies.page import write_figures

    with one_sentence("preset"):
        paths = write_figures(get_study(id), results, output, preset)
    for path in paths:
        print(path)
    if not paths:
        print(f"{id} has no figures: `hardsight study table {id}` prints what it found", file=sys.stderr)


@study_app.command("import")
def import_records(
    id: _Id,
    files: Annotated[list[Path], typer.Argument(help="What `study run --pack-to` wrote on the other machine.")],
    preset: _Preset = "paper",
    output: _Output = None,
    results: _Results = Path("results"),
) -> None:
    """Unpack records that were computed elsewhere and judge them here; results of other cells stay.

    Example: hardsight study import label-errors packed/*.tar --preset paper
    """
    from hardsight_studies import get_study, judge_study
    from hardsight_studies.framework import check_preset
    from hardsight_studies.transport import unpack
    from hardsight_studies.wording import plural

    with one_sentence("preset"):
        study = get_study(id)
        check_preset(preset)
        folder = _folder(study, preset, output)
        print(plural(len(unpack(files, folder, cells={cell.name for cell in study.cells(preset)})), "cell"))
        print(judge_study(study, preset, folder, results, say=print))


def _folder(study: "Study", preset: str, output: Path | None) -> Path:
    return Path("runs") / "studies" / (study.records or study.id) / preset if output is None else output
