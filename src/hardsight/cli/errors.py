"""Bad input on the command line: one sentence on stderr, exit code 2, never a traceback."""

import contextlib
import sys
from collections.abc import Iterator

import typer

BAD_INPUT = 2


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Turn the refusals of the library into a line a person can act on; programming errors still show themselves."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as refusal:
        print(f"hardsight: {_sentence(refusal)}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None


def _sentence(refusal: Exception) -> str:
    if isinstance(refusal, FileExistsError | NotADirectoryError) and refusal.filename:
        return f"a folder is needed where there is a file: {refusal.filename}"
    if isinstance(refusal, OSError) and refusal.strerror:
        where = f": {refusal.filename}" if refusal.filename else ""
        return f"{refusal.strerror}{where}"
    return " ".join(str(refusal).split())
