"""Plain files alone, their text, JSON and CSV tables; how much memory a file may take; and what is wrong with one.

A file may take a share of the memory that is left, and become no more times its bytes than an honest file becomes.
"""

import contextlib
import errno
import json
import os
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

# Far above every list, table of results or configuration that a person or a run has written.
LARGEST_TEXT = 1 << 28
# As objects JSON takes up to thirty times its text.
LARGEST_JSON, DEEPEST_JSON = 1 << 26, 100
# Pillow's own limit, 179 million pixels, takes half of it without any compression.
LARGEST_IMAGE = 1 << 30
# What a file of any size may become, and how many times its own bytes a larger one may. Photographs decode to 20 times
# their bytes, tables of scores to less than 10; zeros to a thousand times, and a run of them to any number. What is
# worked through in pieces costs time alone.
ALWAYS, TIMES, TIMES_IN_PIECES = 1 << 28, 32, 100
_SHARE = 2
# What is there anyway: a page of a table is judged a thousand times, and the memory is asked for elsewhere.
_LITTLE = 1 << 24
# Of a file without an end of line, no more than this is looked at for what separates.
_LONGEST_HEADER = 1 << 20
# Every column is prepared for, be it empty; and a number of one letter takes eight bytes.
_MOST_COLUMNS, _TIMES_TEXT = 10_000, 8


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


def read_csv(path: Path | str, **convert: Any) -> pa.Table:
    """The table of a CSV file with a header, where memory holds it; `convert` are pyarrow's ConvertOptions."""
    # Opened by Python first: it names a missing file, or a folder, in words a person knows.
    path = plain_file(path)
    with path.open("rb") as file:
        header = file.readline(_LONGEST_HEADER)
    separator = max(b",", b";", b"\t", key=header.count)
    if header.count(separator) >= _MOST_COLUMNS:
        raise RefusedError(
            f"{path} must have at most {_MOST_COLUMNS:,} columns; it has {1 + header.count(separator):,}"
        )
    check_unpacked(path, _TIMES_TEXT * path.stat().st_size)
    with reading(path, "a readable CSV table", reason=True):
        table = csv.read_csv(
            # As pyarrow's own: a thread that lets go of something of Python's may abort a process that ends.
            pa.OSFile(str(path)),
            parse_options=csv.ParseOptions(delimiter=separator.decode()),
            convert_options=csv.ConvertOptions(**convert),
        )
        repeated = next((name for name, count in Counter(table.column_names).items() if count > 1), None)
    if repeated is not None:
        raise RefusedError(f"{path} must name each column once; it has {repeated!r} more than once")
    return table


# ---------------------------------------------------------------------------------------------------------------------
# Memory.


def memory_left() -> int:
    """Bytes that this process may still take: by the machine, by its container and by its own limit."""
    return max(0, min(_of_the_machine(), _of_the_container(), _of_the_process()))


def check_unpacked(name: object, unpacked: int, packed: int | None = None, *, held: int | None = None) -> None:
    """Reject what `packed` bytes of a file would become, where memory does not hold it or no honest file does so.

    Without `packed` nothing is compressed, and memory alone decides; with `held` no more than that is held at once.
    """
    times = TIMES if held is None else TIMES_IN_PIECES
    if packed is not None and unpacked > max(ALWAYS, times * packed):
        raise RefusedError(
            f"{name} must not become more than {times} times its size once it is unpacked; its {packed:,} bytes would "
            f"become {unpacked:,}"
        )
    wanted = unpacked if held is None else held
    if wanted <= _LITTLE:
        return
    room = memory_left() // _SHARE
    if wanted > room:
        raise RefusedError(f"{name} must fit into half of the memory that is left, {room:,} bytes; it takes {wanted:,}")


class Budget:
    """Bytes that the threads of a process share: who wants more than is left waits for the others."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._taken = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taking(self, wanted: int) -> Iterator[None]:
        """The block runs while so many bytes are its own; what is larger than the whole budget runs alone."""
        wanted = min(wanted, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self._taken + wanted <= self.size)
            self._taken += wanted
        try:
            yield
        finally:
            with self._changed:
                self._taken -= wanted
                self._changed.notify_all()


def _of_the_machine() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        # Systems that do not say.
        return sys.maxsize


def _of_the_container() -> int:
    """What the control groups of this process leave; of version 2 and of version 1."""
    left = sys.maxsize
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if not controllers:
                left = min(left, _of_group(Path("/sys/fs/cgroup"), place, "memory.max", "memory.current"))
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
                left = min(left, _of_group(Path("/sys/fs/cgroup/memory"), place, *names))
    return left


def _of_group(root: Path, place: str, limit: str, usage: str) -> int:
    left = sys.maxsize
    folder = root / place.strip("/")
    # Every group above has a limit of its own; inside a container the path may be that of the machine outside.
    for group in (folder, *folder.parents):
        with contextlib.suppress(OSError, ValueError):
            most, used = int((group / limit).read_text()), int((group / usage).read_text())
            with contextlib.suppress(OSError, ValueError, IndexError):
                # Pages of files that were read are let go of when memory is wanted; they count as used.
                lines = map(str.split, (group / "memory.stat").read_text().splitlines())
                used -= next((int(one[1]) for one in lines if one[0] in ("inactive_file", "total_inactive_file")), 0)
            left = min(left, most - used)
        if group == root:
            break
    return left


def _of_the_process() -> int:
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return sys.maxsize
        return most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return sys.maxsize
