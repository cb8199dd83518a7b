"""Who works on what, among any number of processes on any number of machines that share a folder.

A claim is a file that only one process can make. Its owner keeps touching it; a claim whose owner is dead, or has not
touched it for long, is taken over. Taking over is a rename, which only one process can win.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

# Seconds between two signs of life, and after how many seconds without one an owner on another machine counts as dead.
_HEARTBEAT = 15.0
_PATIENCE = 120.0


@contextlib.contextmanager
def claim(path: Path, *, heartbeat: float = _HEARTBEAT) -> Iterator[bool]:
    """Whether this process owns `path` inside the block; False where a living process has it already."""
    if not _take(path):
        yield False
        return
    stop = threading.Event()
    beat = threading.Thread(target=_keep_alive, args=(path, heartbeat, stop), daemon=True)
    beat.start()
    try:
        yield True
    finally:
        stop.set()
        beat.join()
        if _is_ours(path):
            path.unlink(missing_ok=True)


def _take(path: Path) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    if _create(path):
        return True
    if not _abandoned(path):
        return False
    # Whoever renames the dead claim away has removed it; of several that try, the others find it gone.
    grave = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        path.rename(grave)
    except FileNotFoundError:
        return False
    if not _abandoned(grave):
        # A living owner came between the look and the rename: its claim is put back.
        with contextlib.suppress(FileExistsError):
            os.link(grave, path)
        grave.unlink(missing_ok=True)
        return False
    grave.unlink(missing_ok=True)
    return _create(path)


def _create(path: Path) -> bool:
    """Make the claim whole: written under another name and linked, so that nobody reads half of it."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(_this_process()))
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _this_process() -> dict[str, str | int | None]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def _is_ours(path: Path) -> bool:
    """Whether the claim is still this process's: one that was suspended for long may have lost it to another."""
    try:
        return json.loads(path.read_text()) == _this_process()
    except (OSError, ValueError):
        return False


def _abandoned(path: Path) -> bool:
    try:
        owner = json.loads(path.read_text())
        if owner["host"] == socket.gethostname():
            return not _alive(int(owner["pid"]), owner["started"])
        return time.time() - path.stat().st_mtime > _PATIENCE
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, KeyError):
        # Whoever wrote this, it was no process that will come back for it.
        return True


def _alive(pid: int, started: str | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A number is given to another process when its owner has gone: the time it started tells them apart.
    return _started(pid) == started


def _started(pid: int) -> str | None:
    """When a process started, where the system tells; a dead one whose parent has not noticed counts as gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] == "Z" else fields[19]


def _keep_alive(path: Path, heartbeat: float, stop: threading.Event) -> None:
    while not stop.wait(heartbeat):
        if _is_ours(path):
            with contextlib.suppress(OSError):
                os.utime(path)
