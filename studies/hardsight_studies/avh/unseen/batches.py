"""Batches for training on several domains: the same number of each domain in every batch."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hardsight.datasets.epochs import EpochPlan
from hardsight.datasets.loader import DeviceLoader
from hardsight.domains.data import RowBatches

Part = tuple[Tensor, Tensor, Tensor]


class DomainBatches:
    """One batch of each domain after the other, put together in the order of the domains.

    An epoch has as many batches as all samples fill; a domain that is through begins again by itself, so that a small
    one comes more often. Which sample comes when is a function of the loaders' seeds and the number of the batch: any
    batch can be made without those before it.
    """

    def __init__(self, domains: Sequence[DeviceLoader | RowBatches]) -> None:
        sizes = {loader.batch_size for loader in domains}
        if len(domains) < 2 or len(sizes) != 1 or not all(loader.drop_last for loader in domains):
            raise ValueError(
                "domains must be at least two loaders of one batch_size that drop their last batch; "
                f"got {len(domains)} of batch_size {sorted(sizes)}"
            )
        self.domains = list(domains)
        self.each = sizes.pop()
        self.batch_size = self.each * len(self.domains)
        self._plans: list[EpochPlan | None] = [None] * len(self.domains)
        self._epoch, self._done = 0, 0

    def __len__(self) -> int:
        return max(1, sum(loader.samples for loader in self.domains) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at the beginning of `epoch`."""
        self._epoch, self._done = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Where it stands: the epoch, and how many batches of it have been handed out."""
        return {"epoch": self._epoch, "batches": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where `state` was taken."""
        self._epoch, self._done = int(state["epoch"]), int(state["batches"])

    def __iter__(self) -> Iterator[Part]:
        epoch, first = self._epoch, self._done
        for index in range(first, len(self)):
            self._epoch, self._done = (epoch, index + 1) if index + 1 < len(self) else (epoch + 1, 0)
            yield self.batch(epoch * len(self) + index)

    def batch(self, number: int) -> Part:
        """The batch of that number, counted from the beginning of training."""
        parts = [self._part(place, number) for place in range(len(self.domains))]
        images, labels, ids = (torch.cat(column) for column in zip(*parts, strict=True))
        return images, labels, ids

    def _part(self, place: int, number: int) -> Part:
        loader = self.domains[place]
        round_, index = divmod(number, len(loader))
        plan = self._plans[place]
        if plan is None or plan.epoch != round_:
            plan = self._plans[place] = loader.plan(round_)
        return tuple(loader.batch(plan, index))
