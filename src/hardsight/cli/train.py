"""`hardsight train` and `hardsight runs`: train from a configuration, list the records there are."""

import os
import sys
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json, say_left_out


def _show_config(wanted: bool) -> bool:
    if wanted:
        from hardsight.training.config import TrainingConfig
        from hardsight.training.reading import keys_of

        print_table("keys of a configuration", ("key", "type", "default", "meaning"), keys_of(TrainingConfig))
        raise typer.Exit
    return wanted


def train(
    config: Annotated[Path, Argument(help="TOML file with the configuration; docs/training.md shows one.")],
    changes: Annotated[
        list[str] | None, Option("--set", help="Change one key, as often as wanted: --set optimizer.lr=0.05")
    ] = None,
    restart: Annotated[bool, Option("--restart", help="Start over instead of going on where it stopped.")] = False,
    quiet: Annotated[bool, Option("--quiet", help="Show no progress.")] = False,
    as_json: AsJson = False,
    show_config: Annotated[
        bool,
        Option(
            "--show-config", callback=_show_config, is_eager=True, help="List all keys of a configuration, and exit."
        ),
    ] = False,
) -> None:
    """Train a classifier from a configuration and leave a record; started again, it goes on where it stopped.

    The least that a configuration holds: epochs = 5, data = "digits", model = "digits_cnn", a line each.

    Example: hardsight train digits.toml --set noise.kind=symmetric --set noise.rate=0.4
    """
    from hardsight.records import skipped_in
    from hardsight.training import TrainingConfig, read_settings
    from hardsight.training import train as run

    with one_sentence():
        settings = read_settings(TrainingConfig, config, changes or [])
        fitted = run(settings, resume=not restart, progress=False if quiet else None)
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes speaks for all
    skipped = [] if fitted.samples is None else skipped_in(fitted.samples)
    if as_json:
        say_json({"folder": str(fitted.folder), **fitted.results, "notes": fitted.notes, "skipped": skipped})
        return
    for name, value in fitted.results.items():
        say(f"{name.replace('_', ' ')}: {_shown(name, value)}")
    for note in fitted.notes:
        say(f"note: {note}")
    say_left_out(skipped)
    say(f"record: {fitted.folder}")
    if fitted.folder is not None and (fitted.folder / "samples.parquet").is_file():
        say(f"next: hardsight audit {quote(str(fitted.folder))}")


def runs(
    folder: Annotated[Path, Argument(help="Folder to look in, at any depth.")] = Path("runs"), as_json: AsJson = False
) -> None:
    """List the run records below a folder: where, status, epochs, seed, last and best test accuracy, when begun.

    Status: running, finished, failed, interrupted, or gone where the process has ended without saying so.

    Example: hardsight runs runs
    """
    from hardsight.training import list_runs

    with one_sentence():
        found = list_runs(folder)
    if not found:
        say(f"hardsight: there is no run record below {folder}", error=True)
    if as_json:
        say_json(found)
    elif found:
        print_table(None, _COLUMNS, [_cells(run) for run in found])


_COLUMNS = ("folder", "status", "epochs", "seed", "last", "best", "created")


def _cells(run: dict[str, Any]) -> list[str]:
    results = run["results"] if isinstance(run["results"], dict) else {}
    numbers = {"last": results.get("test_accuracy"), "best": results.get("test_accuracy_best")}
    if sys.stdout.isatty():
        # To the minute: what says when a run was begun leaves the room to its folder.
        run = run | {"created": str(run["created"] or "-").replace("T", " ")[:16]}
    return [_shown("accuracy", numbers[key]) if key in numbers else _text(run[key]) for key in _COLUMNS]


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _shown(name: str, value: Any) -> str:
    if value is None or value != value:
        return "-"
    # A whole number of hundreds of digits, as a file may hold it, has no place among the others.
    if not isinstance(value, int | float) or abs(value) > 1e300:
        return _text(value)
    return f"{100 * value:.2f} %" if "accuracy" in name else f"{value:.4g}"
