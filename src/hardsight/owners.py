"""Which process a file belongs to, and whether that process still lives."""

import os
import socket
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """This process as JSON holds it: host, pid, and when it started, since a pid is given again to another process."""
    return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


def lives(owner: Mapping[str, Any]) -> bool | None:
    """Whether a process that `this_process` described still lives; None where that cannot be known from here."""
    if owner["host"] != _host() or os.name != "posix":
        return None
    pid = owner["pid"]
    if not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    alive: bool | None = _started(pid) == owner["started"]
    return alive


def tag() -> str:
    """This process in a few characters, for the name of a file; read again by `tag_lives`."""
    owner = this_process()
    return f"{_short(owner['host'])}-{owner['pid']}-{owner['started']}"


def tag_lives(text: str) -> bool | None:
    """Whether the process that a `tag` names still lives; None where that cannot be known from here."""
    host, pid, started = text.split("-")
    if host != _short(_host()):
        return None
    return lives({"host": _host(), "pid": int(pid), "started": None if started == "None" else started})


def _short(host: str) -> str:
    return f"{zlib.crc32(host.encode('utf-8', 'surrogateescape')):08x}"


def _host() -> str:
    """The machine; of containers that share its name, each counts processes on its own."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str | None:
    """When a process started, where the system says so; a dead one whose parent has not noticed counts as gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] == "Z" else fields[19]
