"""`hardsight study`: list the studies, run what is missing of one, print its tables, draw its figures, build pages."""

from pathlib import Path
from typing import Annotated

import typer

from hardsight.cli.printing import BAD_INPUT, one_sentence, print_table, say, say_json

study_app = typer.Typer(help="The tables and figures of the papers, each one command.", no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="A study; `hardsight study list` names them.")]
_Preset = Annotated[str, typer.Option(help="smoke: seconds; cpu: minutes on real data; paper: on a GPU.")]
_Results = Annotated[
    Path | None,
    typer.Option(help="Folder of the rows; left out: results, or the published ones."),
]
_LargestPreset = Annotated[str | None, typer.Option(help="Left out: the largest that was measured.")]


@study_app.command("list")
def list_studies(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Name the studies.

    Example: hardsight study list
    """
    from hardsight_studies.engine.study import heads

    with one_sentence():
        rows = [{"id": one.id, "title": one.title, "beside": one.paper} for one in heads()]
    if as_json:
        say_json(rows)
        return
    print_table(None, ("id", "title", "beside"), [[*row.values()] for row in rows])


@study_app.command("run")
def run(
    id: _Id,
    preset: _Preset = "smoke",
    output: Annotated[Path | None, typer.Option(help="Folder of the records; left out: below runs/studies.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of the rows.")] = Path("results"),
    runs: Annotated[
        list[str] | None,
        typer.Option("--runs", help="Only runs of these settings, such as method=cce,seed=0; may be repeated."),
    ] = None,
    limit_seconds: Annotated[float | None, typer.Option(help="Stop cleanly before so many seconds are over.")] = None,
    at_once: Annotated[int | None, typer.Option(help="Runs that train together; left out: the preset's.")] = None,
    stacked: Annotated[bool, typer.Option("--stacked", help="Runs that train together share their passes.")] = False,
    device: Annotated[str | None, typer.Option(help="Left out: a GPU where there is one.")] = None,
) -> None:
    """Compute the runs that are missing, and put a row for each finished one into the results.

    `hardsight study run all` goes through every study; what one could not be run for is said at the end.

    Example: hardsight study run gr-table8 --preset smoke
    """
    from hardsight_studies.engine import study as studies
    from hardsight_studies.engine.clock import Clock, Options

    with one_sentence("preset", "runs", "limit_seconds", "at_once", "device", "output"):
        options = Options(device, at_once, stacked, Clock.of(limit_seconds), lambda line: say(line, flush=True))
        from hardsight_studies.engine.running import run_all, run_study

        if id == "all":
            if output is not None or runs:
                raise ValueError("output and runs must be left out where all studies are run")
            problems = run_all(preset, results, options)
            for name, problem in problems.items():
                say(f"hardsight: {name}: {' '.join(problem.split())}", error=True)
            raise typer.Exit(BAD_INPUT if problems else 0)
        study = studies.get(id)
        say(run_study(study, preset, results, output=output, only=runs or (), options=options))


@study_app.command("table")
def table(
    id: _Id,
    preset: _LargestPreset = None,
    results: _Results = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON lines, for machines.")] = False,
) -> None:
    """Print the study's tables, ours beside the paper's, made from its rows.

    Example: hardsight study table gr-table8 --preset cpu
    """
    from hardsight_studies.engine import study as studies
    from hardsight_studies.engine.rows import read
    from hardsight_studies.engine.tables import failures, make_table, provenance

    with one_sentence("preset"):
        study = studies.get(id)
        rows = read(study.id, results, preset)
        if as_json:
            _say_lines("\n".join(row.line() for row in rows))
            return
        _say_lines(f"{study.head.title} ({study.head.paper})\n" if study.head.paper else f"{study.head.title}\n")
        for about in study.tables("table"):
            title = f"{about['title']}\n\n" if "title" in about else ""
            made = make_table(study, rows, about["name"])
            _say_lines(f"{title}{made.markdown()}" if made.lines else f"{title}{about['name']}: not measured yet\n")
        _say_lines(f"{failures(rows)}{provenance(study, rows)}")


@study_app.command("figures")
def figures(
    id: _Id,
    preset: _LargestPreset = None,
    results: _Results = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the PNG files.")] = Path("figures"),
) -> None:
    """Draw the study's figures from its rows.

    Example: hardsight study figures gr-table8 --preset smoke -o figures
    """
    from hardsight_studies.engine import study as studies
    from hardsight_studies.engine.expressions import NotMeasuredError
    from hardsight_studies.engine.figures import make_figure, save
    from hardsight_studies.engine.rows import read

    with one_sentence("preset"):
        study = studies.get(id)
        rows = read(study.id, results, preset)
        for about in study.tables("figure"):
            try:
                figure = make_figure(study, rows, about["name"])
            except NotMeasuredError as problem:
                say(f"hardsight: {problem}", error=True)
            else:
                say(save(figure, output / f"{study.id}-{about['name']}.png"))
    if not study.tables("figure"):
        say(f"{id} has no figures: `hardsight study table {id}` prints what it found", error=True)


@study_app.command("pages")
def pages(
    results: _Results = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the pages.")] = Path("build/site/studies"),
) -> None:
    """Build the studies' pages; a claim that the rows do not support stops it.

    Example: hardsight study pages -o build/site/studies
    """
    from hardsight_studies.engine.pages import build_pages
    from hardsight_studies.engine.rows import PUBLISHED

    with one_sentence():
        for path in build_pages(output, results=results or PUBLISHED):
            say(path)


def _say_lines(text: str) -> None:
    for line in text.split("\n"):
        say(line)
