"""The command line: each command parses, calls one library function and prints."""

import sys

import typer

from hardsight.cli.adapt import adapt
from hardsight.cli.align import align
from hardsight.cli.audit import audit
from hardsight.cli.bench import bench
from hardsight.cli.data import data_app
from hardsight.cli.demo import demo
from hardsight.cli.report import report
from hardsight.cli.score import score
from hardsight.cli.study import study_app
from hardsight.cli.train import runs, train

app = typer.Typer(
    name="hardsight",
    help="Which of your samples are hard, ambiguous or mislabelled? Begin with `hardsight demo`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in (demo, score, audit, align, train, runs, adapt, report, bench):
    app.command()(command)
app.add_typer(study_app, name="study")
app.add_typer(data_app, name="data")


def main() -> None:
    """The entry point of the `hardsight` command."""
    try:
        app()
    except SystemExit as end:
        # After a failure others may still wait for this process, and leaving in order would wait for them.
        if not end.code:
            _leave_other_processes()
        raise


def _leave_other_processes() -> None:
    """Where several processes worked together, part in order: a thread of theirs left running may abort this one.

    torchrun would then call a finished run failed.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
