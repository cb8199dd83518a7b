"""The data of a configuration: training and test set, noise on the training labels, and the loaders of both."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hardsight import datasets, noise, records
from hardsight.datasets.augment import Augmentation, pixel_statistics
from hardsight.datasets.loader import DeviceLoader
from hardsight.datasets.registry import plain_name
from hardsight.datasets.samplers import CurriculumSampler, EpochSampler, HardMiningSampler, ImportanceSampler
from hardsight.distributed import rank_and_count
from hardsight.hardness import SCORES
from hardsight.names import check_name
from hardsight.training.config import DataConfig, NoiseConfig, TrainingConfig
from hardsight.training.reading import about


class Sets(NamedTuple):
    """Training set with the labels it is trained on, the true labels where they are known, and the test set.

    `paths` is the file of each id of the training set, where its samples are files.
    """

    train: datasets.ArrayDataset
    labels: Tensor
    clean: Tensor | None
    test: datasets.ArrayDataset
    paths: dict[int, str] | None = None

    @property
    def id_count(self) -> int:
        """One more than the largest id: how many rows a table of samples by id needs."""
        return int(self.train.ids.max()) + 1

    def clean_by_id(self) -> Tensor | None:
        """The true label at each id; -1 where there is no such sample."""
        if self.clean is None:
            return None
        return torch.full((self.id_count,), -1).scatter_(0, self.train.ids, self.clean)


def load_sets(config: TrainingConfig) -> Sets:
    """The data as the configuration asks for it, with noise on the training labels."""
    data = config.data
    with about("data"):
        train, test, paths = _read(data, config.seed)
    for key, one in (("train", train), ("test", test)):
        unknown = int((one.labels < 0).sum())
        # A loss would take -1 for a class: public test sets often withhold their labels.
        if unknown:
            raise ValueError(
                f"data.{key} must name a split whose samples all have a label; "
                f"{unknown} of the {len(one)} in {one.split!r} have none"
            )
    if data.limit is not None:
        train, test = (one.subset(torch.arange(min(data.limit, len(one)))) for one in (train, test))
        if data.limit > 1 and len(train.labels.unique()) == 1:
            raise ValueError(f"data.limit must leave two classes or more; got {data.limit}, of a set sorted by class")
    if data.shrink > 1:
        train, test = _shrunk(train, data.shrink), _shrunk(test, data.shrink)
    ours, theirs = train.class_names, test.class_names
    # Another data set may have other names for the same classes.
    renamed = data.test_name is not None and len(ours) == len(theirs) and set(ours) != set(theirs)
    for number, (mine, other) in enumerate(itertools.zip_longest(ours, theirs)):
        if mine != other and not renamed:
            raise ValueError(
                f"data.test must have the {len(ours)} classes of data.train, in their order; class {number} is "
                f"{other!r} instead of {mine!r}"
            )
    labels = noisy_labels(train, config.noise, config.seed)
    clean = None if labels is None else train.labels
    return Sets(train, train.labels if labels is None else labels, clean, test, paths)


def _read(data: DataConfig, seed: int) -> tuple[datasets.ArrayDataset, datasets.ArrayDataset, dict[int, str] | None]:
    """Training and test set as they are, and the file of each id of the training set, where there are files."""
    # "all" holds the other splits of its set: none of them is a test of what was trained on it.
    whole = (data.train or next(iter(datasets.source(data.name).splits))) == "all"
    if whole and data.test is not None and data.test_name is None:
        raise ValueError(f"data.train must name a split apart from data.test, {data.test!r}; 'all' holds that too")
    read = datasets.load(data.name, data.train, data.root, **data.options)
    files = read if isinstance(read, datasets.FileDataset) else None
    paths = None if files is None else dict(zip(files.ids.tolist(), files.paths, strict=True))
    train = read.load() if isinstance(read, datasets.FileDataset) else read
    splits = list(datasets.source(data.test_name or data.name).splits)
    if whole and set(train.class_names) <= {*splits, "validation"}:
        there = ", ".join(train.class_names)
        raise ValueError(f"data.train must name one of the splits in {data.root or 'the data folder'}: {there}")
    if data.test_name is not None or data.test is not None or (data.train is None and not whole and len(splits) > 1):
        split = data.test or ("test" if "test" in splits else splits[-1])
        own = {} if data.test_name else data.options
        test = datasets.load(data.test_name or data.name, split, data.root, **own)
        return train, test.load() if isinstance(test, datasets.FileDataset) else test, paths
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    kept = round(data.held_out * len(train))
    if not 0 < kept < len(train):
        raise ValueError(f"held_out must leave samples on both sides, of {len(train)}; got {data.held_out!r}")
    return train.subset(order[kept:].sort().values), train.subset(order[:kept].sort().values), paths


def _shrunk(data: datasets.ArrayDataset, side: int) -> datasets.ArrayDataset:
    """The set with every square of `side` x `side` pixels averaged to one."""
    if side > min(data.images.shape[-2:]):
        raise ValueError(f"data.shrink must be at most the images' side, {min(data.images.shape[-2:])}; got {side}")
    smaller = nn.functional.avg_pool2d(data.images.float(), side).round().to(torch.uint8)
    return dataclasses.replace(data, images=smaller)


_LOOKALIKES = {"cifar10": noise.CIFAR10_LOOKALIKES, "mnist": noise.MNIST_LOOKALIKES}


def noisy_labels(data: datasets.ArrayDataset, config: NoiseConfig, seed: int) -> Tensor | None:
    """The training labels after noise; None without noise."""
    kind, classes, name = config.kind, data.num_classes, plain_name(data.name)
    generator = torch.Generator().manual_seed(seed if config.seed is None else config.seed)
    options: dict[str, Any] = {"generator": generator, "exact": config.exact}
    if kind == "none":
        return None
    if kind in ("symmetric", "pairwise"):
        flip = noise.flip_symmetric if kind == "symmetric" else noise.flip_pairwise
        return flip(data.labels, config.rate, classes, **options).labels
    if kind == "human":
        if config.column is None or config.column not in data.columns:
            there = ", ".join(data.columns) or "none"
            raise ValueError(f"noise.column must name a column of the data (there: {there}); got {config.column!r}")
        return noise.human_labels(data.labels, data.columns[config.column], classes, generator=generator).labels
    groups = kind == "within_groups"
    known = ["cifar100"] if groups else list(_LOOKALIKES)
    if name not in known or (groups and classes != len(noise.CIFAR100_COARSE)):
        raise ValueError(
            f"noise.kind {kind!r} is known for the fine classes of {' and '.join(known)}; got data.name "
            f"{data.name!r} with {classes} classes"
        )
    if groups:
        return noise.flip_within_groups(data.labels, config.rate, noise.CIFAR100_COARSE, **options).labels
    return noise.flip_by_mapping(data.labels, config.rate, _LOOKALIKES[name], classes, **options).labels


class Loaders(NamedTuple):
    """Training batches, the training set as it is, and the test set; and how an image becomes the network's input."""

    train: DeviceLoader
    samples: DeviceLoader
    test: DeviceLoader
    preprocessing: dict[str, list[int] | list[float]]


def make_loaders(config: TrainingConfig, sets: Sets, device: torch.device, *, channels_last: bool) -> Loaders:
    """The loaders; the ids are those of the data set."""
    data, (rank, world) = config.data, rank_and_count()
    with about("data"):
        mean, std = pixel_statistics(sets.train.images)
        common: dict[str, Any] = {"device": device, "mean": mean, "std": std, "channels_last": channels_last}
        train = DeviceLoader(
            sets.train.images,
            sets.labels,
            sets.train.ids,
            data.batch_size,
            seed=config.seed,
            augmentation=Augmentation(shift=data.shift, fill=data.fill, flip=data.flip, noise_std=data.noise_std),
            drop_last=data.drop_last,
            sampler=sampler_of(config, sets),
            class_balanced=None if data.class_balanced is None else (data.class_balanced[0], data.class_balanced[1]),
            rank=rank,
            world_size=world,
            **common,
        )
    plain = {**common, "batch_size": data.test_batch_size, "shuffle": False}
    # The same memory: the set is on the device once.
    samples = DeviceLoader(train.images, sets.labels, train.ids, seed=config.seed, **plain)
    test = DeviceLoader(sets.test.images, sets.test.labels, sets.test.ids, **plain)
    return Loaders(train, samples, test, {"size": list(train.images.shape[-2:]), "mean": mean, "std": std})


def sampler_of(config: TrainingConfig, sets: Sets) -> EpochSampler | None:
    """The order that `[sampler]` asks for, from a table of scores by id; None where it asks for none."""
    wanted = config.sampler
    if wanted is None:
        return None
    kinds: dict[str, Any] = {
        "curriculum": CurriculumSampler, "hard": HardMiningSampler, "importance": ImportanceSampler,
    }  # fmt: skip
    path, ids = Path(wanted.scores), sets.train.ids.tolist()
    with about("sampler"):
        check_name("score", wanted.score, SCORES, "scores")
        table = records.read_table(path / "samples.parquet" if path.is_dir() else path)
        for name in ("id", wanted.score):
            check_name("scores: column", name, table.column_names, "columns")
        by_id = dict(zip(table["id"].to_pylist(), table[wanted.score].to_pylist(), strict=True))
        lacking = [one for one in ids if by_id.get(one) is None]
        if lacking:
            raise ValueError(
                f"scores must have {wanted.score} of every training sample; {len(lacking)} lack it, first {lacking[0]}"
            )
        scores = np.array([by_id[one] for one in ids], dtype=np.float64)
        hardness = torch.from_numpy(SCORES[wanted.score].hardness(scores))
        if wanted.kind == "importance":
            hardness = (hardness.argsort().argsort() / max(1, len(hardness) - 1)).double()
        options: dict[str, Any] = {"seed": config.seed, **wanted.options}
        try:
            sampler: EpochSampler = kinds[wanted.kind](hardness, **options)
        except TypeError as problem:
            raise ValueError(f"options must be those of the sampler {wanted.kind!r}: {problem}") from None
        return sampler
