"""Two loaders of batches: of a set that fits on the device, and of image files that are decoded while the pass runs.

The files are decoded by threads, not processes: Pillow releases the interpreter's lock while it decodes and resizes,
and nothing is copied between processes.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Unpack

import torch
from jaxtyping import Integer, Shaped
from torch import Tensor

from hardsight.datasets.augment import check_shift
from hardsight.datasets.epochs import Batch, EpochLoader, EpochPlan, LoaderOptions
from hardsight.datasets.formats import in_order
from hardsight.datasets.interface import FileDataset, Skipped
from hardsight.files import memory_left


class DeviceLoader(EpochLoader):
    """Batches of a set that is on the device as uint8 [N, C, H, W]: nothing waits, nothing is copied to the device.

    Takes the options of `EpochLoader`; the set is held once, and not copied where it is on the device already.
    """

    def __init__(
        self, images: Shaped[Tensor, "samples channels height width"], labels: Integer[Tensor, "labels"],
        ids: Integer[Tensor, "ids"] | None = None, batch_size: int = 128, *, device: torch.device | str | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:  # fmt: skip
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise TypeError(f"images must be uint8 [N, C, H, W]; got {images.dtype} {list(images.shape)}")
        if not len(images):
            raise ValueError("images must hold at least one image; got none")
        for name, column in (("labels", labels), ("ids", ids)):
            if column is not None and (column.ndim != 1 or len(column) != len(images)):
                raise ValueError(f"{name} must be one an image, {len(images)}; got {list(column.shape)}")
        device = images.device if device is None else device
        super().__init__(labels, ids, batch_size, device=device, channels=images.shape[1], **options)
        check_shift(self.augmentation, *images.shape[2:])
        self.images = images.to(self.device).contiguous()

    def batch(self, plan: EpochPlan, index: int) -> Batch:
        """This process's part of batch `index` of the planned epoch."""
        return self._finished(self.images.index_select(0, plan.order[self._share(plan, index)]), plan, index)

    def _batches(self, plan: EpochPlan, first: int) -> Iterator[Batch]:
        return (self.batch(plan, index) for index in range(first, len(self)))


class StreamingLoader(EpochLoader):
    """Batches of a set on disk, read and decoded while the pass runs; ids and order as the plan has them.

    A file that cannot be read is missing from its batch and is in `unreadable`, once; in later epochs it is left out
    without another try. Takes the options of `EpochLoader`. In memory: the batch in use and `ahead` more.
    """

    def __init__(
        self, files: FileDataset, batch_size: int = 128, *, device: torch.device | str = "cpu",
        workers: int | None = None, ahead: int = 2, **options: Unpack[LoaderOptions],
    ) -> None:  # fmt: skip
        if not len(files):
            raise ValueError("files must hold at least one image; got none")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1; got {workers}")
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1 batch; got {ahead}")
        super().__init__(files.labels, files.ids, batch_size, device=device, channels=3, **options)
        self.files, self.ahead = files, ahead
        self.workers = workers or min(16, os.cpu_count() or 1)
        # At their own size, those of a few batches wait together.
        room = memory_left() // 2 // (3 * (1 + ahead) * self.batch_size)
        self._most = sys.maxsize if files.size is not None else room
        self._unreadable: dict[int, Skipped] = {}

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """The files that could not be read so far, with path, reason and id, in the order of the set."""
        return tuple(self._unreadable[place] for place in sorted(self._unreadable))

    def _batches(self, plan: EpochPlan, first: int) -> Iterator[Batch]:
        order = plan.order.tolist()
        shares = [self._share(plan, index) for index in range(first, len(self))]
        places = (place for share in shares for place in order[share])
        # While a batch is in use, `ahead` more are being decoded.
        further = 1 + self.ahead * max((share.stop - share.start for share in shares), default=0)
        with contextlib.closing(in_order(self._read, places, self.workers, further)) as images:
            for index, share in enumerate(shares, first):
                yield self._gathered([next(images) for _ in order[share]], plan, index)

    def _gathered(self, read: list[Tensor | Skipped], plan: EpochPlan, index: int) -> Batch:
        images = [image for image in read if isinstance(image, Tensor)]
        for image in images:
            if image.shape != images[0].shape:
                got = f"{list(images[0].shape)} and {list(image.shape)}"
                raise ValueError(f"size must be given because the images differ; got {got}")
        size = self.files.size or (1, 1)
        empty = (0, 3, *((size, size) if isinstance(size, int) else size))
        pixels = torch.stack(images) if images else torch.empty(empty, dtype=torch.uint8)
        if self.device.type == "cuda":
            pixels = pixels.pin_memory().to(self.device, non_blocking=True)
        kept = torch.tensor([isinstance(image, Tensor) for image in read], dtype=torch.bool).to(self.device)
        return self._finished(pixels, plan, index, None if len(images) == len(read) else kept)

    def _read(self, place: int) -> Tensor | Skipped:
        """In a worker: one image, or why there is none."""
        if place not in self._unreadable:
            image = self.files.decode_or_skip(place, self._most)
            if isinstance(image, Tensor):
                return image
            large = Skipped(self.files.paths[place], "it is too large for a batch", int(self.files.ids[place]))
            self._unreadable[place] = image or large
        return self._unreadable[place]
