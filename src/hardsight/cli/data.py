"""`hardsight data`: what data sets are known, and which are on this disk."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json

data_app = typer.Typer(help="The data sets that can be read, and what of them is on disk.", no_args_is_help=True)

INCOMPLETE = 1


@data_app.command("list")
def list_known(as_json: AsJson = False) -> None:
    """Name the data sets that can be read and where each is looked for.

    Example: hardsight data list
    """
    from hardsight.datasets.registry import describe, names, source

    rows = [describe(source(name)) for name in names()]
    if as_json:
        say_json(rows)
        return
    lines = []
    for row in rows:
        samples = ", ".join(f"{split} {count or '?'}" for split, count in row["splits"].items())
        places = " or ".join(row["folders"]) or "-"
        lines.append([row["name"], row["title"], samples, row["num_classes"] or "?", places, row["layout"]])
    print_table(None, ("name", "what it is", "samples", "classes", "below the root", "layout"), lines)


@data_app.command("check")
def check_root(
    root: Annotated[Path, Argument(envvar="HARDSIGHT_DATA", help="The folder that holds the data sets.")],
    names: Annotated[list[str] | None, Option("--name", help="Only this data set; may be repeated.")] = None,
    decode: Annotated[bool, Option("--decode", help="Decode every image too: slow, finds damaged files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Report for each data set whether it is complete, incomplete (and what is missing) or absent.

    Exit code 1 when one is incomplete. Example: hardsight data check ~/data --name cifar10
    """
    from hardsight.datasets.registry import check

    states = []
    with one_sentence("name"), Console(stderr=True).status("reading") as status:
        for state in check(root, names or (), decode=decode):
            states.append(state)
            status.update(f"reading: {state.name} is {state.state}")
    if as_json:
        say_json([dataclasses.asdict(state) for state in states])
    else:
        lines = []
        for state in states:
            counts = ", ".join(f"{each.split} {each.found}" for each in state.splits if each.found is not None)
            lines.append([state.name, state.state, counts, _checksums(state.checksums), "; ".join(state.problems)])
        print_table(None, ("name", "state", "samples", "checksums", "what is wrong"), lines)
    if any(state.state == "incomplete" for state in states):
        raise typer.Exit(INCOMPLETE)


@data_app.command("unpack")
def unpack_archive(
    archive: Annotated[Path, Argument(help="A zip or tar file as downloaded.")],
    root: Annotated[Path, Argument(envvar="HARDSIGHT_DATA", help="The folder to unpack into.")],
) -> None:
    """Unpack a downloaded archive, whole or not at all; an entry that points outside the folder is an error.

    Example: hardsight data unpack cifar-10-binary.tar.gz ~/data
    """
    from hardsight.datasets.archives import unpack

    with one_sentence():
        for name in unpack(archive, root):
            say(root / name)


def _checksums(checksums: Mapping[str, str]) -> str:
    differing = [name for name, state in checksums.items() if state == "differs"]
    if differing:
        return f"other than published: {', '.join(differing)}"
    return f"{len(checksums)} match" if checksums else "-"
