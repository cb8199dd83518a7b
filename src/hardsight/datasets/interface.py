"""What every reader returns: images, labels, ids that survive shuffling and subsetting, class names, domains.

`ArrayDataset` holds the images in memory as one uint8 tensor; `FileDataset` holds paths and decodes on demand.
Both are map-style data sets for `torch.utils.data.DataLoader`: item i is (image, label, id).
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hardsight.datasets.formats import Fit, Size, decode, in_order
from hardsight.files import LARGEST_IMAGE, check_unpacked, read_bytes
from hardsight.files.inside import follow
from hardsight.files.plain import ALWAYS
from hardsight.names import check_name, unknown_name

# Images that are decoded ahead while loading, and the most pixels that one of them may have: 16 MiB each.
_AHEAD, _AHEAD_PIXELS = 64, (1 << 24) // 3

# typing.Self says the same, but the run-time check of annotations in the tests does not know it.
_Kind = TypeVar("_Kind", bound="_Labelled")


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A sample that the files name but that cannot be used, and why."""

    path: str
    reason: str
    id: int

    def __str__(self) -> str:
        # A list may name a path of any length.
        path = self.path if len(self.path) <= 200 else f"{self.path[:200]}..."
        return f"{path}: {self.reason}"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Labelled(Dataset[tuple[Tensor, int, int]]):
    """What both kinds share. One row a sample in `labels`, `ids`, `domains` and every column."""

    name: str
    split: str
    labels: Tensor
    """int64 [N], indices into `class_names`; -1 where the public files give no label."""
    class_names: tuple[str, ...]
    ids: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """int64 [N]: position in the split's official order. Left out: 0 to N - 1."""
    domains: Tensor | None = None
    """int64 [N], indices into `domain_names`; None where there is one domain only."""
    domain_names: tuple[str, ...] = ()
    columns: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """Further rows a sample: coarse labels, human votes, cameras, ..."""
    skipped: tuple[Skipped, ...] = ()
    """Samples left out, with the reason; their ids are missing from `ids`."""

    def _check(self, count: int) -> None:
        if len(self.ids) == 0 and count > 0:
            object.__setattr__(self, "ids", torch.arange(count))
        object.__setattr__(self, "columns", dict(self.columns))
        rows = {"labels": self.labels, "ids": self.ids}
        if self.domains is not None:
            rows["domains"] = self.domains
        for key, column in rows.items():
            if column.dtype != torch.int64 or column.ndim != 1:
                raise ValueError(f"{key} must be int64 [N]; got {column.dtype} {list(column.shape)}")
        for key, column in {**rows, **self.columns}.items():
            if len(column) != count:
                raise ValueError(f"{key} must have one row for each of the {count} samples; got {len(column)} rows")
        _within("labels", self.labels, len(self.class_names), lowest=-1)
        if self.domains is not None:
            _within("domains", self.domains, len(self.domain_names), lowest=0)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        # In one line: a data set may have a million paths.
        return f"{type(self).__name__}({self.name!r}, {self.split!r}, samples={len(self)}, classes={self.num_classes})"

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def class_counts(self) -> Tensor:
        """Number of samples of each class, int64 [C]; samples without a label are not counted."""
        return torch.bincount(self.labels[self.labels >= 0], minlength=self.num_classes)

    def with_labels(self: _Kind, labels: Tensor) -> _Kind:
        """The same samples under other labels: noisy ones, say. The data set itself is not changed."""
        return dataclasses.replace(self, labels=labels)

    def subset(self: _Kind, indices: Tensor | Sequence[int]) -> _Kind:
        """The samples at `indices`, in that order; ids, domains and columns go with them."""
        chosen = torch.as_tensor(indices)
        if chosen.ndim != 1 or (chosen.numel() and (chosen.dtype == torch.bool or chosen.is_floating_point())):
            got = f"{chosen.dtype} {list(chosen.shape)}"
            raise ValueError(f"indices must be a list of integers, for a mask mask.nonzero().squeeze(1); got {got}")
        chosen = chosen.to(torch.int64)
        _within("indices", chosen, len(self), lowest=0)
        return dataclasses.replace(self, **self._rows(chosen))

    def in_domain(self: _Kind, domain: str) -> _Kind:
        """The samples of one domain."""
        if self.domains is None or domain not in self.domain_names:
            raise unknown_name("domain", domain, self.domain_names, "domains")
        return self.subset((self.domains == self.domain_names.index(domain)).nonzero().squeeze(1))

    def _rows(self, chosen: Tensor) -> dict[str, Any]:
        return {
            "labels": self.labels[chosen],
            "ids": self.ids[chosen],
            "domains": None if self.domains is None else self.domains[chosen],
            "columns": {key: column[chosen] for key, column in self.columns.items()},
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ArrayDataset(_Labelled):
    """A data set in memory: `images` is uint8 [N, C, H, W] (the toy sets: float32 points [N, D])."""

    images: Tensor

    def __post_init__(self) -> None:
        pictures = self.images.dtype == torch.uint8 and self.images.ndim == 4
        points = self.images.dtype == torch.float32 and self.images.ndim == 2
        if not pictures and not points:
            got = f"{self.images.dtype} {list(self.images.shape)}"
            raise ValueError(f"images must be uint8 [N, C, H, W] or, for points, float32 [N, D]; got {got}")
        self._check(len(self.images))

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        return self.images[index], int(self.labels[index]), int(self.ids[index])

    def _rows(self, chosen: Tensor) -> dict[str, Any]:
        return super()._rows(chosen) | {"images": self.images[chosen]}


def from_arrays(
    name: str, split: str, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str], **columns: np.ndarray
) -> ArrayDataset:
    """A data set of images uint8 [N, C, H, W] and of whole numbers, as a reader finds them."""
    return ArrayDataset(
        images=torch.from_numpy(np.ascontiguousarray(images)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        class_names=tuple(class_names),
        columns={key: torch.from_numpy(column.astype(np.int64)) for key, column in columns.items()},
        name=name,
        split=split,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FileDataset(_Labelled):
    """A data set on disk: `paths` are relative to `root` and decoded (RGB, upright) when asked for."""

    root: Path
    paths: tuple[str, ...]
    size: Size = None
    """Height and width after decoding (one number: square); None keeps each image's own."""
    fit: Fit = "crop"
    """How an image comes to `size`: "crop" keeps its proportions and cuts the middle, "squash" does not."""

    def __post_init__(self) -> None:
        if self.size is not None and min((self.size,) if isinstance(self.size, int) else self.size) < 1:
            raise ValueError(f"size must be at least 1 pixel; got {self.size!r}")
        check_name("fit", self.fit, ("crop", "squash"))
        self._check(len(self.paths))

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        return self.decode(index), int(self.labels[index]), int(self.ids[index])

    def read_bytes(self, index: int) -> bytes:
        """The encoded image, as it is on disk. A link that leads outside the root is rejected."""
        return read_bytes(follow(self.root, self.paths[index]), LARGEST_IMAGE)

    def decode(self, index: int) -> Tensor:
        """Image `index` as uint8 [3, H, W]; ValueError in one sentence where it cannot be had."""
        image = self.decode_or_skip(index)
        if not isinstance(image, Tensor):
            raise ValueError(f"{self.paths[index]} is unreadable: {image and image.reason}")
        return image

    def resized(self, size: Size, fit: Fit | None = None) -> "FileDataset":
        """The same files, decoded to another size; they come to it as before unless `fit` is given."""
        return dataclasses.replace(self, size=size, fit=fit or self.fit)

    def load(self, size: Size = None, *, fit: Fit | None = None, workers: int | None = None) -> ArrayDataset:
        """Everything decoded into memory. What does not decode is left out and listed in `skipped`."""
        source = self.resized(self.size if size is None else size, fit)
        images: Tensor | None = None
        kept: list[int] = []
        skipped = list(self.skipped)
        for index, image in source._decoded(workers):
            if isinstance(image, Skipped):
                skipped.append(image)
                continue
            if images is None:
                # What memory does not hold is rejected, and what no honest files become at their own size.
                wanted = len(source) * image.nbytes
                packed = source._packed() if wanted > ALWAYS and source.size is None else None
                check_unpacked(f"{self.name} ({self.split})", wanted, packed, held=wanted)
                images = torch.empty(len(source), *image.shape, dtype=torch.uint8)
            if image.shape != images.shape[1:]:
                got = f"{self.paths[index]} is {list(image.shape)}, the first was {list(images.shape[1:])}"
                raise ValueError(f"size must be given because the images differ: {got}")
            images[len(kept)] = image
            kept.append(index)
        if images is None:
            raise ValueError(f"{self.name} ({self.split}) under {self.root} holds no image that can be read")
        return ArrayDataset(
            images=images[: len(kept)], name=self.name, split=self.split, class_names=self.class_names,
            domain_names=self.domain_names, skipped=tuple(skipped), **_Labelled._rows(self, torch.tensor(kept)),
        )  # fmt: skip

    def unreadable(self, *, workers: int | None = None) -> tuple[Skipped, ...]:
        """The files that do not decode, found by decoding every one."""
        return tuple(image for _, image in self._decoded(workers) if isinstance(image, Skipped))

    def _decoded(self, workers: int | None) -> Iterator[tuple[int, Tensor | Skipped]]:
        """Every image in order, decoded by several threads: Pillow releases the interpreter's lock while it decodes."""
        # What keeps its own size may be large: decoded when its turn comes, and not ahead of it.
        read = functools.partial(self.decode_or_skip, most=_AHEAD_PIXELS if self.size is None else sys.maxsize)
        images = in_order(read, range(len(self)), workers or min(8, os.cpu_count() or 1), _AHEAD)
        for index, image in enumerate(images):
            image = self.decode_or_skip(index) if image is None else image
            if image is not None:
                yield index, image
            del image

    def decode_or_skip(self, index: int, most: int = sys.maxsize) -> Tensor | Skipped | None:
        """Image `index`, or why it cannot be had; None for one of more than `most` pixels."""
        try:
            return decode(self.read_bytes(index), self.size, self.fit, most=most)
        except (OSError, ValueError) as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
            if isinstance(error, OSError) and error.strerror and reason != "no such file":
                reason = error.strerror.lower()
            return Skipped(self.paths[index], reason, int(self.ids[index]))

    def _packed(self) -> int:
        """The bytes of all files."""
        return sum((self.root / path).stat().st_size for path in self.paths if (self.root / path).is_file())

    def _rows(self, chosen: Tensor) -> dict[str, Any]:
        return super()._rows(chosen) | {"paths": tuple(self.paths[i] for i in chosen.tolist())}


def _within(name: str, values: Tensor, count: int, *, lowest: int) -> None:
    if len(values) and (int(values.min()) < lowest or int(values.max()) >= count):
        raise ValueError(f"{name} must lie in [{lowest}, {count - 1}]; got {int(values.min())} to {int(values.max())}")
