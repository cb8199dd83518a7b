"""Bad input on the command line: one sentence on stderr, exit code 2, never a traceback."""

import contextlib
import sys
from collections.abc import Iterator

import typer

from hardsight.cli.printing import say

BAD_INPUT = 2


@contextlib.contextmanager
def one_sentence(*options: str, **typed: str) -> Iterator[None]:
    """Turn the refusals of the library into a line a person can act on; programming errors still show themselves.

    A sentence about one of the `options`, parameters of the library, calls it as a person typed it: `at_once` is
    --at-once. `typed` are those that the library calls otherwise, as `rate="--noise"`.
    """
    typed |= {name: f"--{name.replace('_', '-')}" for name in options}
    try:
        yield
    except BrokenPipeError:
        # Who read the output has seen enough, which is nobody's mistake: typer leaves without a word.
        raise
    except (ValueError, TypeError, OSError, ImportError) as refusal:
        name, space, rest = _sentence(refusal).partition(" ")
        say(f"hardsight: {typed.get(name, name)}{space}{rest}", error=True)
        raise typer.Exit(BAD_INPUT) from None


def _sentence(refusal: Exception) -> str:
    if isinstance(refusal, FileExistsError | NotADirectoryError) and refusal.filename:
        return f"a folder is needed where there is a file: {refusal.filename}"
    if isinstance(refusal, OSError) and refusal.strerror:
        where = f": {refusal.filename}" if refusal.filename else ""
        return f"{refusal.strerror}{where}"
    if isinstance(refusal, UnicodeEncodeError):
        encoding = sys.getfilesystemencoding()
        if encoding != "utf-8":
            return f"paths and names must be UTF-8, and Python takes them for {encoding} here: set PYTHONUTF8=1"
        return f"paths and names must be UTF-8; got {refusal.object!r}: rename it"
    return " ".join(str(refusal).split())
