"""The networks whose scores are held against people's answers: public ones, and ones trained here.

People's answers (CIFAR-10H) are about the *test* images of CIFAR-10. Every cell is one network and leaves one row an
image in `people.parquet`: how often people chose its class, and every score. The studies of AVH's section 4 share these
cells: given the same `--output`, what one has computed the others only judge.
"""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardsight import datasets, models
from hardsight.datasets import registry
from hardsight.datasets.loader import DeviceLoader
from hardsight.training import Cell
from hardsight.training.record import Row, RunRecord, device_name
from hardsight_studies.avh.further_scores import further_columns
from hardsight_studies.avh.people_looks import PEOPLE, ImageWatch, Votes, model_columns, write_people
from hardsight_studies.configured import CellTraining, Hooks, Tree, train_cells
from hardsight_studies.framework import Options, Study
from hardsight_studies.keeping import Entries
from hardsight_studies.outputs import outputs_of

PUBLIC, TRAINED = "public", "trained"
# What the public networks expect.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TITLES = {
    "resnet20": "ResNet-20",
    "resnet32": "ResNet-32",
    "resnet44": "ResNet-44",
    "resnet56": "ResNet-56",
    "cnn13": "CNN-13",
    "alexnet": "AlexNet",
    "lenet": "LeNet",
    "vgg19_bn": "VGG-19",
    "densenet121": "DenseNet-121",
    "digits_cnn": "digits CNN",
}


@dataclass(frozen=True)
class Network:
    """A network to train: how often, how long, how fast. Learning rates are the paper's (section 3.2)."""

    name: str
    seeds: int
    epochs: int
    lr: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)
    capture: bool = True


@dataclass(frozen=True)
class People:
    """A preset: whose answers, which networks, how many resamples an interval has, and altered copies an image.

    `first` networks come before the public ones of these `depths`, the others after them.
    """

    data: Tree
    first: tuple[Network, ...]
    depths: tuple[int, ...] = ()
    others: tuple[Network, ...] = ()
    resamples: int = 400
    copies: int = 4
    at_once: int = 1


_SMALL = {"stem": "small"}
_CIFAR = {"name": "cifar10", "batch_size": 128, "test_batch_size": 2000, "shift": 4, "flip": True}
PRESETS = {
    "smoke": People(
        {"name": "digits", "held_out": 0.5, "limit": 400, "batch_size": 32}, (Network("digits_cnn", 2, 3, 0.05),),
        resamples=50, at_once=2,
    ),
    # A fifth of the training set at a quarter of the pixels: to see what scores of a training are worth, in minutes.
    "cpu": People(
        _CIFAR | {"limit": 10_000, "shrink": 2, "shift": 2, "test_batch_size": 500}, (),
        (20, 32, 44, 56), (Network("resnet20", 1, 8),), copies=1,
    ),
    # The seeds of a network train together. DenseNet-121, of 22 times the operations of a ResNet-20, comes last, and is
    # not compiled: ResNet-56, with fewer than half of its kernels a step, takes 90 seconds to.
    "paper": People(
        _CIFAR, (Network("resnet20", 5, 20), Network("cnn13", 5, 20)), (20, 32, 44, 56),
        (
            Network("resnet56", 5, 20), Network("vgg19_bn", 5, 20, 0.01, _SMALL),
            Network("alexnet", 5, 20, 0.01, _SMALL), Network("densenet121", 5, 10, options=_SMALL, capture=False),
        ),
        # Of 400, the ends of an interval are known to 0.002, and three digits of them are printed.
        resamples=2000, at_once=5,
    ),
}  # fmt: skip


def cells(preset: str) -> list[Cell]:
    """One cell a network and seed, what matters most first."""
    of = PRESETS[preset]
    return [*_trained(of.first), *public_cells(preset), *_trained(of.others)]


def public_cells(preset: str) -> list[Cell]:
    """The public networks."""
    return [Cell({"network": f"resnet{depth}", "weights": PUBLIC}) for depth in PRESETS[preset].depths]


def trained_cells(preset: str) -> list[Cell]:
    """The networks trained here."""
    of = PRESETS[preset]
    return [*_trained(of.first), *_trained(of.others)]


def _trained(networks: Sequence[Network]) -> list[Cell]:
    return [
        Cell({"network": one.name, "weights": TRAINED, "seed": seed}) for one in networks for seed in range(one.seeds)
    ]


def key_of(cell: Cell) -> str:
    """The network as results name it; its seeds go together."""
    network = str(cell.settings["network"])
    return f"{network}-{PUBLIC}" if cell.settings["weights"] == PUBLIC else network


def title_of(key: str) -> str:
    """`ResNet-20, public`."""
    name, _, public = key.partition("-")
    return TITLES.get(name, name) + (f", {public}" if public else "")


# ---------------------------------------------------------------------------------------------------------------------
# Computing: cells to records.


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Look at the public networks among these cells one by one; train the others together."""
    of = PRESETS[preset]
    training = []
    for cell, folder in mine:
        if cell.settings["weights"] == PUBLIC:
            options.clock.check()
            _look_at_public(cell, folder, options, of.copies)
        else:
            training.append((cell, folder))
    if training:
        watching = Watching(of)
        train_cells(training, options, lambda cell: configuration(of, cell), watching.hooks())


def configuration(of: People, cell: Cell) -> Tree:
    """A training of this network: SGD with momentum 0.9, cosine, crops and flips. The training set is not recorded."""
    name = cell.settings["network"]
    network = next(one for one in (*of.first, *of.others) if one.name == name)
    return {
        "data": of.data,
        "model": {"name": name, "options": network.options},
        "epochs": network.epochs,
        "seed": cell.settings["seed"],
        "optimizer": {"lr": network.lr},
        "schedule": {"kind": "cosine"},
        "record": {"dynamics": False, "scores": ["avh"]},
        "capture": network.capture,
    }


class Watching:
    """Looks at the test images after every epoch of every cell, without training on them."""

    def __init__(self, of: People) -> None:
        self.of = of
        self._watches: dict[Path, ImageWatch] = {}

    def hooks(self) -> Hooks:
        """What `train_cells` calls."""
        return Hooks(self._after_epoch, self._measure, self._begin)

    def _begin(self, training: CellTraining) -> None:
        """Now, not after the first epoch: people's answers may be missing."""
        self._watch(training)

    def _watch(self, training: CellTraining) -> ImageWatch:
        if training.folder not in self._watches:
            votes = human_votes(self.of.data["name"])
            watch = ImageWatch(training.folder, training.test, votes, training.config.epochs, self.of.copies)
            self._watches[training.folder] = watch
        return self._watches[training.folder]

    def _after_epoch(self, training: CellTraining, epoch: int, row: Row) -> None:
        row |= self._watch(training).epoch(training.model, epoch)

    def _measure(self, training: CellTraining, model: nn.Module) -> dict[str, float]:
        self._watch(training).write(model)
        return {}


def _look_at_public(cell: Cell, folder: Path, options: Options, copies: int) -> None:
    device = options.torch_device
    data = _images("cifar10h", "test")
    depth = int(str(cell.settings["network"]).removeprefix("resnet"))
    model = models.load_cifar10_resnet(depth, public_weights()).to(device)
    record = RunRecord(folder)
    record.begin(
        name=cell.name, seed=0, config=dict(cell.settings), device=device_name(device), class_names=data.class_names
    )
    results = write_public(folder, model, data, device, copies)
    record.finish(results)


def public_weights() -> Path:
    """The file of the public networks, beside the images."""
    known = datasets.source("cifar10h")
    return registry.find(known, registry.data_root(None, known)) / "resnets.safetensors"


def write_public(
    folder: Path,
    model: nn.Module,
    data: datasets.ArrayDataset,
    device: torch.device,
    copies: int = 1,
    batch_size: int = 250,
) -> dict[str, float]:
    """Score a public network on these images and write what people and it say of each; returns its accuracy."""
    batches = DeviceLoader(
        data.images, data.labels, data.ids, batch_size, shuffle=False, device=device, mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    )  # fmt: skip
    seen = outputs_of(model, batches)
    columns = model_columns(seen) | further_columns(model, batches, seen, copies)
    write_people(folder, columns, votes_on(data), seen.logits)
    return {"test_accuracy": float((columns["predicted"] == columns["label"]).double().mean())}


# ---------------------------------------------------------------------------------------------------------------------
# People.


@functools.cache
def voted_images(data: str) -> datasets.ArrayDataset:
    """The test images with people's votes for every class; for digits, those of a crowd that never was."""
    if data != "digits":
        return _images("cifar10h", "test")
    digits = _images("digits")
    return dataclasses.replace(digits, columns={"human_votes": neighbour_votes(digits)})


@functools.cache
def human_votes(data: str) -> Votes:
    """People's votes for the class of each test image."""
    return votes_on(voted_images(data))


def human_frequency(data: str) -> Tensor:
    """Human selection frequency of the test images of this data set, float64 by id."""
    return human_votes(data).frequency


def votes_on(data: datasets.ArrayDataset) -> Votes:
    """The votes for the class of each image."""
    votes = data.columns["human_votes"]
    return Votes(votes.gather(1, data.labels[:, None]).squeeze(1), votes.sum(1))


def _images(name: str, split: str | None = None) -> datasets.ArrayDataset:
    data = datasets.load(name, split)
    assert isinstance(data, datasets.ArrayDataset)
    return data


def neighbour_votes(data: datasets.ArrayDataset, voters: int = 50) -> Tensor:
    """An image's nearest others, by pixels, vote by their own class: to test with, where nobody was asked."""
    from sklearn.neighbors import NearestNeighbors

    pixels = data.images.flatten(1).numpy().astype(np.float32)
    nearest = NearestNeighbors(n_neighbors=voters).fit(pixels).kneighbors(return_distance=False)
    return torch.nn.functional.one_hot(data.labels[torch.from_numpy(nearest)], len(data.class_names)).sum(1)


# ---------------------------------------------------------------------------------------------------------------------
# The studies of these cells.


def worth(cell: Cell, file: str) -> int | None:
    """The images' table and the curves; what the training says of its own images stays."""
    return {PEOPLE: 0, "epochs.parquet": 0}.get(file)


def study(**parts: Any) -> Study:
    """A study of these cells, or of some of them; `parts` are the rest of `Study`."""
    shared: dict[str, Any] = {
        "cells": cells,
        "compute": compute,
        "at_once": {name: of.at_once for name, of in PRESETS.items()},
        "worth": worth,
        "records": "avh-people",
        "entries": Entries(("networks",), key_of),
    }
    return Study(**shared | parts)
