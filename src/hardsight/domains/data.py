"""Domains made ready for each other: read by name, the same classes, sizes and channels; batches; one left out.

The order of an epoch of both is drawn from (seed, epoch) and has the same length in every round, however many samples
are selected: a captured step stays valid, and any epoch can be made without those before it.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor
from torch.nn import functional as F

from hardsight import datasets
from hardsight.datasets.augment import Draws, draw, pixel_statistics
from hardsight.datasets.epochs import Batch, EpochLoader, EpochPlan, LoaderOptions, mixed_seed
from hardsight.datasets.folders import collect, images_below, subfolders
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.names import check_name, unknown_name


def target_labels(source: ArrayDataset, target: ArrayDataset, name: str = "target") -> Tensor:
    """The target's labels in the source's class numbers, by class name; -1 stays. Rejects what cannot be adapted.

    `name` is what an error calls the target; labels of the "test" samples must all be known, because they measure.
    """
    for called, data in (("source", source), (name, target)):
        if not len(data):
            raise ValueError(f"{called} must hold at least one sample; got none")
        if called != "target" and int((data.labels < 0).sum()):
            raise ValueError(f"{called} must be labelled throughout; it has samples without a label")
        held = data.labels[data.labels >= 0].unique().tolist()
        if len(held) == 1:
            raise ValueError(f"{called} must hold two classes or more; it holds one, {data.class_names[held[0]]!r}")
    shapes = [f"{list(data.images.shape[1:])} {data.images.dtype}" for data in (source, target)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name} images must have the source's shape and type, {shapes[0]}; got {shapes[1]}")
    number = {source.class_names[one]: one for one in source.labels.unique().tolist()}
    held_names = [target.class_names[one] for one in target.labels[target.labels >= 0].unique().tolist()]
    missing = [one for one in held_names if one not in number]
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
    mean, std = pixel_statistics(source.images)
    return {"device": device, "mean": mean, "std": std, "channels_last": device.type == "cuda"}


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
        folder = Path(name)
        if subfolders(folder):
            return datasets.read_image_folder(folder, name=folder.name)
        paths = [path.removeprefix("./") for path in images_below(folder, ".")] if class_names else []
        if not paths or class_names is None:
            flat = ", or images" if class_names else ""
            raise ValueError(f"{folder} must hold one folder for each class{flat}; it holds none")
        return collect(folder, paths, [-1] * len(paths), class_names=class_names, name=folder.name, split="all")
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
    most, found = max(one.images.shape[1] for one in domains), []
    for one in domains:
        wide = one.images.shape[1] == most
        found.append(one if wide else dataclasses.replace(one, images=one.images.repeat_interleave(most, dim=1)))
    return found


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

    def __len__(self) -> int:
        return self.steps

    def assign(self, target_labels: Int64[Tensor, "targets"]) -> None:
        """Give the target these labels, in place: a captured step reads them where they are."""
        self._labels[self.source_samples :] = target_labels.to(self.device)

    def plan(self, epoch: int) -> EpochPlan:
        """Order and draws of an epoch; source rows lead each batch."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        chosen = (self._labels.cpu()[self.source_samples :] >= 0).nonzero().squeeze(1) + self.source_samples
        source = torch.arange(self.source_samples)
        if self.target_rows is None:
            order = _round_and_round(torch.cat([source, chosen]), self.steps * self.batch_size, generator)
        else:
            parts = [_round_and_round(source, self.steps * (self.batch_size - self.target_rows), generator)]
            parts.append(_round_and_round(chosen, self.steps * self.target_rows, generator))
            order = torch.cat([part.reshape(self.steps, -1) for part in parts], 1).flatten()
        draws = draw(self.augmentation, len(order), generator)
        return EpochPlan(epoch, order.to(self.device), Draws(*(column.to(self.device) for column in draws)))


class _MixedPictures(Mixing, DeviceLoader):
    pass


class _MixedRows(Mixing, RowBatches):
    pass


def mixed_batches(
    source: ArrayDataset,
    target: ArrayDataset,
    batch_size: int,
    *,
    target_share: float | None,
    steps: int,
    **options: Any,
) -> Mixing:
    """Batches of both domains, the source's rows first, the target without labels yet; an epoch is `steps` batches.

    `target_share` of each batch is drawn from the selected target samples; None draws from source and selected alike,
    as Eq. 2 of AVH sums over both.
    """
    images = torch.cat([source.images, target.images])
    labels = torch.cat([source.labels, torch.full((len(target),), -1)])
    kind: Any = _MixedPictures if images.ndim == 4 else _MixedRows
    mixing: Mixing = kind(images, labels, None, batch_size, **options)
    mixing.source_samples, mixing.steps, mixing.target_rows = len(source), steps, None
    if target_share is not None:
        mixing.target_rows = min(batch_size - 1, max(1, round(target_share * batch_size)))
    return mixing


def _round_and_round(rows: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """That many of the rows, each as often as any other up to one: shuffled rounds, one after the other."""
    rounds = -(-wanted // len(rows))
    shuffled = torch.rand(rounds, len(rows), generator=generator).argsort(1)
    return rows[shuffled.flatten()[:wanted]]


@dataclass(frozen=True)
class Split:
    """Training and validation samples of the other domains, and all samples of the one left out."""

    held_out: str
    train: ArrayDataset
    validation: ArrayDataset
    test: ArrayDataset


def leave_one_domain_out(
    data: ArrayDataset, held_out: str, *, validation: float | ArrayDataset = 0.1, generator: torch.Generator
) -> Split:
    """All of `held_out` to test on, the rest to train on but for the share `validation` of each domain and class.

    `validation` may be a data set of its own, as PACS's lists have it: then its samples of the other domains validate,
    and its samples of the domain left out are tested on too.
    """
    if data.domains is None or len(data.domain_names) < 2:
        raise ValueError(f"data must have at least two domains; {data.name} has {max(1, len(data.domain_names))}")
    check_name("held_out", held_out, data.domain_names, "domains")
    if isinstance(validation, ArrayDataset):
        if validation.class_names != data.class_names or validation.domain_names != data.domain_names:
            raise ValueError("validation must have the classes and domains of data, by name and in their order")
        train, kept = _without(data, held_out), _without(validation, held_out)
        parts = [data.in_domain(held_out), validation.in_domain(held_out)]
        columns: dict[str, Any] = {
            name: torch.cat([getattr(one, name) for one in parts]) for name in ("images", "labels", "domains")
        }
        # Each set counted its own ids.
        test = dataclasses.replace(parts[0], **columns, ids=torch.arange(sum(map(len, parts))), columns={})
    else:
        if not 0 < validation < 1:
            raise ValueError(f"validation must lie in (0, 1), the share of training samples; got {validation!r}")
        rest = _labelled(_without(data, held_out), "training domains")
        places = _share_of_groups(rest, validation, generator)
        train, kept = rest.subset(places[1]), rest.subset(places[0])
        test = data.in_domain(held_out)
    _labelled(train, "training domains")
    for domain in train.domain_names:
        if 0 < len(train.in_domain(domain).labels.unique()) < 2:
            raise ValueError(f"every training domain must hold at least two classes; {domain} has 1")
    unknown = sorted(set(test.labels.unique().tolist()) - set(train.labels.unique().tolist()) - {-1})
    if unknown:
        names = ", ".join(train.class_names[label] for label in unknown)
        raise ValueError(f"the training domains must hold every class of {held_out}; they have no {names}")
    _labelled(kept, "validation samples")
    if not bool((test.labels >= 0).any()):
        raise ValueError(f"held_out must name a domain with labelled samples; {held_out} has none")
    return Split(held_out, train, kept, test)


def _labelled(data: ArrayDataset, called: str) -> ArrayDataset:
    if not len(data):
        raise ValueError(f"the {called} must hold at least one sample; they hold none")
    unknown = int((data.labels < 0).sum())
    if unknown:
        raise ValueError(f"the {called} must be labelled throughout; {unknown} of {len(data)} samples have no label")
    return data


def _without(data: ArrayDataset, held_out: str) -> ArrayDataset:
    assert data.domains is not None
    return data.subset((data.domains != data.domain_names.index(held_out)).nonzero().squeeze(1))


def _share_of_groups(data: ArrayDataset, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Places of the share of every domain and class, at least one of two or more, and the places left."""
    assert data.domains is not None
    order = torch.randperm(len(data), generator=generator)
    groups = (data.domains * data.num_classes + data.labels)[order]
    by_group = order[groups.argsort(stable=True)]
    counts = torch.bincount(groups)
    rank = torch.cat([torch.arange(count) for count in counts.tolist()])
    size = counts.repeat_interleave(counts)
    taken = (share * size).round().clamp_min(1).minimum(size - 1)
    chosen = rank < taken
    return by_group[chosen].sort().values, by_group[~chosen].sort().values
