"""Several trainings at once on one device: their steps alternate, each on a stream of its own.

One small network leaves most of a GPU idle. Steps that are captured graphs on different streams run beside each
other, so K trainings take far less than K times as long. Each keeps its own order of data, random states, loss and
labels: what it computes is what it computes alone.
"""

from collections.abc import Sequence
from typing import Any

import torch

from hardsight.distributed import current, rank_and_count
from hardsight.training.checkpoints import (
    device_random_states,
    random_states,
    restore_device_random_states,
    restore_random_states,
)
from hardsight.training.loop import Fitted, Loop
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.stacked import StackedLoops


def run_together(loops: Sequence[Loop], *, stacked: bool = False) -> list[Fitted]:
    """Run these trainings to their ends, one step of each in turn; equals running them one after the other.

    With `stacked`, networks of one architecture share their forward and backward pass (see `stacked`): equal up to
    rounding, and up to the draws of dropout.

    One whose loss is no finite number stops alone; its error is raised when the others have ended.
    """
    if not loops:
        return []
    _, processes = rank_and_count()
    if stacked and processes > 1:
        raise ValueError(f"stacked must be False in several processes; got True in {processes}")
    with current(loops[0].device):
        before = random_states()
        try:
            turns = _take_turns(loops, stacked=stacked)
        finally:
            restore_random_states(before)
    for turn in turns:
        if turn.stopped is not None:
            raise turn.stopped
    return [turn.fitted for turn in turns if turn.fitted is not None]


def _take_turns(loops: Sequence[Loop], *, stacked: bool) -> list["_Turn"]:
    stack = StackedLoops(loops) if stacked else None
    turns = [_Turn(loop, own_stream=stack is None) for loop in loops]
    waiting = list(turns)
    try:
        while waiting:
            waiting = [turn for turn in waiting if turn.take()]
            if stack is not None:
                stack.end_round()
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
        self.fitted: Fitted | None = None
        self.stopped: NonFiniteLossError | None = None
        self.swap = _SwapOne(self.device, loop) if loop.feed.places else _SwapAll(loop)

    def take(self) -> bool:
        """Take one step; False when the training has ended."""
        with torch.cuda.stream(self.stream):
            self.swap.enter()
            try:
                next(self.steps)
            except StopIteration as end:
                self.fitted = end.value
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
            restore_device_random_states(self.device, self.state)

    def leave(self) -> None:
        self.state = device_random_states(self.device)
