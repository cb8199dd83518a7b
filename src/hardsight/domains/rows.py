"""Batches of points or features, rows that lie on the device: a `DeviceLoader` for what is no picture."""

from collections.abc import Iterator
from typing import Any, Unpack

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.datasets.epochs import Batch, EpochLoader, EpochPlan, LoaderOptions


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
