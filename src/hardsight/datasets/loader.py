"""Two loaders of batches: of a set that fits on the device, and of image files that are decoded while the pass runs.

The files are decoded by threads, not processes: Pillow releases the interpreter's lock while it decodes and resizes,
and nothing is copied between processes.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Unpack

import torch
from jaxtyping import Integer, Shaped
from torch import Tensor

from hardsight.datasets import decoding
from hardsight.datasets.augment import check_shift
from hardsight.datasets.epochs import Batch, EpochLoader, EpochPlan, LoaderOptions
from hardsight.datasets.interface import Skipped, check_fit, reason_of
from hardsight.files import LARGEST_IMAGE, memory_left, read_bytes
from hardsight.files.inside import follow


class DeviceLoader(EpochLoader):
    """Batches of a set that is on the device as uint8 [N, C, H, W]: nothing waits, nothing is copied to the device.

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


class StreamingLoader(EpochLoader):
    """Batches of images that are read and decoded while the pass runs; ids and order as the plan has them.

    `paths` are image files, relative to `root` where one is given (no path may then lead outside it). Each becomes
    uint8 [3, H, W] of `size`, or what `decode(path)` returns in its place. A file that cannot be read is missing from
    its batch and is in `unreadable`, once; in later epochs it is left out without another try. Takes the options
    of `EpochLoader`. In memory: the batch in use and `ahead` more.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        labels: Integer[Tensor, "labels"],
        ids: Integer[Tensor, "ids"] | None = None,
        batch_size: int = 128,
        *,
        root: str | os.PathLike[str] | None = None,
        size: int | tuple[int, int] | None = None,
        fit: Literal["crop", "squash"] = "crop",
        decode: Callable[[str], Tensor] | None = None,
        device: torch.device | str = "cpu",
        workers: int | None = None,
        ahead: int = 2,
        **options: Unpack[LoaderOptions],
    ) -> None:
        if not len(paths):
            raise ValueError("paths must name at least one file; got none")
        for name, column in (("labels", labels), ("ids", ids)):
            if column is not None and len(column) != len(paths):
                raise ValueError(f"{name} must be one a path, {len(paths)}; got {len(column)}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1; got {workers}")
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1 batch; got {ahead}")
        check_fit(size, fit)
        super().__init__(labels, ids, batch_size, device=device, channels=3, **options)
        self.paths = [os.fspath(path) for path in paths]
        self.workers = workers or min(16, os.cpu_count() or 1)
        self.ahead = ahead
        self._root = None if root is None else Path(root)
        self._size, self._fit, self._decode = size, fit, decode
        self._shape = (3, *((size, size) if isinstance(size, int) else size or (1, 1)))
        # At their own size, those of a few batches wait together.
        room = memory_left() // 2 // (3 * (1 + ahead) * self.batch_size)
        self._most = sys.maxsize if size is not None else room
        self._unreadable: dict[int, Skipped] = {}
        self._ids_on_host = self.ids.tolist()

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """The files that could not be read so far, with path, reason and id, in the order of `paths`."""
        return tuple(self._unreadable[place] for place in sorted(self._unreadable))

    def _batches(self, plan: EpochPlan, first: int) -> Iterator[Batch]:
        order = plan.order.tolist()
        shares = [self._share(plan, index) for index in range(first, len(self))]
        places = (place for share in shares for place in order[share])
        # While a batch is in use, `ahead` more are being decoded.
        further = 1 + self.ahead * max((share.stop - share.start for share in shares), default=0)
        with contextlib.closing(decoding.in_order(self._read, places, self.workers, further)) as images:
            for index, share in enumerate(shares, first):
                yield self._gathered([next(images) for _ in order[share]], plan, index)

    def _gathered(self, read: list[Tensor | Skipped], plan: EpochPlan, index: int) -> Batch:
        images = [image for image in read if isinstance(image, Tensor)]
        for image in images:
            if image.shape != images[0].shape:
                raise ValueError(
                    f"size must be given because the images differ; got {list(images[0].shape)} and {list(image.shape)}"
                )
        pixels = torch.stack(images) if images else torch.empty(0, *self._shape, dtype=torch.uint8)
        if self.device.type == "cuda":
            pixels = pixels.pin_memory().to(self.device, non_blocking=True)
        kept = None
        if len(images) < len(read):
            kept = torch.tensor([n for n, image in enumerate(read) if isinstance(image, Tensor)], dtype=torch.int64)
            kept = kept.to(self.device)
        return self._finished(pixels, plan, index, kept)

    def _read(self, place: int) -> Tensor | Skipped:
        """In a worker: one image, or why there is none."""
        if place in self._unreadable:
            return self._unreadable[place]
        path = self.paths[place]
        try:
            if self._decode is not None:
                return _checked(self._decode(path))
            file = Path(path) if self._root is None else follow(self._root, path)
            return decoding.decode(read_bytes(file, LARGEST_IMAGE), self._size, self._fit, most=self._most)
        except (OSError, ValueError) as error:
            self._unreadable[place] = Skipped(path, reason_of(error), self._ids_on_host[place])
            return self._unreadable[place]


def _checked(image: Tensor) -> Tensor:
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3:
        raise TypeError(f"decode must return uint8 [3, H, W]; got {image.dtype} {list(image.shape)}")
    return image
