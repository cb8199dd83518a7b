"""A table on a terminal; in a pipe its title, its header and its rows, tab-separated."""

from collections.abc import Sequence
from typing import Any


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under their header; cells are text, never markup, and nothing for None."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(title=Text(title))
        for name in header:
            table.add_column(Text(name))
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        return
    print(title)
    for line in (header, *cells):
        print("\t".join(" ".join(cell.split()) for cell in line))
