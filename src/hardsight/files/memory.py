"""How much memory a file may take: a share of what is left, and no more times its bytes than an honest file becomes."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from hardsight.files.refusals import RefusedError

# What a file of any size may become, and how many times its own bytes a larger one may. Photographs decode to 20 times
# their bytes, tables of scores to less than 10; zeros to a thousand times, and a run of them to any number. What is
# worked through in pieces costs time alone.
ALWAYS, TIMES, TIMES_IN_PIECES = 1 << 28, 32, 100
_SHARE = 2
# What is there anyway: a page of a table is judged a thousand times, and the memory is asked for elsewhere.
_LITTLE = 1 << 24


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
    for group in [folder, *folder.parents]:
        with contextlib.suppress(OSError, ValueError):
            most, used = int((group / limit).read_text()), int((group / usage).read_text())
            left = min(left, most - used + _reclaimable(group))
        if group == root:
            break
    return left


def _reclaimable(group: Path) -> int:
    """Pages of files that were read and are let go of when memory is wanted; they count as used."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0


def _of_the_process() -> int:
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return sys.maxsize
        return most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return sys.maxsize
