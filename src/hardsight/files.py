"""The door to files that others wrote: plain files only, and none larger than what reads it can hold.

A pipe is waited for without an end, a device like /dev/zero is read without one, and a sparse file of a few bytes on
disk may fill all memory: whoever opens a file by a name that a person gave asks here first.
"""

import errno
import os
import stat
import sys
from pathlib import Path


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        # Systems that do not say.
        return sys.maxsize


# A file that is mapped into memory, and one that is held twice: as bytes, and as what is made of them.
LARGEST_MAPPED = _memory()
LARGEST_READ = LARGEST_MAPPED // 2
# Far above every list, table of results or configuration that a person or a run has written.
LARGEST_TEXT = 1 << 28
# Pillow's own limit, 179 million pixels, takes half of it without any compression.
LARGEST_IMAGE = 1 << 30


def plain_file(path: Path | str, most: int = sys.maxsize) -> Path:
    """The path of a plain file of at most `most` bytes; all else is refused before it is opened."""
    path = Path(path)
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = "a pipe" if stat.S_ISFIFO(found.st_mode) else "a socket" if stat.S_ISSOCK(found.st_mode) else "a device"
        raise ValueError(f"{path} must be a plain file; it is {kind}")
    if found.st_size > most:
        raise ValueError(f"{path} must have at most {most:,} bytes to be read; it has {found.st_size:,}")
    return path


def read_bytes(path: Path | str, most: int = LARGEST_READ) -> bytes:
    """All bytes of a plain file of at most `most` bytes."""
    return plain_file(path, most).read_bytes()


def read_text(path: Path | str) -> str:
    """The text of a plain UTF-8 file."""
    return plain_file(path, LARGEST_TEXT).read_text(encoding="utf-8")
