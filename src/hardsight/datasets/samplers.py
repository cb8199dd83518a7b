"""Which samples to train on, and in which order: standard PyTorch samplers over positions of a data set.

Every sampler is seeded and knows its epoch: call `set_epoch` as with `DistributedSampler`, and the order of epoch 7
is the same whether or not epochs 0 to 6 ran. `processes` and `rank` share an epoch out: all processes draw the same
order and take turns, so together they visit what one process would (the end is filled up from the start where the
count does not divide). Hardness is larger where a sample is harder; `hardness_for` takes it from a score table.
"""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Sampler

from hardsight.names import check_name
from hardsight.validation import check_classes, check_finite

Pacing = Literal["linear", "root"]


class EpochSampler(Sampler[int]):
    """What all of them share: the epoch, the seed, the share of one process. `order` is the whole epoch."""

    def __init__(self, *, seed: int = 0, processes: int = 1, rank: int = 0) -> None:
        if processes < 1 or not 0 <= rank < processes:
            raise ValueError(f"rank must lie in [0, processes); got rank {rank!r} of {processes!r}")
        self.seed, self.processes, self.rank = seed, processes, rank
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration draws."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative; got {epoch!r}")
        self.epoch = epoch

    def order(self, epoch: int) -> Int[Tensor, "drawn"]:
        """Positions of one epoch, for all processes together: those that it admits, shuffled."""
        admitted = self._admitted(epoch)
        return admitted[torch.randperm(len(admitted), generator=self._generator(epoch))]

    def _admitted(self, epoch: int) -> Tensor:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        return iter(self._own(self.order(self.epoch)).tolist())

    def __len__(self) -> int:
        return math.ceil(len(self._admitted(self.epoch)) / self.processes)

    def _own(self, order: Tensor) -> Tensor:
        each = math.ceil(len(order) / self.processes)
        filled = order.repeat(math.ceil(each * self.processes / len(order)))[: each * self.processes]
        return filled[self.rank :: self.processes]

    def _generator(self, epoch: int) -> torch.Generator:
        # One stream an epoch. The seed is spread by a large odd number, so that (seed 0, epoch 1) and (seed 1, epoch 0)
        # do not draw the same order.
        return torch.Generator().manual_seed((self.seed * 0x9E3779B97F4A7C15 + epoch) % 2**63)


class HardMiningSampler(EpochSampler):
    """The hardest `share` of the samples, shuffled each epoch; the `skip` hardest share is left out as suspect."""

    def __init__(
        self, hardness: Float[Tensor, "samples"], *, share: float = 0.5, skip: float = 0.0, seed: int = 0,
        processes: int = 1, rank: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed=seed, processes=processes, rank=rank)
        _check_rows("hardness", hardness)
        if not 0 < share <= 1 or not 0 <= skip < 1 or share + skip > 1 + 1e-12:
            raise ValueError(f"share and skip must be shares and at most 1 together; got {share}, {skip}")
        hardest_first = hardness.cpu().argsort(descending=True, stable=True)
        start = count_of(skip, len(hardness), math.floor)
        self.chosen = hardest_first[start : start + count_of(share, len(hardness), math.ceil)]

    def _admitted(self, epoch: int) -> Tensor:
        return self.chosen


class CurriculumSampler(EpochSampler):
    """Easy samples first: epoch e draws from the easiest share c(e), which grows from `start` to 1 in `epochs` epochs.

    Pacing is linear, or the square root of Platanios et al. 2019 ("competence"). With `labels` the easiest of each
    class are taken, so that an easy class does not crowd out the others. From epoch `epochs` on all samples are drawn.
    """

    def __init__(
        self, hardness: Float[Tensor, "samples"], *, epochs: int, start: float = 0.2, pacing: Pacing = "root",
        labels: Int[Tensor, "samples"] | None = None, seed: int = 0, processes: int = 1, rank: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed=seed, processes=processes, rank=rank)
        _check_rows("hardness", hardness)
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, the epoch from which all samples are drawn; got {epochs!r}")
        if not 0 < start <= 1:
            raise ValueError(f"start must lie in (0, 1], the share of the first epoch; got {start!r}")
        check_name("pacing", pacing, ("linear", "root"))
        self.epochs, self.start, self.pacing = epochs, start, pacing
        self.easiest_first = hardness.cpu().argsort(stable=True)
        if labels is not None:
            if labels.shape != hardness.shape:
                raise ValueError(
                    f"labels must be one for each of the {len(hardness)} samples; got {list(labels.shape)}"
                )
            check_classes("labels", labels)
            given = labels.cpu()[self.easiest_first]
            grouped = self.easiest_first[given.argsort(stable=True)]
            sizes = torch.unique_consecutive(labels.cpu()[grouped], return_counts=True)[1]
            place = torch.arange(len(grouped)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
            # The place as a share of the class: a prefix holds the same share of every class, large or small.
            share = (place.double() + 0.5) / torch.repeat_interleave(sizes, sizes)
            self.easiest_first = grouped[share.argsort(stable=True)]

    def share(self, epoch: int) -> float:
        """The share of the samples that epoch draws from, in [start, 1]."""
        progress = min(1.0, epoch / self.epochs)
        if self.pacing == "linear":
            return self.start + (1 - self.start) * progress
        return math.sqrt(self.start**2 + (1 - self.start**2) * progress)

    def _admitted(self, epoch: int) -> Tensor:
        return self.easiest_first[: count_of(self.share(epoch), len(self.easiest_first), math.ceil)]


class SelfPacedSampler(EpochSampler):
    """Samples whose hardness now is below a threshold that grows each epoch, easiest first (Kumar et al. 2010).

    Epoch e admits hardness < threshold + growth e, and always the easiest `minimum` samples. Call `update` with the
    hardness of the last epoch (a recorder has it); resuming needs that hardness again. With `shuffle` the admitted
    samples come in random order.
    """

    def __init__(
        self, hardness: Float[Tensor, "samples"], *, threshold: float, growth: float, minimum: int = 1,
        shuffle: bool = False, seed: int = 0, processes: int = 1, rank: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed=seed, processes=processes, rank=rank)
        if growth < 0:
            raise ValueError(f"growth must not be negative, what the threshold gains an epoch; got {growth!r}")
        if not 1 <= minimum <= len(hardness):
            raise ValueError(f"minimum must lie in [1, {len(hardness)}], a number of samples; got {minimum!r}")
        self.threshold, self.growth, self.minimum, self.shuffle = threshold, growth, minimum, shuffle
        self.samples = len(hardness)
        self.update(hardness)

    def update(self, hardness: Float[Tensor, "samples"]) -> None:
        """Take the hardness as it is now; all processes must be given the same."""
        _check_rows("hardness", hardness)
        if len(hardness) != self.samples:
            raise ValueError(f"hardness must be one number for each of {self.samples} samples; got {len(hardness)}")
        self.hardness = hardness.detach().cpu()

    def order(self, epoch: int) -> Int[Tensor, "drawn"]:
        return super().order(epoch) if self.shuffle else self._admitted(epoch)

    def _admitted(self, epoch: int) -> Tensor:
        easy = int((self.hardness < self.threshold + self.growth * epoch).sum())
        return self.hardness.argsort(stable=True)[: max(self.minimum, easy)]


class ImportanceSampler(EpochSampler):
    """Draws with replacement, each sample with probability (1 - uniform) importance_i / sum + uniform / N.

    `weights` multiplies the loss of a drawn sample: 1 / (N p_i). With it the mean gradient is what uniform drawing
    gives, in expectation. `uniform` bounds the weights by 1 / uniform; it must be positive where an importance is zero,
    or that sample would never be drawn and the mean would be wrong.
    """

    def __init__(
        self, importance: Float[Tensor, "samples"], *, draws: int | None = None, uniform: float = 0.1, seed: int = 0,
        processes: int = 1, rank: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed=seed, processes=processes, rank=rank)
        _check_rows("importance", importance)
        if bool((importance < 0).any()):
            raise ValueError(f"importance must not be negative, a share of the draws; got {float(importance.min()):g}")
        if not 0 <= uniform <= 1:
            raise ValueError(f"uniform must lie in [0, 1], the share of uniform drawing; got {uniform!r}")
        if draws is not None and draws < 1:
            raise ValueError(f"draws must be at least 1, the samples of an epoch; got {draws!r}")
        self.draws = len(importance) if draws is None else draws
        # Scaled first: a sum of huge importances overflows where the shares do not.
        scaled = importance.detach().cpu().double()
        scaled = scaled / scaled.max().clamp(min=torch.finfo(torch.float64).tiny)
        shares = scaled / scaled.sum() if scaled.sum() > 0 else torch.full_like(scaled, 1 / len(scaled))
        self.probabilities = (1 - uniform) * shares + uniform / len(scaled)
        if bool((self.probabilities == 0).any()):
            raise ValueError("uniform must be positive where an importance is zero or next to it: it is never drawn")

    @property
    def weights(self) -> Float[Tensor, "samples"]:
        """What the loss of each sample is multiplied by, so that the gradient is unbiased."""
        return 1 / (len(self.probabilities) * self.probabilities)

    def order(self, epoch: int) -> Int[Tensor, "drawn"]:
        """`draws` positions, drawn by inverting the cumulative probabilities: no limit on the number of samples."""
        cumulative = self.probabilities.cumsum(0)
        uniform = torch.rand(self.draws, generator=self._generator(epoch), dtype=torch.float64) * cumulative[-1]
        return torch.searchsorted(cumulative, uniform, right=True).clamp(max=len(cumulative) - 1)

    def __len__(self) -> int:
        return math.ceil(self.draws / self.processes)


class ClassBalancedSampler(EpochSampler):
    """Runs of `classes_per_batch` classes with `samples_per_class` samples each: use with that product as batch size.

    Gradient Rescaling trains so: 32 classes x 8 images, balanced by the given labels. Classes take turns in random
    order, all equally often up to one turn, and so do the samples of a class: a small class repeats its samples, each
    as often as the others up to one. An epoch has as many batches as the data would fill once. With several processes
    each takes whole batches in turn.
    """

    def __init__(
        self, labels: Int[Tensor, "samples"], *, classes_per_batch: int, samples_per_class: int, seed: int = 0,
        processes: int = 1, rank: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed=seed, processes=processes, rank=rank)
        _check_rows("labels", labels)
        check_classes("labels", labels)
        found, counts = labels.cpu().unique(return_counts=True)
        if not 1 <= classes_per_batch <= len(found):
            raise ValueError(f"classes_per_batch must lie in [1, {len(found)}]; got {classes_per_batch!r}")
        if samples_per_class < 1:
            raise ValueError(f"samples_per_class must be at least 1; got {samples_per_class!r}")
        self.classes_per_batch, self.samples_per_class = classes_per_batch, samples_per_class
        self.batch_size = classes_per_batch * samples_per_class
        self.batches = math.ceil(len(labels) / self.batch_size)
        self.members = labels.cpu().argsort(stable=True).split(counts.tolist())

    def order(self, epoch: int) -> Int[Tensor, "drawn"]:
        generator = self._generator(epoch)
        # Which classes each batch holds [batches, classes_per_batch]: rounds of all classes, none twice in one.
        waiting: list[int] = []
        batches = []
        for _ in range(self.batches):
            if len(waiting) < self.classes_per_batch:
                # A new round; classes still waiting from the last one go first and not twice into this batch.
                fresh = torch.randperm(len(self.members), generator=generator).tolist()
                left = set(waiting)
                waiting += [one for one in fresh if one not in left] + [one for one in fresh if one in left]
            batches.append(waiting[: self.classes_per_batch])
            waiting = waiting[self.classes_per_batch :]
        turns = torch.tensor(batches)
        needed = torch.bincount(turns.flatten(), minlength=len(self.members)) * self.samples_per_class
        supply = []
        for own, count in zip(self.members, needed.tolist(), strict=True):
            rounds = [own[torch.randperm(len(own), generator=generator)] for _ in range(math.ceil(count / len(own)))]
            supply.append(torch.cat([*rounds, own[:0]])[:count])
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


def count_of(share: float, samples: int, rounded: Callable[[float], int]) -> int:
    """A share of the samples as a number of them, past the rounding of the product: 0.07 of 100 is 7, not above it."""
    product = share * samples
    whole = round(product)
    return whole if math.isclose(product, whole, rel_tol=1e-12) else rounded(product)


def _check_rows(name: str, values: Tensor) -> None:
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{name} must be one number for each of at least 1 sample; got {list(values.shape)}")
    check_finite(name, values)
