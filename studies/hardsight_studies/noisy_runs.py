"""Trainings on wrong labels that keep what finding them needs: every sample recorded, snapshots, features, halves.

A run of the whole set leaves every score of its samples; a run of one half leaves the probabilities of the other half,
which it did not train on. No clean label is used before the samples are judged.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from torch import Tensor, nn

from hardsight import datasets, models, noise, records
from hardsight.cleaning.combined import combined_scores
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.interface import ArrayDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.hardness import model_scores
from hardsight.heads import evaluating
from hardsight.training import Cell, Plan, Session, run_together
from hardsight.training.assembly import Sets, shrunk
from hardsight.training.evaluation import evaluate
from hardsight.training.record import RunRecord, device_name
from hardsight.training.samples import SampleScores
from hardsight.training.schedules import cosine
from hardsight_studies.clock import EpochWatch
from hardsight_studies.detection import Detection, detect_all, suspicions
from hardsight_studies.framework import Options

HUMAN = {"aggre": "aggre_label", "random1": "random_label1", "worse": "worse_label"}
WHOLE, STRONGER, FOLDS = "whole", "stronger", ("fold0", "fold1")
# Runs measured at the same time: ranking and fitting mixtures is work for the host, while a GPU waits.
_WORKERS = 4


@dataclass(frozen=True)
class Runs:
    """Data, network and size of a set of runs; `fold_seeds` are those that also train halves.

    `stronger`: another network, trained on the whole set with `stronger_seeds`, all else alike.

    `snapshots`: epochs, counted from 1, after which the training set is looked at without augmentation; the last one
    must be the last epoch. `samples`: the first so many of the set; `shrink`: average squares of so many
    pixels a side. `keep_outputs`: leave features and the snapshots' logits in the record. `at_once`: runs that train
    together on a device.
    """

    data: str
    model: str
    epochs: int
    noises: tuple[str, ...]
    seeds: tuple[int, ...]
    fold_seeds: tuple[int, ...]
    snapshots: tuple[int, ...]
    samples: int | None = None
    shrink: int = 1
    batch_size: int = 128
    lr: float = 0.1
    shift: int = 4
    flip: bool = True
    keep_outputs: bool = True
    at_once: int = 1
    stronger: str | None = None
    stronger_seeds: tuple[int, ...] = ()


@functools.lru_cache(maxsize=1)
def _load(
    name: str, samples: int | None, shrink: int
) -> tuple[ArrayDataset, ArrayDataset, tuple[list[float], list[float]]]:
    """Training set, test set, and the training set's mean and standard deviation by channel."""
    if name == "digits":
        every = datasets.load("digits")
        assert isinstance(every, ArrayDataset)
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
        test, train = every.subset(order[:360]), every.subset(order[360:])
    else:
        train, test = datasets.load(name), datasets.load("cifar10", "test")  # type: ignore[assignment]
    train = train.subset(torch.arange(min(samples or len(train), len(train))))
    if shrink > 1:
        train, test = shrunk(train, shrink), shrunk(test, shrink)
    return train, test, Sets(train, train.labels, None, test).statistics()


def given_labels(data: ArrayDataset, kind: str, seed: int) -> Tensor:
    """The labels to train on: people's, or the true ones with synthetic noise drawn by the seed."""
    if kind in HUMAN:
        return data.columns[HUMAN[kind]]
    rate = int(kind.removeprefix("symmetric").removeprefix("asymmetric")) / 100
    generator = torch.Generator().manual_seed(seed)
    if kind.startswith("symmetric"):
        return noise.flip_symmetric(data.labels, rate, data.num_classes, generator=generator).labels
    lookalikes = noise.MNIST_LOOKALIKES if data.name == "digits" else noise.CIFAR10_LOOKALIKES
    return noise.flip_by_mapping(data.labels, rate, lookalikes, data.num_classes, generator=generator).labels


def halves(labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Two halves of the samples, each class of given labels divided evenly between them."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    by_class = order[labels[order].argsort(stable=True)]
    return by_class[0::2].sort().values, by_class[1::2].sort().values


class NoisyRun:
    """The training of one cell, ready to run alone or beside others, and the record that it leaves."""

    def __init__(self, runs: Runs, cell: Cell, folder: Path, options: Options) -> None:
        self.runs, self.cell, self.folder, self.options = runs, cell, folder, options
        self.kind, self.seed = str(cell.settings["kind"]), int(cell.settings["seed"])
        self.device = options.torch_device
        train, self.test, self.statistics = _load(runs.data, runs.samples, runs.shrink)
        self.clean, self.classes = train.labels, train.num_classes
        self.given = given_labels(train, str(cell.settings["noise"]), self.seed)
        self.images, self.ids = _on_device(train.images, self.device), torch.arange(len(train))
        self.trained_on, self.held_out = self.ids, self.ids[:0]
        self.half = self.kind in FOLDS
        if self.half:
            first, second = halves(self.given, self.seed)
            self.held_out, self.trained_on = (first, second) if self.kind == FOLDS[0] else (second, first)
        self.snapshots: list[Tensor] = []
        self._watch = EpochWatch(options.clock, runs.epochs)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            self.model = self._model()
            self.session = self._session()

    def _model(self) -> nn.Module:
        network = self.runs.stronger if self.kind == STRONGER and self.runs.stronger else self.runs.model
        model = models.create(network, num_classes=self.classes, in_channels=self.images.shape[1])
        return model.to(self.device, memory_format=self._layout)  # type: ignore[call-overload]

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self.device.type == "cuda" else torch.contiguous_format

    def _session(self) -> Session:
        of = self.runs
        loader = self._loader(
            self.trained_on, of.batch_size, seed=self.seed, augmentation=Augmentation(shift=of.shift, flip=of.flip)
        )
        self.recorder = None if self.half else Recorder(len(self.ids), self.classes, device=self.device)
        return Session(
            self.model,
            loader,
            None,
            torch.optim.SGD(self.model.parameters(), lr=of.lr, momentum=0.9, weight_decay=5e-4),
            epochs=of.epochs,
            plan=Plan(cosine()),
            recorder=self.recorder,
            progress=False,
            device=self.device,
            after_epoch=self._after_epoch,
        )

    def _loader(self, rows: Tensor, batch_size: int, **options: Any) -> DeviceLoader:
        mean, std = self.statistics
        images = self.images if len(rows) == len(self.images) else self.images[rows.to(self.device)]
        last = self.device.type == "cuda"
        common: dict[str, Any] = {"device": self.device, "mean": mean, "std": std, "channels_last": last}
        return DeviceLoader(images, self.given[rows], self.ids[rows], batch_size, **common, **options)

    def _after_epoch(self, epoch: int, row: Mapping[str, float | int]) -> None:
        self._watch.epoch(epoch)
        if not self.half and epoch in self.runs.snapshots:
            features, logits = self.look(self.ids)
            self.snapshots.append(logits)
            self.features = features

    def look(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of these samples without augmentation, on the device."""
        features = []
        with evaluating(self.model):
            for images, _, _ in self._loader(rows, 1000, shuffle=False):
                features.append(self.model.forward_features(images))  # type: ignore[operator]
            together = torch.cat(features).float()
            return together, self.model.head(together).float()  # type: ignore[operator]

    def measure(self) -> "Measured":
        """All that the record says of the trained network and of its samples."""
        mean, std = self.statistics
        test = DeviceLoader(
            self.test.images, self.test.labels, batch_size=1000, shuffle=False, mean=mean, std=std, device=self.device
        )
        results = {
            "test_accuracy": evaluate(self.model, test, self.device)["accuracy"],
            "wrong_labels": float((self.given != self.clean).float().mean()),
        }
        if self.half:
            return Measured(self._unseen(), results)
        samples = self._scored()
        outputs = {"features": self.features, "logits": torch.stack(self.snapshots)}
        halved = {name: values.half().cpu().contiguous() for name, values in outputs.items()}
        return Measured(samples, results, detect_all(samples), halved if self.runs.keep_outputs else {})

    def write(self, epochs: Sequence[Mapping[str, float | int]], found: "Measured") -> None:
        """The record; that it is finished is written last, so that one cut short is computed again."""
        record = RunRecord(self.folder)
        record.begin(
            name=self.cell.name,
            seed=self.seed,
            config={**self.cell.settings, **dataclasses.asdict(self.runs)},
            device=device_name(self.device),
            class_names=list(self.test.class_names),
        )
        record.write_epochs(epochs)
        floats = [field.name for field in found.samples.schema if pa.types.is_float32(field.type)]
        with records.atomic_path(self.folder / "samples.parquet") as path:
            # The bytes of floats apart, exponents beside exponents: that is what zstd can shorten.
            pq.write_table(
                found.samples, path, compression="zstd", use_dictionary=False, use_byte_stream_split=floats or False
            )
        if found.judged:
            records.write_json(self.folder / "judged.json", found.judged)
        if found.outputs:
            with records.atomic_path(self.folder / "outputs.safetensors") as path:
                safetensors.torch.save_file(dict(found.outputs), path)
        record.finish(found.results)

    def _scored(self) -> pa.Table:
        """Every score of the model at its end and of the recorder, and the combined ones."""
        names = [score.name for score in model_scores()]
        scored = SampleScores(
            self._loader(self.ids, 1000, shuffle=False), self.device, scores=names, clean_labels=self.clean
        )
        table = scored.table(self.model, self.recorder)
        labels = self.given.to(self.device)
        found = combined_scores(suspicions(table), self.features, torch.stack(self.snapshots), labels)
        about = {"kind": "score", "direction": "larger is harder"}
        for name, values in found.items():
            field = pa.field(name, pa.float32(), metadata=about)
            table = table.append_column(field, pa.array(values.astype(np.float32)))
        return table

    def _unseen(self) -> pa.Table:
        """Probabilities of the half that was not trained on."""
        probabilities = self.look(self.held_out)[1].softmax(1).half().cpu().numpy()
        listed = pa.FixedSizeListArray.from_arrays(pa.array(probabilities.ravel()), self.classes)
        rows = self.held_out
        columns = {"id": rows, "label": self.given[rows], "clean_label": self.clean[rows]}
        arrays = {name: pa.array(values.numpy()) for name, values in columns.items()}
        return pa.table({**arrays, "probabilities": listed})


@dataclass(frozen=True)
class Measured:
    """The samples' table, the run's results; of the whole set also how each score judges, and half-precision outputs:
    features [N, D] and logits [snapshots, N, C], the last snapshot being the end of training.
    """

    samples: pa.Table
    results: Mapping[str, float]
    judged: Mapping[str, Detection] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)


def compute_runs(runs: Runs, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together and write their records."""
    trainings = [NoisyRun(runs, cell, folder, options) for cell, folder in mine]
    if len(trainings) == 1:
        trainings[0].write(trainings[0].session.run().epochs, trainings[0].measure())
        return
    fitted = run_together([one.session for one in trainings], stacked=options.stacked)
    if trainings[0].device.type == "cuda":
        # What each looked at last was computed on a stream of its own.
        torch.cuda.synchronize()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for training, one, found in zip(trainings, fitted, pool.map(NoisyRun.measure, trainings), strict=True):
            training.write(one.epochs, found)


def _on_device(images: Tensor, device: torch.device) -> Tensor:
    """The images on the device, once for all cells of a process."""
    if device.type == "cpu":
        return images
    # Compared with the images themselves, not their address: another set may come to lie at it.
    if device not in _IMAGES or _IMAGES[device][0] is not images:
        _IMAGES[device] = images, images.to(device)
    return _IMAGES[device][1]


_IMAGES: dict[torch.device, tuple[Tensor, Tensor]] = {}
