"""What every loader shares: epochs by seed and number, batches and their shares, and where a pass is.

All that is random in an epoch's order and augmentation is drawn once, on the CPU, from (seed, epoch): the same on
every device and for any number of processes, and any batch of any epoch can be made without those before it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from hardsight.datasets.augment import Augmentation, Draws, PixelScale, draw, normalise, pixel_scale, shift_and_flip
from hardsight.datasets.samplers import EpochSampler


class Batch(NamedTuple):
    """Images ready for the network, their labels, and their ids; all on the loader's device."""

    images: Float[Tensor, "samples channels height width"]
    labels: Int[Tensor, "samples"]
    ids: Int[Tensor, "samples"]


class EpochPlan(NamedTuple):
    """An epoch before any pixel is touched: which sample is where, and what was drawn for it."""

    epoch: int
    order: Int[Tensor, "places"]
    draws: Draws


class LoaderOptions(TypedDict, total=False):
    """The options that every loader takes; `EpochLoader` says what they mean and what they are when left out."""

    shuffle: bool
    seed: int
    augmentation: Augmentation
    mean: Sequence[float] | None
    std: Sequence[float] | None
    drop_last: bool
    class_balanced: tuple[int, int] | None
    sampler: EpochSampler | None
    rank: int
    world_size: int
    dtype: torch.dtype
    channels_last: bool


class EpochLoader(ABC):
    """Batches by (seed, epoch), their shares for each process, and where a pass is.

    `batch_size` is that of all processes together. Process `rank` of `world_size` gets its slice of every batch:
    the slices are disjoint, differ by at most one sample, and put together in order of rank they are, bit for bit,
    the batch of a single process. All processes make the same number of batches; the last one of an epoch, where it
    holds fewer samples than there are processes, is empty for some of them (`drop_last` leaves it out).

    `class_balanced=(classes, each)` draws each batch as that many different classes with that many images of each
    (GR: 32 x 8), by the current labels. A class's images come in random order, each once before one comes again; an
    epoch is samples // batch_size such batches. Samples labelled -1 never come.

    `sampler` orders each epoch. An epoch keeps its number of batches: an order of fewer samples is gone through again.

    Each pass over the loader is one epoch. A pass that was left early is not continued: the next one is a new epoch,
    unless `load_state_dict` put the loader in the middle of one.
    """

    def __init__(
        self,
        labels: Integer[Tensor, "labels"],
        ids: Integer[Tensor, "ids"] | None,
        batch_size: int,
        *,
        device: torch.device | str,
        channels: int,
        shuffle: bool = True,
        seed: int = 0,
        augmentation: Augmentation = Augmentation(),  # noqa: B008 (frozen)
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        drop_last: bool = False,
        class_balanced: tuple[int, int] | None = None,
        sampler: EpochSampler | None = None,
        rank: int = 0,
        world_size: int = 1,
        dtype: torch.dtype = torch.float32,
        channels_last: bool = False,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in [0, world_size), world_size being {world_size}; got {rank}")
        if batch_size < world_size:
            raise ValueError(f"batch_size must be at least one sample a process, {world_size}; got {batch_size}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0; got {seed}")
        if class_balanced and (min(class_balanced) < 1 or class_balanced[0] * class_balanced[1] != batch_size):
            wanted = f"(classes, images of each) with a product of batch_size, {batch_size}"
            raise ValueError(f"class_balanced must be {wanted}; got {class_balanced!r}")
        if drop_last and not class_balanced and len(labels) < batch_size:
            raise ValueError(f"batch_size must be at most {len(labels)} samples with drop_last; got {batch_size}")
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type; got {dtype}")
        self.device = torch.device(device)
        self.samples = len(labels)
        self.ids = torch.arange(len(labels), device=self.device) if ids is None else ids.to(self.device, torch.int64)
        self.batch_size, self.drop_last, self.shuffle, self.seed = batch_size, drop_last, shuffle, seed
        if sampler is not None and class_balanced is not None:
            raise ValueError("sampler must be left out with class_balanced: both order the epoch")
        self.class_balanced, self.sampler = class_balanced, sampler
        self.rank, self.world_size = rank, world_size
        self.augmentation, self.dtype, self.channels_last = augmentation, dtype, channels_last
        means = torch.tensor([0.0] * channels if mean is None else mean, dtype=torch.float64)
        stds = torch.tensor([1.0] * channels if std is None else std, dtype=torch.float64)
        for name, values, fit in (("mean", means, means.isfinite()), ("std", stds, stds.isfinite() & (stds > 0))):
            if len(values) != channels or not bool(fit.all()):
                wanted = f"finite{', above 0' if name == 'std' else ''}, one number for each of {channels} channels"
                raise ValueError(f"{name} must be {wanted}; got {values.tolist()}")
        self.scale = PixelScale(*(part.to(self.device) for part in pixel_scale(means, stds, dtype)))
        self._noise = torch.Generator(self.device)
        self._epoch, self._done, self._resumed = 0, 0, False
        self.set_labels(labels)

    def __len__(self) -> int:
        """Number of batches of an epoch, the same for every process."""
        if self.class_balanced or self.drop_last:
            return max(1, self.samples // self.batch_size)
        return -(-self.samples // self.batch_size)

    @property
    def labels(self) -> Tensor:
        """The labels that the batches carry, int64 [N]; change them with `set_labels`."""
        return self._labels

    def set_labels(self, labels: Integer[Tensor, "labels"]) -> None:
        """Carry other labels from the next batch on; class-balanced batches follow them from the next epoch on."""
        if len(labels) != self.samples:
            raise ValueError(f"labels must be one an image; got {len(labels)} labels for {self.samples} images")
        # A copy: the caller's later edits must not reach batches that are already planned.
        self._labels = labels.to(self.device, torch.int64, copy=True)
        if self.class_balanced:
            self._labels_on_host = self._labels.cpu()
            present = len(self._labels_on_host[self._labels_on_host >= 0].unique())
            if present < self.class_balanced[0]:
                wanted = f"at most as many classes as the labels have, {present}"
                raise ValueError(f"class_balanced must ask for {wanted}; got {self.class_balanced[0]}")

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or comes next."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at the beginning of `epoch`."""
        self._epoch, self._done, self._resumed = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: the epoch and how many batches of it have been handed out."""
        return {"seed": self.seed, "epoch": self._epoch, "batches": self._done, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken: the next pass yields the batches that were still to come, bit for bit.

        The number of processes may differ. Labels are not part of the state: set the same ones.
        """
        for key, mine in self._identity().items():
            if state[key] != mine:
                raise ValueError(f"{key} must be that of the saved position, {state[key]!r}; got {mine!r}")
        self.seed, self._epoch, self._done = int(state["seed"]), int(state["epoch"]), int(state["batches"])
        self._resumed = True

    def __iter__(self) -> Iterator[Batch]:
        if self._done and not self._resumed:
            self._epoch, self._done = self._epoch + 1, 0
        self._resumed = False
        epoch, first = self._epoch, self._done
        for index, batch in enumerate(self._batches(self.plan(epoch), first), first):
            # Counted before it is handed out: a position saved after this batch's step does not repeat the batch.
            self._epoch, self._done = (epoch, index + 1) if index + 1 < len(self) else (epoch + 1, 0)
            yield batch

    def plan(self, epoch: int) -> EpochPlan:
        """Order and draws of an epoch: a function of (seed, epoch), the same on every device and in every process."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        if self.class_balanced:
            order = balanced_order(self._labels_on_host, *self.class_balanced, len(self), generator=generator)
        elif self.sampler is not None:
            order = self.sampler.order(epoch)
            order = order.repeat(-(-self.samples // len(order)))[: self.samples]
        elif self.shuffle:
            order = torch.randperm(self.samples, generator=generator)
        else:
            order = torch.arange(self.samples)
        draws = draw(self.augmentation, len(order), generator)
        return EpochPlan(epoch, order.to(self.device), Draws(*(column.to(self.device) for column in draws)))

    @abstractmethod
    def _batches(self, plan: EpochPlan, first: int) -> Iterator[Batch]:
        """This process's batches of the planned epoch, from batch `first` on."""

    def _share(self, plan: EpochPlan, index: int) -> slice:
        """The places of the epoch that are this process's part of batch `index`."""
        start = index * self.batch_size
        whole = min(self.batch_size, len(plan.order) - start)
        return slice(start + whole * self.rank // self.world_size, start + whole * (self.rank + 1) // self.world_size)

    def _finished(self, pixels: Tensor, plan: EpochPlan, index: int, kept: Tensor | None = None) -> Batch:
        """Bytes to a batch: augmented, normalised, with labels and ids. `kept`: which of the share are there at all."""
        mine = self._share(plan, index)
        columns = (plan.order[mine], *(column[mine] for column in plan.draws))
        where, *drawn = columns if kept is None else tuple(column[kept] for column in columns)
        if self.augmentation.moves and len(where):
            pixels = shift_and_flip(pixels, Draws(*drawn), self.augmentation)
        images = normalise(pixels, self.scale, dtype=self.dtype, channels_last=self.channels_last)
        if self.augmentation.noise_std > 0:
            # For the whole batch, then sliced: what a sample gets does not depend on the number of processes.
            start = index * self.batch_size
            whole = (min(self.batch_size, len(plan.order) - start), *images.shape[1:])
            # From 1 on: (seed, epoch, 0) would be (seed, epoch), of which the order is made.
            self._noise.manual_seed(mixed_seed(self.seed, plan.epoch, 1 + index))
            noise = torch.randn(whole, generator=self._noise, device=self.device)
            noise = noise[mine.start - start : mine.stop - start]
            images += (noise if kept is None else noise[kept]).mul_(self.augmentation.noise_std)
        return Batch(images, self._labels.index_select(0, where), self.ids.index_select(0, where))

    def _identity(self) -> dict[str, Any]:
        """What a saved position must agree on with the loader that continues from it."""
        return {
            "samples": self.samples,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "class_balanced": None if self.class_balanced is None else list(self.class_balanced),
            "drop_last": self.drop_last,
        }


def balanced_order(
    labels: Int[Tensor, "samples"], classes: int, each: int, batches: int, *, generator: torch.Generator
) -> Int[Tensor, "places"]:
    """Samples of that many batches, each of `classes` different classes drawn uniformly with `each` images a class.

    A class's images come in random order, and again from the start when all have come; labels below 0 never come.
    """
    shuffled = torch.randperm(len(labels), generator=generator)
    shuffled = shuffled[labels[shuffled] >= 0]
    # Sorted by class, in random order within: class c is the run that starts at starts[c].
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    counts = torch.bincount(labels[by_class])
    starts = counts.cumsum(0) - counts
    present = counts.nonzero().squeeze(1)
    keys = torch.rand(batches, len(present), generator=generator)
    chosen = keys.argsort(1)[:, :classes]
    # How often a class has come before this batch says how far into its run to read.
    taken = torch.zeros(batches, len(present), dtype=torch.int64).scatter_(1, chosen, 1)
    turn = (taken.cumsum(0) - taken).gather(1, chosen)
    names = present[chosen]
    offsets = turn.unsqueeze(2) * each + torch.arange(each)
    return by_class[(starts[names].unsqueeze(2) + offsets % counts[names].unsqueeze(2)).flatten()]


def mixed_seed(*words: int) -> int:
    """One seed from several numbers; neighbouring numbers give unrelated seeds, zeros at the end count as none."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
