"""The command line: each command parses, calls one library function and prints."""

import typer

app = typer.Typer(
    name="hardsight",
    help="How hard is each of your samples, and what should training do about it?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def _root() -> None:
    """How hard is each of your samples, and what should training do about it?"""


def main() -> None:
    """The entry point of the `hardsight` command."""
    app()
