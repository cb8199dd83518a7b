"""Which process a file belongs to, and whether that process still lives."""

import contextlib
import os
import socket
import zlib
from pathlib import Path


def tag() -> str:
    """This process in a few characters: its host, its pid, and when it started, since a pid is given out again."""
    return f"{_host()}-{os.getpid()}-{_started(os.getpid())}"


def lives(owner: object) -> bool | None:
    """Whether the process of a `tag` still lives; None where that cannot be known from here, ValueError for no tag."""
    host, pid, started = str(owner).split("-")
    if host != _host() or os.name != "posix":
        return None
    if not 0 < int(pid) < 2**31:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return str(_started(int(pid))) == started


def _host() -> str:
    """The machine, as a sum of its name; of containers that share one, each counts processes on its own."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name = f"{name} {os.readlink('/proc/self/ns/pid')}"
    return f"{zlib.crc32(name.encode('utf-8', 'surrogateescape')):08x}"


def _started(pid: int) -> str | None:
    """When a process started, where the system says so; a dead one whose parent has not noticed counts as gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] == "Z" else fields[19]
