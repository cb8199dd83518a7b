"""Figures that are made by looking at a network: public ones as they are, others trained first, one run each.

What a study measures of a network, a list of `Found`, is written as JSON into the run's record; `rows` and `points`
read it back.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from hardsight import hardness, records
from hardsight.alignment.groups import joint_histogram
from hardsight.datasets.augment import PixelScale, normalise, pixel_scale
from hardsight.heads import evaluating
from hardsight.models import Classifier
from hardsight_studies.avh.people import IMAGENET_MEAN, IMAGENET_STD, images_of, is_public, public_network
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Row
from hardsight_studies.engine.running import points_of, row_of
from hardsight_studies.engine.trainings import Hooks, Training, train, write_record

FOUND = "found.json"
BINS = 20
# The first three are followed with a mean and a standard deviation, of `correct` the mean says all.
QUANTITIES = ("norm", "avh", "confidence", "correct")


@dataclass(frozen=True)
class Look:
    """One number per image: feature norm, AVH, softmax probability of the label, and whether it is predicted.

    Confidence is float64: many easy images round to 1 in float32 and would tie.
    """

    norm: Float[Tensor, "samples"]
    avh: Float[Tensor, "samples"]
    confidence: Float[Tensor, "samples"]
    correct: Float[Tensor, "samples"]

    def __len__(self) -> int:
        return len(self.norm)

    def first(self, count: int) -> "Look":
        """The first so many images."""
        return Look(*(getattr(self, name)[:count] for name in QUANTITIES))


def joined(looks: Sequence[Look]) -> Look:
    """Several looks as one, in their order."""
    return Look(*(torch.cat([getattr(one, name) for one in looks]) for name in QUANTITIES))


def features_of(
    model: Classifier, images: UInt8[Tensor, "samples channels height width"], scale: PixelScale, batch_size: int = 1000
) -> Float[Tensor, "samples dim"]:
    """Features in evaluation mode. On CUDA the network computes in bfloat16, as in training; what follows does not."""
    layout = images.device.type == "cuda"
    with evaluating(model), torch.autocast(images.device.type, torch.bfloat16, enabled=layout):
        parts = [
            model.forward_features(normalise(part, scale, dtype=torch.float32, channels_last=layout))
            for part in images.split(batch_size)
        ]
    return torch.cat(parts).float()


def look(
    model: Classifier,
    images: UInt8[Tensor, "samples channels height width"],
    labels: Int[Tensor, "samples"],
    scale: PixelScale,
) -> Look:
    """Look at these images, with these labels, as bytes; `scale` normalises them as in training."""
    features = features_of(model, images, scale)
    with evaluating(model):
        return look_at_features(features, model.head, labels)


@torch.no_grad()
def look_at_features(features: Float[Tensor, "samples dim"], head: Any, labels: Int[Tensor, "samples"]) -> Look:
    """The look from features that exist already; `head` is the linear layer behind them."""
    scores = hardness.score(features, head.weight, labels, head.bias, scores=("norm", "avh", "loss"))
    confidence = torch.exp(-scores.pop("loss").double())
    return Look(**scores, confidence=confidence, correct=(head(features).argmax(1) == labels).float())


# ---------------------------------------------------------------------------------------------------------------------
# Networks, and what is found about them.


@dataclass(frozen=True)
class Subject:
    """A trained network and the test images to look at, as bytes; `scale` normalises them as in its training."""

    model: Classifier
    images: UInt8[Tensor, "samples channels height width"]
    labels: Int[Tensor, "samples"]
    scale: PixelScale
    class_names: tuple[str, ...]
    ids: Int[Tensor, "samples"]


class Found(NamedTuple):
    """Metrics of a run, or points of one series of a figure, by column; `settings` are further ones.

    `seeded` is false for intervals over images, which are in rows of no seed.
    """

    metrics: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    seeded: bool = True
    series: str = ""
    columns: Mapping[str, Sequence[float]] = {}


Measure = Callable[[Subject], list[Found]]


def computing(measure: Measure, images: Mapping[str, int]) -> Callable[[Sequence[Run], str, Options], None]:
    """The hook that measures so many test images, by preset, in public networks and in those that it trains."""

    def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
        for run in runs:
            options.clock.check()
            if is_public(run):
                subject = _public(run, images[preset], options.torch_device)
                write_found(run, measure(subject))
                write_record(run, {}, options.torch_device)
            else:
                train([run], options, Hooks(measure=_measuring(measure, images[preset])))

    return compute


def write_found(run: Run, found: Sequence[Found]) -> None:
    """Keep what was found in the run's record."""
    run.folder.mkdir(parents=True, exist_ok=True)
    lists = [one._replace(columns={name: list(values) for name, values in one.columns.items()}) for one in found]
    records.write_json(run.folder / FOUND, [one._asdict() for one in lists])


def _found(run: Run) -> list[Found]:
    return [Found(**one) for one in json.loads((run.folder / FOUND).read_text("utf-8"))]


def rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """The hook that gives the rows of what was found."""
    for run in runs:
        for one in _found(run):
            if one.metrics and one.seeded:
                yield row_of(run, one.metrics, settings=one.settings)
            elif one.metrics:
                yield Row("", "", {**run.point, **one.settings}, None, one.metrics)


def points(runs: Sequence[Run], preset: str) -> list[dict[str, Any]]:
    """The hook that gives the points of what was found."""
    found = ((run, one) for run in runs for one in _found(run) if one.series)
    return [point for run, one in found for point in points_of(run, one.series, one.columns, one.settings)]


def counts(score: np.ndarray, frequency: np.ndarray) -> dict[str, list[float]]:
    """How many images there are by human frequency (x) and score (y), scaled to [0, 1]: the bins that hold one."""
    found = joint_histogram(score, frequency, BINS)["counts"]
    x, y = found.nonzero()
    return {"x": ((x + 0.5) / BINS).tolist(), "y": ((y + 0.5) / BINS).tolist(), "count": found[x, y].tolist()}


def _public(run: Run, count: int, device: torch.device) -> Subject:
    data = images_of("cifar10", "test")
    parts = pixel_scale(torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD))
    scale = PixelScale(*(part.to(device) for part in parts))
    images, labels, ids = (part[:count].to(device) for part in (data.images, data.labels, data.ids))
    return Subject(public_network(run, device), images, labels, scale, data.class_names, ids)


def _measuring(measure: Measure, count: int) -> Callable[[Training, nn.Module], Mapping[str, Any]]:
    def measured(training: Training, model: nn.Module) -> Mapping[str, Any]:
        test = training.test
        names = tuple(map(str, range(int(test.labels.max()) + 1)))
        images, labels, ids = (part[:count] for part in (test.images, test.labels, test.ids))
        write_found(training.run, measure(Subject(cast("Classifier", model), images, labels, test.scale, names, ids)))
        return {}

    return measured
