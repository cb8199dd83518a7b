"""Batches of a `DeviceLoader` made inside the captured step: no launch from the host between two replays.

The epoch's plan (order and draws) is copied once into tensors that the graph reads, and a position on the device says
which batch comes next; each replay makes its own batch and moves the position on.
"""

from dataclasses import dataclass

import torch

from hardsight.datasets.augment import Draws, normalise, shift_and_flip
from hardsight.datasets.epochs import EpochPlan
from hardsight.datasets.loader import DeviceLoader
from hardsight.training.step import Batch


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
