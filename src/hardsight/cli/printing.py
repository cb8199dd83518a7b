"""All that commands print: lines, tables, JSON and errors, in which no text from a file can command the terminal."""

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from hardsight.names import HIDDEN, visible

# The exit code for bad input.
BAD_INPUT = 2
# What commands with a result for programs say of the option.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
# A narrower column says nothing, and takes width from those that do.
_LEAST_WIDTH = 20
# Letters of a sentence about bad input.
_LONGEST = 2000
# In JSON as JSON escapes them, beside those that it escapes itself; what ends its own lines stays.
_IN_JSON = {code: f"\\u{code:04x}" for code in HIDDEN if code >= 32}


def say(line: object, *, error: bool = False, flush: bool = False) -> None:
    """Print one line; whatever a name in it holds, it is one line."""
    print(visible(str(line)), file=sys.stderr if error else sys.stdout, flush=flush)


def say_json(value: Any) -> None:
    """Print JSON: NaN and infinity become null, and what JSON does not know, such as a date, becomes text."""
    from hardsight.records import plain

    print(json.dumps(plain(value), ensure_ascii=False, indent=2, default=str).translate(_IN_JSON))


def say_left_out(skipped: Sequence[str]) -> None:
    """Name the image that could not be read, or say how many could not."""
    if len(skipped) == 1:
        say(f"1 image was left out: {skipped[0]}")
    elif skipped:
        say(f"{len(skipped):,} images were left out, first {skipped[0]}; --json names all")


def print_table(
    title: str | None, header: Sequence[str], rows: Sequence[Sequence[Any]], *, cut_last: bool = False
) -> None:
    """Print rows under their header; cells are text, never markup, and nothing for None.

    In a pipe tabs separate them; without a title only the rows are printed there. With `cut_last` the last column is
    cut at the edge of a terminal, so that each row is one line; where it does not fit, it is left out.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    names = [visible(name) for name in header]
    console = Console()
    if not console.is_terminal:
        lines = cells if title is None else [[visible(title)], names, *cells]
        for line in lines:
            print("\t".join(line))
        return
    table = Table(title=None if title is None else Text(visible(title)))
    for name in names:
        # A path that is too long goes on in the next line: half of one is of no use.
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    if cut_last:
        # A column takes its widest cell and three characters for frame and padding.
        others = sum(max(Text(line[at]).cell_len for line in (names, *cells)) + 3 for at in range(len(names) - 1))
        last, width = table.columns[-1], console.width - others - 4
        last.no_wrap, last.overflow, last.max_width = True, "ellipsis", width
        if width < _LEAST_WIDTH:
            table.columns.pop()
    console.print(table)


@contextlib.contextmanager
def one_sentence(*options: str, **typed: str) -> Iterator[None]:
    """Print the library's errors about bad input as one line, and exit; programming errors still show themselves.

    A message about one of the `options`, parameters of the library, names it as it was typed: `at_once` is --at-once.
    `typed` are those that the library names otherwise, as `rate="--noise"`.
    """
    typed |= {name: f"--{name.replace('_', '-')}" for name in options}
    try:
        yield
    except BrokenPipeError:
        # Who read the output has seen enough, which is nobody's mistake: typer leaves without a word.
        raise
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as problem:
        name, space, rest = _short(_sentence(problem)).partition(" ")
        say(f"hardsight: {typed.get(name, name)}{space}{rest}", error=True)
        raise typer.Exit(BAD_INPUT) from None


def _sentence(problem: Exception) -> str:
    if isinstance(problem, FileExistsError | NotADirectoryError) and problem.filename:
        return f"a folder is needed where there is a file: {problem.filename}"
    if isinstance(problem, OSError) and problem.strerror:
        where = f": {problem.filename}" if problem.filename else ""
        return f"{problem.strerror}{where}"
    if isinstance(problem, UnicodeEncodeError):
        encoding = sys.getfilesystemencoding()
        if encoding != "utf-8":
            return f"paths and names must be UTF-8, and Python takes them for {encoding} here: set PYTHONUTF8=1"
        return f"paths and names must be UTF-8; got {problem.object!r}: rename it"
    if isinstance(problem, MemoryError):
        return f"there is not enough memory: {problem or 'take fewer samples at a time'}"
    return " ".join(str(problem).split())


def _short(text: str) -> str:
    """A file may have any number of columns, and names of any length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def why_no_page() -> str | None:
    """What to print instead of a page's path where the packages that draw it are missing; None where they are there."""
    for package in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(package)
        except ImportError:
            return f"left out, it needs {package}: pip install jinja2 matplotlib"
    return None
