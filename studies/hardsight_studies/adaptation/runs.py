"""One cell of the study: a pair, a method, a seed. Self-training of a pair and seed starts from one source model."""

import contextlib
import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn

from hardsight import models, records
from hardsight.datasets.interface import ArrayDataset
from hardsight.domains.selection import SELECTORS
from hardsight.domains.self_training import SelfTraining
from hardsight.domains.self_training.data import pixel_options, target_labels
from hardsight.domains.self_training.record import worth_showing, write_rounds, write_thumbnails
from hardsight.domains.self_training.rounds import class_accuracy, look, plain_batches
from hardsight.training import Cell, fit
from hardsight.training.evaluation import evaluate
from hardsight.training.record import RunRecord, device_name
from hardsight_studies.adaptation.pairs import Domains, NotThereError, Pair, load_pair, pictures_of
from hardsight_studies.framework import Options

SOURCE = "source"
CORE = (SOURCE, "cbst", "crst", "avh")
SELECTING = tuple(name for name in SELECTORS if name not in CORE)
BASELINES = ("mmd", "dann", "entropy", "mcd", "adr")
METHODS = (*CORE, *SELECTING, *BASELINES)
OURS, RIVALS = "avh", ("cbst", "crst")
# Whose selection is shown in pictures, so many and so large; the file of all that CBST does not select.
PICTURED = {"method": OURS, "seed": 0}
SHOWN = "beyond_cbst.parquet"
_PICTURES, _PICTURE_SIZE = 8, 48
TABLE_4 = ("true_positive_rate", "avh", "confidence", "norm", "selected", "beyond_cbst", "beyond_cbst_right")
# By pair and all settings of its family: families of two presets may share their name.
_SOURCES: dict[tuple[str, str, int, str], dict[str, torch.Tensor]] = {}
_PAIRS: dict[tuple[str, str], Domains] = {}


@dataclass(frozen=True)
class Family:
    """Pairs that share network, sizes and schedule. `frozen`: features of an ImageNet network instead of pixels."""

    name: str
    pairs: tuple[Pair, ...]
    seeds: tuple[int, ...]
    model: str
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    frozen: bool = False
    size: int | None = None
    limit: int | None = None
    source_epochs: int = 10
    rounds: int = 10
    steps_per_epoch: int = 40
    batch_size: int = 128
    lr: float = 0.01

    @property
    def settings(self) -> dict[str, Any]:
        """As plain values, for records and results."""
        held = dataclasses.asdict(self)
        return held | {"pairs": [pair.name for pair in self.pairs]}


class AdaptationRun:
    """The computation of one cell."""

    def __init__(self, family: Family, pair: Pair, cell: Cell, folder: Path, options: Options) -> None:
        self.family, self.pair, self.cell, self.folder = family, pair, cell, folder
        self.method, self.seed = str(cell.settings["method"]), int(cell.settings["seed"])
        self.device = options.torch_device
        key = (str(family), pair.name)
        if key not in _PAIRS:
            while len(_PAIRS) >= 20:
                _PAIRS.pop(next(iter(_PAIRS)))
            _PAIRS[key] = load_pair(pair, size=family.size, frozen=family.frozen, limit=family.limit)
        self.domains = _PAIRS[key]
        self.optimizer = partial(torch.optim.SGD, lr=family.lr, momentum=0.9, weight_decay=5e-4)
        self.pixels = pixel_options(self.domains.source, self.device)

    def run(self) -> None:
        """Compute and write; that it is finished is written last."""
        record = RunRecord(self.folder)
        record.begin(
            kind="adaptation",
            name=self.cell.name,
            seed=self.seed,
            config={**self.cell.settings, **self.family.settings},
            device=device_name(self.device),
            class_names=list(self.domains.source.class_names),
        )
        if self.method == SOURCE:
            results = self._measured(self._source_model())
        elif self.method in SELECTORS:
            results = self._self_trained(record)
        else:
            results = self._baseline()
        record.finish(results)

    def _self_trained(self, record: RunRecord) -> dict[str, Any]:
        of, (source, target, test) = self.family, self.domains
        plan = SelfTraining(
            self.method,
            rounds=of.rounds,
            source_epochs=0,
            batch_size=of.batch_size,
            steps_per_epoch=of.steps_per_epoch,
            optimizer=self.optimizer,
            precision="float32",
            seed=self.seed,
        )
        done = plan.fit(self._source_model(), source, target, test=test, device=self.device)
        record.write_epochs(done.epochs)
        first = done.selected.filter(pc.equal(done.selected["round"], 0))
        beyond = first.filter(pc.invert(first["by_cbst"]))
        write_rounds(self.folder, done.rounds, [])
        if len(beyond):
            records.write_table(self.folder / SHOWN, beyond)
            if self.cell.settings.items() >= PICTURED.items():
                keep_pictures(self.folder, beyond, self.pair, target)
        last = done.rounds[-1]
        return {
            **{key: last[key] for key in ("accuracy", "class_mean_accuracy", "class_accuracy", "test_accuracy")},
            "by_round": [round(row["accuracy"], 5) for row in done.rounds],
            "selected_by_round": [row["selected"] for row in done.rounds[:-1]],
            "first_selection": {key: done.rounds[0][key] for key in TABLE_4},
            "notes": done.notes,
        }

    def _baseline(self) -> dict[str, Any]:
        from hardsight.domains.baselines import adapt_baseline

        of, (source, target, _) = self.family, self.domains
        training = {**self.pixels, "seed": self.seed}
        batches = plain_batches(source, source.labels, of.batch_size, **training)
        unlabelled = plain_batches(target, torch.full((len(target),), -1), of.batch_size, **training)
        # As many steps as the source training and all rounds of self-training together.
        steps = of.source_epochs * len(batches) + of.rounds * of.steps_per_epoch
        model = self._fresh()
        adapt_baseline(
            self.method,
            model,
            batches,
            unlabelled,
            epochs=max(1, round(steps / len(batches))),
            optimizer=self.optimizer,
            seed=self.seed,
            device=self.device,
            precision="float32",
        )
        return self._measured(model)

    def _measured(self, model: nn.Module) -> dict[str, Any]:
        source, target, test = self.domains
        truth = target_labels(source, target)
        seen = look(model, plain_batches(target, truth, 1024, shuffle=False, **self.pixels), self.device)
        found = class_accuracy(seen, truth)
        if test is not None:
            batches = plain_batches(test, target_labels(source, test), 1024, shuffle=False, **self.pixels)
            found["test_accuracy"] = evaluate(model, batches, self.device)["accuracy"]
        return found

    def _source_model(self) -> nn.Module:
        """Trained on the source by this seed; once for all methods of this process."""
        key = (str(self.family), self.pair.name, self.seed, str(self.device))
        model = self._fresh()
        if key not in _SOURCES:
            of, source = self.family, self.domains.source
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                torch.manual_seed(self.seed)
                fit(
                    model,
                    plain_batches(source, source.labels, of.batch_size, **self.pixels, seed=self.seed),
                    None,
                    self.optimizer(model.parameters()),
                    epochs=of.source_epochs,
                    precision="float32",
                    head="linear",
                    device=self.device,
                    progress=False,
                )
            while len(_SOURCES) >= 128:
                _SOURCES.pop(next(iter(_SOURCES)))
            _SOURCES[key] = copy.deepcopy(model.state_dict())
        model.load_state_dict(_SOURCES[key])
        return model.to(self.device)

    def _fresh(self) -> nn.Module:
        source = self.domains.source
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return models.create(
                self.family.model,
                num_classes=source.num_classes,
                in_channels=source.images.shape[1],
                **self.family.model_options,
            )


def keep_pictures(folder: Path, beyond: pa.Table, pair: Pair, target: ArrayDataset) -> None:
    """Some of the samples beyond CBST's selection as pictures, where the images are at hand (AVH, Fig. 21)."""
    ids = worth_showing(beyond, _PICTURES)
    if target.images.ndim == 4:
        write_thumbnails(folder, ids, target)
    elif ids:
        # Pictures are an extra: where a file cannot be read, the numbers stand without them.
        with contextlib.suppress(NotThereError, ValueError):
            write_thumbnails(folder, ids, pictures_of(pair.target, ids, _PICTURE_SIZE))


def compute_cell(family: Family, pair: Pair, cell: Cell, folder: Path, options: Options) -> None:
    """Compute one cell; one whose data are not on this machine is left for another, and says why."""
    options.clock.check()
    try:
        run = AdaptationRun(family, pair, cell, folder, options)
    except NotThereError as absent:
        options.say(f"left out {cell.name}: {absent}")
        return
    run.run()
