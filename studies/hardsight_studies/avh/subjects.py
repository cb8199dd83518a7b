"""Studies that look at a trained network and some test images: public networks as they are, others trained first.

Each cell is one network. What a study measures of it is a small JSON file in the cell's record; judging gathers them.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Int, UInt8
from torch import Tensor, nn

from hardsight import datasets, models, records
from hardsight.datasets.augment import PixelScale, pixel_scale
from hardsight.models import Classifier
from hardsight.training import Cell
from hardsight.training.record import RunRecord, device_name
from hardsight_studies.avh.people import IMAGENET_MEAN, IMAGENET_STD, PUBLIC, TRAINED, public_weights, title_of
from hardsight_studies.configured import CellTraining, Hooks, Tree, train_cells
from hardsight_studies.framework import Options, Study, finished_cells
from hardsight_studies.keeping import Entries
from hardsight_studies.wording import listed, plural, training_images

FOUND = "found.json"


@dataclass(frozen=True)
class Subject:
    """A trained network and the test images to look at, as bytes; `scale` normalises them as in its training."""

    model: Classifier
    images: UInt8[Tensor, "samples channels height width"]
    labels: Int[Tensor, "samples"]
    scale: PixelScale
    class_names: tuple[str, ...]
    ids: Int[Tensor, "samples"]


@dataclass(frozen=True)
class Subjects:
    """A preset: public ResNets by depth, networks to train by name, and how many test images are looked at."""

    images: int
    depths: tuple[int, ...] = ()
    trainings: Mapping[str, Tree] = field(default_factory=dict)


Measure = Callable[[Subject], Mapping[str, Any]]


def digits(images: int, *, limit: int = 300, epochs: int = 3) -> Subjects:
    """The smallest preset: a network of scikit-learn's digits, trained in seconds, and so many of its test images."""
    training: Tree = {
        "data": {"name": "digits", "held_out": 0.5, "limit": limit, "batch_size": 32},
        "model": {"name": "digits_cnn"},
        "optimizer": {"lr": 0.05},
        "epochs": epochs,
    }
    return Subjects(images, trainings={"digits_cnn": training})


def study_of(presets: Mapping[str, Subjects], measure: Measure, **parts: Any) -> Study:
    """A study whose cells are these networks, and whose results are what `measure` says of each."""

    def cells(preset: str) -> list[Cell]:
        of = presets[preset]
        public = [Cell({"network": f"resnet{depth}", "weights": PUBLIC}) for depth in of.depths]
        return public + [Cell({"network": name, "weights": TRAINED, "seed": 0}) for name in of.trainings]

    def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
        of = presets[preset]
        for cell, folder in mine:
            options.clock.check()
            if cell.settings["weights"] == PUBLIC:
                _measure_public(of, cell, folder, options, measure)
            else:
                _train(of, cell, folder, options, measure)

    def judge(preset: str, folder: Path) -> dict[str, Any]:
        done = finished_cells(folder, cells(preset))
        found = {key_of(cell): json.loads((folder / cell.name / FOUND).read_text("utf-8")) for cell in done}
        return {"settings": dataclasses.asdict(presets[preset]), "networks": found}

    entries = Entries(("networks",), key_of)
    return Study(cells=cells, compute=compute, judge=judge, worth=worth, entries=entries, **parts)


def trained_here(results: Mapping[str, Any]) -> str:
    """On how many images of which set, and how long, the networks were trained that are not public; empty of none."""
    texts = [
        f"{title_of(name)} on {training_images(tree['data'].get('limit'))} of `{tree['data']['name']}` for "
        f"{plural(tree['epochs'], 'epoch')}"
        for name, tree in results["settings"]["trainings"].items()
        if name in results["networks"]
    ]
    return f" Trained here: {listed(texts)}." if texts else ""


def key_of(cell: Cell) -> str:
    """The network as results name it: `resnet20-public`, `lenet`."""
    name = str(cell.settings["network"])
    return f"{name}-{PUBLIC}" if cell.settings["weights"] == PUBLIC else name


def worth(cell: Cell, file: str) -> int | None:
    """What was found, and the curves of its training."""
    return {FOUND: 0, "epochs.parquet": 0}.get(file)


def _measure_public(of: Subjects, cell: Cell, folder: Path, options: Options, measure: Measure) -> None:
    device = options.torch_device
    data = datasets.load("cifar10", "test")
    assert isinstance(data, datasets.ArrayDataset)
    depth = int(str(cell.settings["network"]).removeprefix("resnet"))
    model = models.load_cifar10_resnet(depth, public_weights()).to(device)
    scale = PixelScale(
        *(part.to(device) for part in pixel_scale(torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)))
    )
    images, labels, ids = (part[: of.images].to(device) for part in (data.images, data.labels, data.ids))
    subject = Subject(model, images, labels, scale, data.class_names, ids)
    record = RunRecord(folder)
    record.begin(
        name=cell.name, seed=0, config=dict(cell.settings), device=device_name(device), class_names=data.class_names
    )
    records.write_json(folder / FOUND, measure(subject))
    record.finish({})


def _train(of: Subjects, cell: Cell, folder: Path, options: Options, measure: Measure) -> None:
    def measured(training: CellTraining, model: nn.Module) -> Mapping[str, Any]:
        test = training.test
        names = tuple(map(str, range(int(test.labels.max()) + 1)))
        images, labels, ids = (part[: of.images] for part in (test.images, test.labels, test.ids))
        subject = Subject(cast("Classifier", model), images, labels, test.scale, names, ids)
        records.write_json(folder / FOUND, measure(subject))
        return {}

    def configure(cell: Cell) -> Tree:
        quiet = {"record": {"dynamics": False, "scores": ["avh"]}}
        return {**quiet, **of.trainings[str(cell.settings["network"])], "seed": cell.settings["seed"]}

    train_cells([(cell, folder)], options, configure, Hooks(measure=measured))
