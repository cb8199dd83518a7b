"""The batches of a training: grouped for gradient accumulation, and continued in the middle of an epoch.

A loader that knows its position (`state_dict`, `load_state_dict`, as `DeviceLoader` has) is asked to continue. Any
other is replayed: the random states of the epoch's start are put back and the batches already used are thrown away,
which gives the same batches wherever they depend on those states and the number of the epoch alone.

On a GPU the batches of a `DeviceLoader` can be made inside a captured step: `Place` says which one is next, and
`ResidentBatches` makes it from tensors alone.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hardsight.datasets.augment import Draws, normalise, shift_and_flip
from hardsight.datasets.epochs import EpochPlan
from hardsight.datasets.loader import DeviceLoader
from hardsight.training.checkpoints import random_states, restore_random_states

Batch = tuple[Tensor, Tensor, Tensor | None]
# The label of a sample that has none, as `cross_entropy` and every loss leave it out.
IGNORED = -100


def take_apart(batch: Any, device: torch.device) -> Batch:
    """(images, labels, ids) of a batch, on the device; ids are None where the batch has none."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        kind = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(f"batches must be (images, labels) or (images, labels, ids); got {kind}")
    labels, *ids = (torch.as_tensor(part).to(device, non_blocking=True) for part in batch[1:])
    return batch[0].to(device, non_blocking=True), labels, ids[0] if ids else None


@dataclass(frozen=True)
class Place:
    """A batch that is not made yet: number `index` of the planned epoch."""

    loader: DeviceLoader
    plan: EpochPlan
    index: int

    def batch(self) -> Batch:
        """The batch itself."""
        images, labels, ids = self.loader.batch(self.plan, self.index)
        return images, labels, ids

    @property
    def is_full(self) -> bool:
        """Whether it has the size of all batches but the last."""
        return (self.index + 1) * self.loader.batch_size <= len(self.plan.order)


class Feed:
    """Groups of `accumulate` batches on the device, epoch by epoch."""

    def __init__(self, batches: Iterable[Any], device: torch.device, accumulate: int = 1) -> None:
        self.batches, self.device, self.accumulate = batches, device, accumulate
        # Set by who makes the batches itself, inside a captured step: places are handed out instead of batches.
        self.places = False
        self._position: tuple[int, int] | None = None
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
            self._position = (number, index + 1) if index + 1 < len(loader) else (number + 1, 0)
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
        if loader is not None and self._position is not None:
            loader |= dict(zip(("epoch", "batches"), self._position, strict=True))
        # Between epochs a plain loader's own generator is all there is to remember.
        return {"loader": loader, "start": self._start, "own": None if self._positioned else self._random()["own"]}

    def load_state_dict(self, state: dict[str, Any], *, within_epoch: bool) -> None:
        if self._positioned:
            # Between epochs too: a loader may count them by itself, and reject other data.
            self.batches.load_state_dict(state["loader"])  # type: ignore[attr-defined]
        elif within_epoch:
            self._start = state["start"]
        elif state["own"] is not None:
            self.batches.generator.set_state(state["own"])  # type: ignore[attr-defined]


def can_reside(batches: object) -> bool:
    """Whether batches can be made in the graph: a whole `DeviceLoader` whose augmentation draws all per epoch."""
    return isinstance(batches, DeviceLoader) and batches.world_size == 1 and batches.augmentation.noise_std == 0


class ResidentBatches:
    """The next batch as a function of tensors alone."""

    def __init__(self, loader: DeviceLoader, plan: EpochPlan) -> None:
        self.loader = loader
        self.order = torch.empty_like(plan.order)
        self.draws = Draws(*(torch.empty_like(column) for column in plan.draws))
        self.position = torch.zeros((), dtype=torch.int64, device=loader.device)
        self.offsets = torch.arange(loader.batch_size, device=loader.device)
        self._plan: EpochPlan | None = None
        self._next = -1

    def seek(self, place: Place) -> None:
        """Make `place` the next batch; nothing is done where it is that already."""
        if place.plan is not self._plan:
            self.order.copy_(place.plan.order)
            for kept, column in zip(self.draws, place.plan.draws, strict=True):
                kept.copy_(column)
            self._plan = place.plan
        if place.index != self._next:
            self.position.fill_(place.index * self.loader.batch_size)
        self._next = place.index + 1

    def make(self) -> Batch:
        """The next batch; equals `loader.batch` of its place."""
        loader = self.loader
        places = self.position + self.offsets
        where = self.order[places]
        pixels = loader.images.index_select(0, where)
        if loader.augmentation.moves:
            pixels = shift_and_flip(pixels, Draws(*(column[places] for column in self.draws)), loader.augmentation)
        images = normalise(pixels, loader.scale, dtype=loader.dtype, channels_last=loader.channels_last)
        self.position += loader.batch_size
        return images, loader.labels.index_select(0, where), loader.ids.index_select(0, where)

    def baked(self) -> int:
        """What a graph of `make` holds by address and what may be replaced: the labels."""
        return self.loader.labels.data_ptr()
