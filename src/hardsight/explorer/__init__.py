"""The page where labels are looked at and decided: `hs.explore`, served from this machine alone.

| module | what it does |
|---|---|
| `query` | counts over selections, pure functions of arrays |
| `columns` | a table's columns in the form that counting needs, kept beside it |
| `features` | places on a map and neighbours by angle, of features |
| `filters`, `selection` | what a page selects by, and what is shown of it |
| `decisions` | marks on disk, and when one may stop |
| `source` | the table, and the pictures and histories that a record holds beside it |
| `answers`, `server` | what the page asks, and the web part |
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hardsight.explorer.server import Explorer


def explore(
    source: Path | str, images: Path | str | None = None, *, show: Sequence[str] = (), host: str = "127.0.0.1",
    port: int = 0, browser: bool = True,
) -> "Explorer":  # fmt: skip
    """Serve the page of an audit's folder, a run's record or a Parquet table of scores, and open it.

    `images` is the folder that the table's paths are relative to; left out, where the record says they were. `show`
    names columns to be seen on every card. Only this machine can reach the page, unless `host` says otherwise. Returns
    at once, also in a notebook: `.url`, `.close()`, and `.wait()` for a script that would end.
    """
    try:
        from hardsight.explorer.server import Explorer
    except ImportError as missing:
        raise ImportError(f"explore needs {missing.name}: pip install starlette uvicorn") from None
    from hardsight.explorer.answers import Answers

    opened = Explorer(Answers(source, images, show), host, port)
    if browser:
        opened.open()
    return opened
