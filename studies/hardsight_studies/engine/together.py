"""Several trainings at once on one device: their steps alternate, each on a stream of its own.

One small network leaves most of a GPU idle. Steps that are captured graphs on different streams run beside each
other, so K trainings take far less than K times as long. Each keeps its own order of data, random states, loss and
labels: what it computes is what it computes alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hardsight.distributed import current
from hardsight.training.checkpoints import random_states, restore_random_states
from hardsight.training.loop import Loop
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.record import Fitted


def run_together(loops: Sequence[Loop], *, end_round: Callable[[], None] | None = None) -> list[Fitted]:
    """Run these trainings to their ends, one step of each in turn; equals running them one after the other.

    One whose loss is no finite number stops alone; its error is raised when the others have ended. `end_round` is
    called when each has had its turn, by who takes their steps together: then they share one stream.
    """
    if not loops:
        return []
    with current(loops[0].device):
        before = random_states()
        try:
            turns = _take_turns(loops, end_round)
        finally:
            restore_random_states(before)
    for turn in turns:
        if turn.stopped is not None:
            raise turn.stopped
    return [loop.fitted for loop in loops]


def _take_turns(loops: Sequence[Loop], end_round: Callable[[], None] | None) -> list["_Turn"]:
    turns = [_Turn(loop, own_stream=end_round is None) for loop in loops]
    waiting = list(turns)
    try:
        while waiting:
            waiting = [turn for turn in waiting if turn.take()]
            if end_round is not None:
                end_round()
    finally:
        # What stops one from outside stops all: each says so in its record now.
        for turn in turns:
            turn.steps.close()
    return turns


class _Turn:
    """One of the trainings: its stream, and the random states that are its own while it steps."""

    def __init__(self, loop: Loop, *, own_stream: bool) -> None:
        self.device = loop.device
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" and own_stream else None
        self.steps = loop.stepwise()
        self.stopped: NonFiniteLossError | None = None
        self.swap = _SwapOne(self.device, loop) if loop.feed.places else _SwapAll(loop)

    def take(self) -> bool:
        """Take one step; False when the training has ended."""
        with torch.cuda.stream(self.stream):
            self.swap.enter()
            try:
                next(self.steps)
            except StopIteration:
                return False
            except NonFiniteLossError as stopped:
                self.stopped = stopped
                return False
            finally:
                self.swap.leave()
        return True


class _SwapAll:
    """Every global generator: a loader may draw from any of them."""

    def __init__(self, loop: Loop) -> None:
        self.state: Any = loop.random

    def enter(self) -> None:
        restore_random_states(self.state)

    def leave(self) -> None:
        self.state = random_states()


class _SwapOne:
    """The device's generator alone: with batches made on the device, dropout is all that draws."""

    def __init__(self, device: torch.device, loop: Loop) -> None:
        self.device, self.state = device, loop.random["cuda"]

    def enter(self) -> None:
        if self.state is not None:
            torch.cuda.set_rng_state(self.state, self.device)

    def leave(self) -> None:
        self.state = torch.cuda.get_rng_state(self.device)
