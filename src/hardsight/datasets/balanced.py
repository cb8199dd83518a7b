"""Class-balanced batches: a fixed number of classes, and as many samples of each."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from hardsight.datasets.samplers import EpochSampler
from hardsight.validation import check_classes


class ClassBalancedSampler(EpochSampler):
    """Runs of `classes_per_batch` classes with `samples_per_class` samples each: use with that product as batch size.

    Gradient Rescaling trains so: 32 classes x 8 images, balanced by the given labels. Classes take turns in random
    order, all equally often up to one turn, and so do the samples of a class: a small class repeats its samples, each
    as often as the others up to one. An epoch has as many batches as the data would fill once. With several processes
    each takes whole batches in turn.
    """

    def __init__(
        self,
        labels: Int[Tensor, "samples"],
        *,
        classes_per_batch: int,
        samples_per_class: int,
        seed: int = 0,
        processes: int = 1,
        rank: int = 0,
    ) -> None:
        super().__init__(seed=seed, processes=processes, rank=rank)
        if labels.ndim != 1 or len(labels) == 0:
            raise ValueError(f"labels must be one class for each of at least 1 sample; got {list(labels.shape)}")
        check_classes("labels", labels)
        found, counts = labels.cpu().unique(return_counts=True)
        if not 1 <= classes_per_batch <= len(found):
            raise ValueError(
                f"classes_per_batch must lie in [1, {len(found)}], the classes there are; got {classes_per_batch!r}"
            )
        if samples_per_class < 1:
            raise ValueError(f"samples_per_class must be at least 1; got {samples_per_class!r}")
        self.classes_per_batch, self.samples_per_class = classes_per_batch, samples_per_class
        self.batch_size = classes_per_batch * samples_per_class
        self.batches = math.ceil(len(labels) / self.batch_size)
        self.members = labels.cpu().argsort(stable=True).split(counts.tolist())

    def order(self, epoch: int) -> Int[Tensor, "drawn"]:
        """All batches of an epoch, one after the other."""
        generator = self._generator(epoch)
        turns = self._turns(generator)
        needed = torch.bincount(turns.flatten(), minlength=len(self.members)) * self.samples_per_class
        supply = [_cycle(own, many, generator) for own, many in zip(self.members, needed.tolist(), strict=True)]
        # Class after class, the supply is in the order of each class's turns; here it goes back to the turns' own.
        in_turns = turns.flatten().argsort(stable=True)
        order = torch.empty(len(in_turns), self.samples_per_class, dtype=torch.int64)
        order[in_turns] = torch.cat(supply).view(-1, self.samples_per_class)
        return order.flatten()

    def __iter__(self) -> Iterator[int]:
        batches = self._own(torch.arange(self.batches))
        return iter(self.order(self.epoch).reshape(self.batches, self.batch_size)[batches].flatten().tolist())

    def __len__(self) -> int:
        return math.ceil(self.batches / self.processes) * self.batch_size

    def _size(self, epoch: int) -> int:
        return self.batches * self.batch_size

    def _turns(self, generator: torch.Generator) -> Tensor:
        """Which classes each batch holds [batches, classes_per_batch]: rounds of all classes, none twice in one."""
        classes = len(self.members)
        waiting: list[int] = []
        turns = []
        for _ in range(self.batches):
            if len(waiting) < self.classes_per_batch:
                # A new round; classes still waiting from the last one go first and not twice into this batch.
                fresh = torch.randperm(classes, generator=generator).tolist()
                left = set(waiting)
                waiting += [one for one in fresh if one not in left] + [one for one in fresh if one in left]
            turns.append(waiting[: self.classes_per_batch])
            waiting = waiting[self.classes_per_batch :]
        return torch.tensor(turns)


def _cycle(members: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` members, shuffled rounds one after the other."""
    rounds = math.ceil(count / len(members))
    drawn = [members[torch.randperm(len(members), generator=generator)] for _ in range(rounds)]
    return torch.cat(drawn)[:count] if drawn else members[:0]
