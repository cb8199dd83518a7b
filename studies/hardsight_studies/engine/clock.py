"""How runs are computed: on which device, how many together, and how long it may take.

A clock stops between runs, and a watch stops within a training; what they leave undone is computed next time.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class OutOfTime(Exception):  # noqa: N818 (no error: the runs that are finished stay, the others come next time)
    """The time that was given is spent."""


@dataclass(frozen=True)
class Clock:
    """How long a run may take; None for as long as it needs."""

    end: float | None = None

    @classmethod
    def of(cls, seconds: float | None) -> "Clock":
        """A clock that runs out after so many seconds."""
        if seconds is not None and not 0 <= seconds < math.inf:
            raise ValueError(f"limit_seconds must be a finite number of seconds, 0 or more; got {seconds!r}")
        return cls(None if seconds is None else time.monotonic() + seconds)

    def check(self, needed: float = 0.0) -> None:
        """Stop (`OutOfTime`) where fewer seconds are left than needed."""
        if self.end is not None and time.monotonic() + needed > self.end:
            raise OutOfTime


class EpochWatch:
    """Stops a training (`OutOfTime`) as soon as it shows that the clock would run out before its last epoch.

    It reckons with the shortest epoch so far: the first ones also compile, and wait for others that do.
    """

    def __init__(self, clock: Clock, epochs: int) -> None:
        self.clock, self.epochs = clock, epochs
        self._before: float | None = None
        self._shortest = math.inf
        self._seen = 0

    def epoch(self, epoch: int) -> None:
        """This epoch, counted from 1, has ended."""
        now = time.monotonic()
        if self._before is not None:
            self._shortest = min(self._shortest, now - self._before)
            self._seen += 1
        self._before = now
        self.clock.check(1.1 * self._shortest * (self.epochs - epoch) if self._seen > 1 else 0.0)


@dataclass(frozen=True)
class Options:
    """How runs are computed, which changes no number but the time: the device, and how many at once."""

    device: str | None = None
    at_once: int | None = None
    stacked: bool = False
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = print

    @property
    def torch_device(self) -> "torch.device":
        """The device that was asked for; left open, a GPU where there is one."""
        from hardsight.distributed import usable_device

        return usable_device(self.device)
