"""Plain files, their text and their JSON: rejected before they are opened, or before they become more than text."""

import errno
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

from hardsight.files.memory import memory_left
from hardsight.files.refusals import RefusedError

# Far above every list, table of results or configuration that a person or a run has written.
LARGEST_TEXT = 1 << 28
# As objects JSON takes up to thirty times its text.
LARGEST_JSON, DEEPEST_JSON = 1 << 26, 100
# Pillow's own limit, 179 million pixels, takes half of it without any compression.
LARGEST_IMAGE = 1 << 30


def plain_file(path: Path | str, most: int = sys.maxsize) -> Path:
    """The path of a plain file of at most `most` bytes; all else is rejected before it is opened."""
    path = Path(path)
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = "a pipe" if stat.S_ISFIFO(found.st_mode) else "a socket" if stat.S_ISSOCK(found.st_mode) else "a device"
        raise RefusedError(f"{path} must be a plain file; it is {kind}")
    if found.st_size > most:
        raise RefusedError(f"{path} must have at most {most:,} bytes to be read; it has {found.st_size:,}")
    return path


def read_bytes(path: Path | str, most: int | None = None) -> bytes:
    """All bytes of a plain file of at most `most` bytes; left out, of half of the memory that is left."""
    return plain_file(path, memory_left() // 2 if most is None else most).read_bytes()


def read_text(path: Path | str, most: int = LARGEST_TEXT) -> str:
    """The text of a plain UTF-8 file, without the mark that some editors put before it."""
    content = read_bytes(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{path} must be UTF-8 text; byte {error.start} is not") from None


def read_json(path: Path | str) -> Any:
    """What a JSON file holds; ValueError where it is none."""
    text = read_text(path, LARGEST_JSON)
    try:
        return parse_json(text)
    except ValueError as problem:
        raise RefusedError(f"{path} is not readable JSON: {problem}") from None


def parse_json(text: str | bytes) -> Any:
    """What JSON says; ValueError where it is none, or is nested deeper than whoever walks through it can go."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it must be nested at most {DEEPEST_JSON} deep") from None
    level, depth = [value], -1
    while level:
        level = [one for one in level if isinstance(one, dict | list)]
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
        depth += 1
        if depth > DEEPEST_JSON:
            raise ValueError(f"it must be nested at most {DEEPEST_JSON} deep")
    return value
