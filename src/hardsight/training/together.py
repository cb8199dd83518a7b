"""Several trainings at once on one device: their steps alternate, each on a stream of its own.

One small network leaves most of a GPU idle. Steps that are captured graphs on different streams run beside each
other, so K trainings take far less than K times as long. Each keeps its own order of data, random states, loss and
labels: what it computes is what it computes alone.
"""

from collections.abc import Sequence

import torch

from hardsight.training.checkpoints import random_states, restore_random_states
from hardsight.training.fitting import Fitted, Session


def run_together(sessions: Sequence[Session]) -> list[Fitted]:
    """Run these trainings to their ends, one step of each in turn."""
    if not sessions:
        return []
    on_gpu = all(session.training.device.type == "cuda" for session in sessions)
    streams = [torch.cuda.Stream() if on_gpu else None for _ in sessions]
    before, fitted = random_states(), [None] * len(sessions)
    runs = [session.stepwise() for session in sessions]
    states = [session.random for session in sessions]
    active = list(range(len(sessions)))
    while active:
        for place in list(active):
            with torch.cuda.stream(streams[place]):
                restore_random_states(states[place])
                try:
                    next(runs[place])
                except StopIteration as end:
                    fitted[place] = end.value
                    active.remove(place)
                states[place] = random_states()
    restore_random_states(before)
    return fitted  # type: ignore[return-value]
