"""Two domains made ready for each other: the same classes, sizes and channels; source and target read by name."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from hardsight import datasets
from hardsight.datasets.augment import pixel_statistics
from hardsight.datasets.folders import collect, images_below, subfolders
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.names import unknown_name


def target_labels(source: ArrayDataset, target: ArrayDataset, name: str = "target") -> Tensor:
    """The target's labels in the source's class numbers, by class name; -1 stays. Rejects what cannot be adapted.

    `name` is what an error calls the target.
    """
    _check_pair(source, target, name)
    there = torch.bincount(source.labels[source.labels >= 0], minlength=source.num_classes)
    if int((source.labels < 0).sum()):
        raise ValueError("source must be labelled throughout; it has samples without a label")
    if int((there > 0).sum()) < 2:
        raise ValueError(f"source must hold two classes or more; it holds {_named(source, there)}")
    known = torch.bincount(target.labels[target.labels >= 0], minlength=target.num_classes)
    if int((known > 0).sum()) == 1:
        raise ValueError(f"{name} must hold two classes or more; it holds {_named(target, known)}")
    number = {one: place for place, one in enumerate(source.class_names) if int(there[place])}
    missing = [one for place, one in enumerate(target.class_names) if int(known[place]) and one not in number]
    if missing:
        raise ValueError(
            f"{name} must hold classes of the source only, which no self-training can find otherwise; the source has "
            f"no {', '.join(map(repr, missing))}"
        )
    renumbered = torch.tensor([number.get(one, -1) for one in (*target.class_names, "")])
    # Label -1 reads the last entry, which is -1.
    return renumbered[target.labels]


def pixel_options(source: ArrayDataset, device: torch.device) -> dict[str, Any]:
    """What a loader must know to give out images as the source's statistics say; points are given out as they are."""
    if source.images.ndim != 4:
        return {"device": device}
    if source not in _STATISTICS:
        _STATISTICS[source] = pixel_statistics(source.images)
    mean, std = _STATISTICS[source]
    return {"device": device, "mean": mean, "std": std, "channels_last": device.type == "cuda"}


# Counting every pixel takes longer than a round on a small set: once for each set that is still in use.
_STATISTICS: WeakKeyDictionary[ArrayDataset, tuple[list[float], list[float]]] = WeakKeyDictionary()


def labels_to_measure(source: ArrayDataset, test: ArrayDataset) -> Tensor:
    """`target_labels` of samples that measure alone: every one must have a label."""
    labels = target_labels(source, test, "test")
    if int((labels < 0).sum()):
        raise ValueError("test must be labelled throughout; it has samples without a label")
    return labels


def fingerprint(data: ArrayDataset | None) -> str | None:
    """Samples, labels and classes in one short line: equal for equal data, whatever they are called."""
    if data is None:
        return None
    digest = hashlib.blake2b(digest_size=8)
    for column in (data.images, data.labels):
        digest.update(f"{column.dtype} {list(column.shape)}".encode())
        digest.update(column.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    digest.update("\0".join(data.class_names).encode())
    return f"{len(data)} samples, {digest.hexdigest()}"


def _check_pair(source: ArrayDataset, target: ArrayDataset, called: str) -> None:
    for name, data in (("source", source), (called, target)):
        if not len(data):
            raise ValueError(f"{name} must hold at least one sample; got none")
    if source.images.shape[1:] != target.images.shape[1:] or source.images.dtype != target.images.dtype:
        raise ValueError(
            f"{called} images must have the source's shape and type, {list(source.images.shape[1:])} "
            f"{source.images.dtype}; got {list(target.images.shape[1:])} {target.images.dtype}"
        )


def _named(data: ArrayDataset, counts: Tensor) -> str:
    names = [data.class_names[place] for place in counts.nonzero().squeeze(1).tolist()]
    return f"one, {names[0]!r}" if names else "none"


def read_domain(
    name: str, root: Path | str | None = None, *, size: int | None = None, class_names: tuple[str, ...] | None = None
) -> ArrayDataset:
    """A domain in memory: a data set's name, with `:split` or `:domain` behind it, or a folder of images.

    `usps`, `usps:test`, `office-caltech10:amazon`, `pacs:photo`; a folder holds one folder per class or, where
    `class_names` are given (the source's), images directly, without labels. `size`: height and width.
    """
    return in_memory(find_domain(name, root, class_names=class_names), size)


def find_domain(
    name: str, root: Path | str | None = None, *, class_names: tuple[str, ...] | None = None
) -> ArrayDataset | FileDataset:
    """What `read_domain` reads, its files not decoded yet."""
    # An empty name would be the folder that one happens to be in.
    if name and Path(name).is_dir():
        return _read_folder(Path(name), class_names)
    known, _, part = name.partition(":")
    try:
        splits = datasets.source(known).splits
    except ValueError:
        raise unknown_name("a domain that is no folder of images", name, datasets.names(), "data sets") from None
    if not part or part in splits:
        return datasets.load(known, part or None, root)
    every = datasets.load(known, None, root)
    if part not in every.domain_names:
        choices = ", ".join([*splits, *every.domain_names])
        raise ValueError(f"{known} must be followed by one of its splits or domains, {choices}; got {part!r}")
    return every.in_domain(part)


def _read_folder(folder: Path, class_names: tuple[str, ...] | None) -> FileDataset:
    if subfolders(folder):
        return datasets.read_image_folder(folder, name=folder.name)
    if class_names is None:
        raise ValueError(f"{folder} must hold one folder for each class; it holds none")
    paths = [path.removeprefix("./") for path in images_below(folder, ".")]
    if not paths:
        raise ValueError(f"{folder} must hold images, or one folder of them for each class; it holds none")
    return collect(folder, paths, [-1] * len(paths), class_names=class_names, name=folder.name, split="all")


def in_memory(data: ArrayDataset | FileDataset, size: int | None = None) -> ArrayDataset:
    """The images as one tensor, `size` pixels high and wide (left out: their own)."""
    if isinstance(data, FileDataset):
        return data.load(size)
    if size is None or data.images.ndim == 2 or data.images.shape[2:] == (size, size):
        return data
    shrunk = F.interpolate(data.images.float(), (size, size), mode="bilinear", antialias=True, align_corners=False)
    return dataclasses.replace(data, images=shrunk.round().clamp(0, 255).to(torch.uint8))


def same_channels(*domains: ArrayDataset) -> list[ArrayDataset]:
    """Grey images as three equal channels where another domain is in colour."""
    most = max(one.images.shape[1] for one in domains)
    return [one if one.images.shape[1] == most else _widened(one, most) for one in domains]


def _widened(data: ArrayDataset, channels: int) -> ArrayDataset:
    shape: Any = (-1, channels, -1, -1)
    return dataclasses.replace(data, images=data.images.expand(*shape).contiguous())
