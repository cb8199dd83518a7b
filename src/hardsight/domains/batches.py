"""Batches of self-training: pictures or rows of one domain, and of source and target in fixed shares.

The order of an epoch is drawn from (seed, epoch) and has the same length in every round, however many samples are
selected: a captured step stays valid, and any epoch can be made without those before it.
"""

from collections.abc import Iterator
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from hardsight.datasets.augment import Draws, draw
from hardsight.datasets.epochs import Batch, EpochLoader, EpochPlan, LoaderOptions, mixed_seed
from hardsight.datasets.interface import ArrayDataset
from hardsight.datasets.loader import DeviceLoader


class RowBatches(EpochLoader):
    """Batches of rows float [N, D], handed out as they are: the options of `EpochLoader` about pixels do nothing."""

    def __init__(
        self,
        rows: Float[Tensor, "samples dim"],
        labels: Integer[Tensor, "samples"],
        ids: Integer[Tensor, "samples"] | None = None,
        batch_size: int = 128,
        *,
        device: torch.device | str | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(
            labels, ids, batch_size, device=rows.device if device is None else device, channels=1, **options
        )
        self.rows = rows.to(self.device)

    def batch(self, plan: EpochPlan, index: int) -> Any:
        """This process's part of batch `index` of the planned epoch: rows, labels, ids."""
        where = plan.order[self._share(plan, index)]
        return Batch(*(column.index_select(0, where) for column in (self.rows, self._labels, self.ids)))

    def _batches(self, plan: EpochPlan, first: int) -> Iterator[Any]:
        return (self.batch(plan, index) for index in range(first, len(self)))


def plain_batches(data: ArrayDataset, labels: Tensor, batch_size: int, **options: Any) -> EpochLoader:
    """Batches of one domain, of pictures or of rows; ids are places in it."""
    kind: Any = DeviceLoader if data.images.ndim == 4 else RowBatches
    loader: EpochLoader = kind(data.images, labels, None, batch_size, **options)
    return loader


class Mixing(EpochLoader):
    """Batches of source samples, then target samples, in fixed shares; what is labelled -1 never comes."""

    source_samples: int
    target_rows: int | None
    steps: int
    balance_classes: bool

    def __len__(self) -> int:
        return self.steps

    def assign(self, target_labels: Int64[Tensor, "targets"]) -> None:
        """Give the target these labels, in place: a captured step reads them where they are."""
        self._labels[self.source_samples :] = target_labels.to(self.device)

    def plan(self, epoch: int) -> EpochPlan:
        """Order and draws of an epoch; source rows lead each batch."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        labels = self._labels.cpu()
        chosen = (labels[self.source_samples :] >= 0).nonzero().squeeze(1) + self.source_samples
        source = torch.arange(self.source_samples)
        if self.target_rows is None:
            order = _round_and_round(torch.cat([source, chosen]), self.steps * self.batch_size, generator)
        else:
            parts = [_round_and_round(source, self.steps * (self.batch_size - self.target_rows), generator)]
            wanted = self.steps * self.target_rows
            if self.balance_classes:
                weights = (1 / torch.bincount(labels[chosen]).clamp(min=1))[labels[chosen]]
                parts.append(chosen[torch.multinomial(weights, wanted, replacement=True, generator=generator)])
            else:
                parts.append(_round_and_round(chosen, wanted, generator))
            order = torch.cat([part.reshape(self.steps, -1) for part in parts], 1).flatten()
        draws = draw(self.augmentation, len(order), generator)
        return EpochPlan(epoch, order.to(self.device), Draws(*(column.to(self.device) for column in draws)))


class MixedPictures(Mixing, DeviceLoader):
    """Mixed batches of uint8 images."""


class MixedRows(Mixing, RowBatches):
    """Mixed batches of points or features."""


def mixed_batches(
    source: ArrayDataset,
    target: ArrayDataset,
    batch_size: int,
    *,
    target_share: float | None,
    steps: int,
    balance_classes: bool = False,
    **options: Any,
) -> Mixing:
    """Batches of both domains, the source's rows first, the target without labels yet; an epoch is `steps` batches.

    `target_share` of each batch is drawn from the selected target samples, with `balance_classes` every label as often
    as any other; None draws from source and selected alike, as Eq. 2 of AVH sums over both.
    """
    images = torch.cat([source.images, target.images])
    labels = torch.cat([source.labels, torch.full((len(target),), -1)])
    kind: Any = MixedPictures if images.ndim == 4 else MixedRows
    mixing: Mixing = kind(images, labels, None, batch_size, **options)
    mixing.source_samples, mixing.steps, mixing.balance_classes = len(source), steps, balance_classes
    mixing.target_rows = None
    if target_share is not None:
        mixing.target_rows = min(batch_size - 1, max(1, round(target_share * batch_size)))
    return mixing


def _round_and_round(rows: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """That many of the rows, each as often as any other up to one: shuffled rounds, one after the other."""
    rounds = -(-wanted // len(rows))
    shuffled = torch.rand(rounds, len(rows), generator=generator).argsort(1)
    return rows[shuffled.flatten()[:wanted]]
