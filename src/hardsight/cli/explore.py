"""`hardsight explore`: the page where labels are looked at and decided."""

from pathlib import Path
from typing import Annotated

import typer

from hardsight.cli.printing import one_sentence, say


def explore(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="An audit's folder, a run's, or a Parquet table of scores.")
    ],
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder of the images. [default: where they were scored]")
    ] = None,
    show: Annotated[
        list[str] | None, typer.Option("--show", help="Column to be seen on every card; may be given again.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for any.")] = 0,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; any but this lets other machines in.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Look at the samples and decide what happens to them: keep, relabel or drop.

    Decisions are in marks.jsonl at once, and in actions.csv for `hardsight audit --apply`.

    Example: hardsight explore scores-audit --images photos
    """
    with one_sentence("images", "show", "port", "host"):
        from hardsight.explorer import explore as serve

        with serve(source, images, show=show or (), host=host, port=port, browser=browser) as page:
            say(f"page: {page.url}", flush=True)
            say("stop with Ctrl-C; decisions are kept", flush=True)
            page.wait()
