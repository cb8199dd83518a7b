"""The command line: each command parses, calls one library function and prints."""

import codecs
import contextlib
import io
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hardsight.cli.adapt import adapt
from hardsight.cli.align import align
from hardsight.cli.audit import audit
from hardsight.cli.data import data_app
from hardsight.cli.demo import bench, demo
from hardsight.cli.printing import BAD_INPUT, one_sentence, say
from hardsight.cli.results import advise, check, explore, report
from hardsight.cli.score import score
from hardsight.cli.score_text import score_text
from hardsight.cli.train import runs, train
from hardsight.stopping import signals_raised, stop_said


def group(found: Iterable[EntryPoint]) -> type[TyperGroup]:
    """The commands, with those of other distributions: Typer apps under `hardsight.commands`.

    Each of these is imported when it is called for: no other command waits for it.
    """
    others = {one.name: one for one in found}

    class Commands(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(dict.fromkeys([*super().list_commands(ctx), *others]))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in others:
                return super().get_command(ctx, cmd_name)
            command = typer.main.get_group(others[cmd_name].load())
            command.name = cmd_name
            return command

        def invoke(self, ctx: Any) -> Any:
            with stop_said(), _lost_process_reported():
                return super().invoke(ctx)

    return Commands


@contextlib.contextmanager
def _lost_process_reported() -> Iterator[None]:
    """Say in a sentence, where torch raises an error, that a process which worked for the command was killed."""
    try:
        yield
    except RuntimeError as problem:
        from hardsight.distributed import lost_process_named

        with one_sentence(), lost_process_named():
            raise problem


def _say_how_to_install_the_studies() -> None:
    """Tables and figures of the papers, each one command: a distribution of its own, which is not installed."""
    sentence = "`hardsight study` needs hardsight-studies: run `pip install ./studies` in a checkout of the repository"
    say(f"hardsight: {sentence}", error=True)
    raise typer.Exit(BAD_INPUT)


def app_with(found: Iterable[EntryPoint]) -> typer.Typer:
    """The command line with the commands of these entry points; `study` is always among them."""
    app = typer.Typer(
        name="hardsight",
        help="Which of your samples are hard, ambiguous or mislabelled? Begin with `hardsight demo`.",
        cls=group(found),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    for command in (demo, score, score_text, audit, advise, check, explore, align, train, runs, adapt, report, bench):
        app.command()(command)
    app.add_typer(data_app, name="data")
    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("study", context_settings=anything)(_say_how_to_install_the_studies)
    app.callback()(before_any_command)
    return app


def _print_version(asked: bool) -> bool:
    if asked:
        from importlib.metadata import version

        say(f"hardsight {version('hardsight')}")
        raise typer.Exit
    return asked


def before_any_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of no single command."""


app = app_with(list(entry_points(group="hardsight.commands")))


def main() -> None:
    """The entry point of the `hardsight` command."""
    _never_fail_to_print()
    # Large images are rejected, or decoded one at a time, by us.
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")
    try:
        with signals_raised():
            app()
    except SystemExit as end:
        # After a failure others may still wait for this process, and leaving in order would wait for them.
        if not end.code:
            _leave_other_processes()
        raise


def _never_fail_to_print() -> None:
    """Print letters that the output's encoding lacks as JSON escapes: printing must not fail after the work."""
    codecs.register_error("as-json", _as_json)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="as-json")


def _as_json(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    units = problem.object[problem.start : problem.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), problem.end


def _leave_other_processes() -> None:
    """Where several processes worked together, part in order: a thread of theirs left running may abort this one.

    torchrun would then call a finished run failed.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
