"""Claims on work, among any number of processes on any number of machines that share a folder.

A claim is a file that only one process can make. Its owner keeps touching it; a claim whose owner is dead, or has not
touched it for long, is taken over. Taking over is a rename, which only one process can win.
"""

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from hardsight.distributed import rank_and_count, together
from hardsight.files import read_text
from hardsight.records import draft_path, lives, remove_drafts, tag

# Seconds between two signs of life, and after how many seconds without one an owner on another machine counts as dead.
_HEARTBEAT = 15.0
_PATIENCE = 120.0
# The claim on a run's folder.
CLAIM = ".training"
# The folders in which this thread trains: who holds one may start a further training in it.
_held: contextvars.ContextVar[frozenset[Path]] = contextvars.ContextVar("held", default=frozenset())


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Reject a folder in which a living process trains: the two would write over each other's record."""
    place = folder.absolute()
    if place in _held.get():
        yield
        return
    try:
        with contextlib.ExitStack() as held:
            with together():
                mine = True
                # Where no claim can be made, nothing can be written either: the first write has the sentence for it.
                with contextlib.suppress(OSError):
                    mine = rank_and_count()[0] > 0 or held.enter_context(claim(folder / CLAIM))
                if not mine:
                    raise ValueError(f"another process is training in {folder}: wait for it, or give another folder")
            _held.set(_held.get() | {place})
            held.callback(lambda: _held.set(_held.get() - {place}))
            yield
    finally:
        # The claim makes the folder; a training that is rejected must not leave it behind.
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def claim(path: Path, *, heartbeat: float = _HEARTBEAT) -> Iterator[bool]:
    """Whether this process owns `path` inside the block; False where a living process has it already."""
    if not _take(path):
        yield False
        return
    stop = threading.Event()

    def keep_alive() -> None:
        while not stop.wait(heartbeat):
            if _is_ours(path):
                with contextlib.suppress(OSError):
                    os.utime(path)

    beat = threading.Thread(target=keep_alive, daemon=True)
    beat.start()
    try:
        yield True
    finally:
        stop.set()
        beat.join()
        if _is_ours(path):
            path.unlink(missing_ok=True)


def release_abandoned(path: Path) -> None:
    """Remove a claim whose owner is dead: where the work is done, nobody may ever ask for it again."""
    if is_abandoned(path):
        with claim(path):
            pass


def is_abandoned(path: Path) -> bool:
    """Whether the owner of a claim is dead, or has not touched it for long; False where there is no claim."""
    try:
        alive = lives(read_text(path))
        return time.time() - path.stat().st_mtime > _PATIENCE if alive is None else not alive
    except OSError:
        # None is there, or it is not ours to read.
        return False
    except ValueError:
        # Whoever wrote this, it was no process that will come back for it.
        return True


def _take(path: Path) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_drafts(path.parent)
    if _create(path):
        return True
    if not is_abandoned(path):
        return False
    # Whoever renames the dead claim away has removed it; of several that try, the others find it gone.
    grave = draft_path(path)
    try:
        path.rename(grave)
    except FileNotFoundError:
        return False
    dead = is_abandoned(grave)
    if not dead:
        # A living owner came between the look and the rename: its claim is put back.
        with contextlib.suppress(FileExistsError):
            os.link(grave, path)
    grave.unlink(missing_ok=True)
    return dead and _create(path)


def _create(path: Path) -> bool:
    """Make the claim whole: written under another name and linked, so that nobody reads half of it."""
    draft = draft_path(path)
    draft.write_text(tag())
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _is_ours(path: Path) -> bool:
    """Whether the claim is still this process's: one that was suspended for long may have lost it to another."""
    try:
        return read_text(path) == tag()
    except (OSError, ValueError):
        return False
