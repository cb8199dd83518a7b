"""The batches of a training: grouped for gradient accumulation, and continued in the middle of an epoch.

A loader that knows its position (`state_dict`, `load_state_dict`, as `DeviceLoader` has) is asked to continue. Any
other is replayed: the random states of the epoch's start are put back and the batches already used are thrown away,
which gives the same batches wherever they depend on those states and the number of the epoch alone.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from hardsight.datasets.loader import DeviceLoader
from hardsight.training.capture import Place
from hardsight.training.checkpoints import random_states, restore_random_states
from hardsight.training.evaluation import take_apart
from hardsight.training.step import Batch


class Feed:
    """Groups of `accumulate` batches on the device, epoch by epoch."""

    def __init__(self, batches: Iterable[Any], device: torch.device, accumulate: int = 1) -> None:
        self.batches, self.device, self.accumulate = batches, device, accumulate
        # Set by who makes the batches itself, inside a captured step: places are handed out instead of batches.
        self.places = False
        self._stands: tuple[int, int] | None = None
        # A loader that Accelerate prepared has these methods also where the loader inside it has not.
        inside = getattr(batches, "base_dataloader", batches)
        self._positioned = hasattr(inside, "state_dict") and hasattr(inside, "load_state_dict")
        self._start: dict[str, Any] | None = None

    def steps(self) -> int:
        """Optimiser steps of an epoch."""
        try:
            count = len(self.batches)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError("batches must have a length, the number of batches of an epoch") from None
        if count == 0:
            raise ValueError("batches must hold at least one batch; got none")
        return -(-count // self.accumulate)

    def epoch(self, number: int, done: int = 0) -> Iterator[list[Batch] | list[Place]]:
        """The groups of epoch `number`, counted from 0, that come after the first `done`."""
        if self.places:
            yield from self._placed(number, done)
            return
        stream = self._continued(number, done) if done else self._begun(number)
        while group := [take_apart(batch, self.device) for batch in itertools.islice(stream, self.accumulate)]:
            yield group

    def _placed(self, number: int, done: int) -> Iterator[list[Place]]:
        loader = self.batches
        assert isinstance(loader, DeviceLoader)
        loader.set_epoch(number)
        plan = loader.plan(number)
        for index in range(done, len(loader)):
            self._stands = (number, index + 1) if index + 1 < len(loader) else (number + 1, 0)
            yield [Place(loader, plan, index)]

    def _begun(self, number: int) -> Iterator[Any]:
        self._tell(number)
        self._start = None if self._positioned else self._random()
        return iter(self.batches)

    def _continued(self, number: int, done: int) -> Iterator[Any]:
        if self._positioned:
            return iter(self.batches)
        self._tell(number)
        now = random_states()
        assert self._start is not None
        self._restore(self._start)
        stream = iter(self.batches)
        for _ in itertools.islice(stream, done * self.accumulate):
            pass
        restore_random_states(now)
        return stream

    def _tell(self, number: int) -> None:
        set_epoch = getattr(self.batches, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(number)

    def _random(self) -> dict[str, Any]:
        generator = getattr(self.batches, "generator", None)
        own = generator.get_state() if isinstance(generator, torch.Generator) else None
        return {"global": random_states(), "own": own}

    def _restore(self, start: dict[str, Any]) -> None:
        restore_random_states(start["global"])
        if start["own"] is not None:
            self.batches.generator.set_state(start["own"])  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        loader = self.batches.state_dict() if self._positioned else None  # type: ignore[attr-defined]
        if loader is not None and self._stands is not None:
            loader |= dict(zip(("epoch", "batches"), self._stands, strict=True))
        # Between epochs a plain loader's own generator is all there is to remember.
        return {"loader": loader, "start": self._start, "own": None if self._positioned else self._random()["own"]}

    def load_state_dict(self, state: dict[str, Any], *, within_epoch: bool) -> None:
        if self._positioned:
            # Between epochs too: a loader may count them by itself, and refuse to go on with other data.
            self.batches.load_state_dict(state["loader"])  # type: ignore[attr-defined]
        elif within_epoch:
            self._start = state["start"]
        elif state["own"] is not None:
            self.batches.generator.set_state(state["own"])  # type: ignore[attr-defined]
