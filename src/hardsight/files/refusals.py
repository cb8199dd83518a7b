"""What is wrong with a file, in one sentence that names it, whatever a parser of another library has raised."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path


class RefusedError(ValueError):
    """A file is rejected in a sentence of its own, which names it."""


@contextlib.contextmanager
def reading(path: Path | str, kind: str, *, reason: bool = False) -> Iterator[None]:
    """Whatever the parsers of other libraries raise over strangers' bytes becomes one sentence about the file.

    They meet damage with any exception: a wrong index, a number of bytes below zero, half a letter. `kind` is what the
    file should be; `reason` adds the beginning of what the parser said. What the disk says of itself passes, and so do
    sentences of our own (`RefusedError`).
    """
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:
        # EINVAL: a place before the beginning, which a file may name.
        if isinstance(error, OSError) and (error.filename is not None or error.errno not in (None, errno.EINVAL)):
            raise
        said = " ".join(str(error).split()).split(". ")[0][:200] if reason else ""
        raise RefusedError(f"{path} is truncated or is not {kind}{': ' if said else ''}{said}") from error


def quoted(value: object) -> str:
    """What a file holds, as a sentence quotes it: the beginning of what is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
