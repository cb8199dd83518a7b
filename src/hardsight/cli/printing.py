"""All that commands print: lines, tables and JSON, in which nothing that a file holds can command the terminal."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from hardsight.names import HIDDEN, visible

# In less room a text says nothing, and takes it from the columns that do.
_LEAST_ROOM = 20
# In JSON as JSON escapes them, beside those that it escapes itself; what ends its own lines stays.
_IN_JSON = {code: f"\\u{code:04x}" for code in HIDDEN if code >= 32}


def say(line: object, *, error: bool = False, flush: bool = False) -> None:
    """Print one line; whatever a name in it holds, it is one line."""
    print(visible(str(line)), file=sys.stderr if error else sys.stdout, flush=flush)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON; what has no word in it, days or bytes, becomes text."""
    print(json.dumps(value, ensure_ascii=False, indent=indent, default=str).translate(_IN_JSON))


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

    In a pipe tabs separate; without a title the rows come alone there. With `cut_last` the last column of a terminal's
    table ends at its edge, so that each row is one line; where there is no room for it, it is left out.
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
        last, room = table.columns[-1], console.width - others - 4
        last.no_wrap, last.overflow, last.max_width = True, "ellipsis", room
        if room < _LEAST_ROOM:
            table.columns.pop()
    console.print(table)
