"""`hardsight report`: the HTML page of a record."""

from pathlib import Path
from typing import Annotated

import typer

from hardsight.cli.printing import AsJson, one_sentence, say, say_json


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run record, or a Parquet table of scores.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write the page. [default: RUN/report.html, TABLE.html]"),
    ] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Also save each figure as RUN/figures/NAME.png.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run: one file that opens anywhere, offline.

    Example: hardsight report runs/demo --output demo.html
    """
    from hardsight.report import write_figures, write_report

    with one_sentence():
        page = write_report(run, output)
        saved = write_figures(run) if figures else []
    if as_json:
        say_json({"report": str(page), "figures": [str(path) for path in saved]})
        return
    say(f"report: {page}")
    if saved:
        say(f"figures: {len(saved)} in {saved[0].parent}")
