"""The networks whose scores are compared with people's answers: public ones, and ones trained here.

People's answers (CIFAR-10H) are about the *test* images of CIFAR-10. Every run is one network and leaves one row per
image in `people.parquet`: how often people chose its class, and every score. The studies of AVH's section 4 share these
runs.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hardsight import datasets, models
from hardsight.datasets import registry
from hardsight.datasets.loader import DeviceLoader
from hardsight.training.record import Row as EpochRow
from hardsight_studies.avh.watching import ImageWatch, Votes, further_columns, model_columns, write_people
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.trainings import Hooks, Training, train, write_record
from hardsight_studies.outputs import outputs_of

# What the public networks expect.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Altered copies of each image.
COPIES = {"smoke": 4, "cpu": 1, "paper": 4}


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Score the public networks among these runs one by one; train the others together."""
    for run in runs:
        if is_public(run):
            options.clock.check()
            device, data = options.torch_device, images_of("cifar10h", "test")
            write_record(
                run, write_public(run.folder, public_network(run, device), data, device, COPIES[preset]), device
            )
    training = [run for run in runs if not is_public(run)]
    if training:
        train(training, options, watching(COPIES[preset]))


def watching(copies: int) -> Hooks:
    """Looks at the test images after every epoch of every run, without training on them."""
    watches: dict[Path, ImageWatch] = {}

    def begin(training: Training) -> None:
        # Now, not after the first epoch: people's answers may be missing.
        votes = human_votes(training.config.data.name)
        watches[training.folder] = ImageWatch(training.folder, training.test, votes, training.config.epochs, copies)

    def after_epoch(training: Training, epoch: int, row: EpochRow) -> None:
        row |= watches[training.folder].epoch(training.model, epoch)

    def measure(training: Training, model: nn.Module) -> Mapping[str, float]:
        watches[training.folder].write(model)
        return {}

    return Hooks(after_epoch, measure, begin)


def is_public(run: Run) -> bool:
    """Whether the run is a public network as it was published."""
    return str(run.settings["network"]).endswith("-public")


def public_network(run: Run, device: torch.device) -> models.Classifier:
    """The public network of the run: `resnet20-public`."""
    depth = int(str(run.settings["network"]).removeprefix("resnet").removesuffix("-public"))
    known = datasets.source("cifar10h")
    path = registry.find(known, registry.data_root(None, known)) / "resnets.safetensors"
    return models.load_cifar10_resnet(depth, path).to(device)


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
    folder.mkdir(parents=True, exist_ok=True)
    write_people(folder, columns, votes_on(data), seen.logits)
    return {"test_accuracy": float((columns["predicted"] == columns["label"]).double().mean())}


# ---------------------------------------------------------------------------------------------------------------------
# People.


@functools.cache
def voted_images(data: str) -> datasets.ArrayDataset:
    """The test images with people's votes for every class; for digits, those of a crowd that never was."""
    if data != "digits":
        return images_of("cifar10h", "test")
    digits = images_of("digits")
    return dataclasses.replace(digits, columns={"human_votes": neighbour_votes(digits)})


@functools.cache
def human_votes(data: str) -> Votes:
    """People's votes for the class of each test image."""
    return votes_on(voted_images(data))


def votes_on(data: datasets.ArrayDataset) -> Votes:
    """The votes for the class of each image."""
    votes = data.columns["human_votes"]
    return Votes(votes.gather(1, data.labels[:, None]).squeeze(1), votes.sum(1))


@functools.cache
def images_of(name: str, split: str | None = None) -> datasets.ArrayDataset:
    """An image data set."""
    data = datasets.load(name, split)
    assert isinstance(data, datasets.ArrayDataset)
    return data


def neighbour_votes(data: datasets.ArrayDataset, voters: int = 50) -> Tensor:
    """An image's nearest others, by pixels, vote by their own class: to test with, where nobody was asked."""
    from sklearn.neighbors import NearestNeighbors

    pixels = data.images.flatten(1).numpy().astype(np.float32)
    nearest = NearestNeighbors(n_neighbors=voters).fit(pixels).kneighbors(return_distance=False)
    return torch.nn.functional.one_hot(data.labels[torch.from_numpy(nearest)], len(data.class_names)).sum(1)
