"""A loader for sets that fit on the device: the whole lies there once, as bytes; a batch is a few tensor operations."""

from collections.abc import Iterator
from typing import Unpack

import torch
from jaxtyping import Integer, Shaped
from torch import Tensor

from hardsight.datasets.augment import check_shift
from hardsight.datasets.epochs import Batch, EpochLoader, EpochPlan, LoaderOptions


class DeviceLoader(EpochLoader):
    """Batches of a set that lies on the device as uint8 [N, C, H, W]: nothing waits, nothing is copied to the device.

    Takes the options of `EpochLoader`; the set is held once, and not copied where it is on the device already.
    """

    def __init__(
        self,
        images: Shaped[Tensor, "samples channels height width"],
        labels: Integer[Tensor, "labels"],
        ids: Integer[Tensor, "ids"] | None = None,
        batch_size: int = 128,
        *,
        device: torch.device | str | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        _check_set(images, labels, ids)
        super().__init__(
            labels,
            ids,
            batch_size,
            device=images.device if device is None else device,
            channels=images.shape[1],
            **options,
        )
        check_shift(self.augmentation, *images.shape[2:])
        self.images = images.to(self.device).contiguous()

    def batch(self, plan: EpochPlan, index: int) -> Batch:
        """This process's part of batch `index` of the planned epoch."""
        return self._finished(self.images.index_select(0, plan.order[self._share(plan, index)]), plan, index)

    def _batches(self, plan: EpochPlan, first: int) -> Iterator[Batch]:
        return (self.batch(plan, index) for index in range(first, len(self)))


def _check_set(images: Tensor, labels: Tensor, ids: Tensor | None) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise TypeError(f"images must be uint8 [N, C, H, W]; got {images.dtype} {list(images.shape)}")
    if not len(images):
        raise ValueError("images must hold at least one image; got none")
    for name, column in (("labels", labels), ("ids", ids)):
        if column is not None and (column.ndim != 1 or len(column) != len(images)):
            raise ValueError(f"{name} must be one an image, {len(images)}; got {list(column.shape)}")
