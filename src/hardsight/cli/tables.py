"""A table on a terminal; in a pipe its title, its header and its rows, tab-separated."""

from collections.abc import Sequence
from typing import Any

# What a name could command a terminal with: control characters, and those that turn the direction of writing.
_COMMANDS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if not chr(code).isspace()}
_COMMANDS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
# In less room a text says nothing, and takes it from the columns that do.
_LEAST_ROOM = 20


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], *, cut_last: bool = False) -> None:
    """Print rows under their header; cells are text, never markup, and nothing for None.

    With `cut_last` the last column of a terminal's table ends at its edge, so that each row is one line; where there is
    no room for it, it is left out.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [["" if cell is None else str(cell).translate(_COMMANDS) for cell in row] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(title=Text(title))
        for name in header:
            # A path that is too long goes on in the next line: half of one is of no use.
            table.add_column(Text(name), overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        if cut_last:
            # A column takes its widest cell and three characters for frame and padding.
            others = sum(max(Text(line[at]).cell_len for line in (header, *cells)) + 3 for at in range(len(header) - 1))
            last, room = table.columns[-1], console.width - others - 4
            last.no_wrap, last.overflow, last.max_width = True, "ellipsis", room
            if room < _LEAST_ROOM:
                table.columns.pop()
        console.print(table)
        return
    print(title)
    for line in (header, *cells):
        print("\t".join(" ".join(cell.split()) for cell in line))
