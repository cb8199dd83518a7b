"""Hardness by loss: does a loss that shapes angles make samples less hard, and hard where people find them hard?

Question: AVH measures hardness by angles; AMC-Loss, the AVH loss and the margin losses train angles, GR trains on
some samples more than on others. Which of them changes how hard the test images are, by human frequency; what does it
cost in accuracy, calibration, agreement with people and robustness? None of the three papers asks. Ours so far: mean
AVH 0.0621 with cross-entropy, 0.0762 with AMC-Loss of weight 10, 0.0462 with the AVH loss, 0.0576 with GR (6, 0.5) as
its authors run it, at 90.4, 90.1, 90.1 and 87.5 % accuracy, n=1 seed, one H200, 2026-11-15. All of it:
docs/studies/hardness-by-loss.md, made from the results files.

ResNet-20 on CIFAR-10, 30 epochs, batch 128, SGD 0.1 with momentum 0.9 and weight decay 5e-4, a Gaussian ramp-up of 5
epochs and a cosine down, crop and flip: the same for all, only loss and head differ. People: CIFAR-10H's votes on the
test images (Peterson et al. 2019). Hardness is measured on the head that a loss trains, against the true label.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from hardsight import datasets, records
from hardsight.alignment import bin_of, correlate, expected_calibration_error
from hardsight.datasets.hierarchy import human_selection_frequency
from hardsight.degradation import DEGRADATIONS, degrade
from hardsight.hardness import angular_visual_hardness
from hardsight.training import Cell
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.configured import CellTraining, Hooks, Tree, train_cells
from hardsight_studies.framework import Options, Study, run_details, spread
from hardsight_studies.hardness_figures import figures
from hardsight_studies.hardness_table import table
from hardsight_studies.keeping import Entries
from hardsight_studies.outputs import outputs_of

if TYPE_CHECKING:
    from hardsight.datasets.loader import DeviceLoader

# What differs from the common configuration. The scale of a cosine head must let the softmax of ten classes come near
# one, (9/10) log(9 * 99) = 6.1 for 0.99 (Wang et al. 2017); 16 does, and 64 is for thousands of identities.
LOSSES: dict[str, Tree] = {
    "cross-entropy": {},
    "amc": {"feature_loss": {"name": "amc", "weight": 10.0}, "data": {"drop_last": True}},
    "avh": {"model": {"head": "angular"}},
    "gr": {"loss": {"name": "gradient_rescaling", "options": {"beta": 6.0, "lam": 0.5, "epsilon": 1e-6}}},
    # λ = 0 leans towards the hardest samples.
    "gr-hard": {"loss": {"name": "gradient_rescaling", "options": {"beta": 2.0, "lam": 0.0, "epsilon": 1e-6}}},
    "cosface": {"loss": {"name": "cosface", "options": {"scale": 16.0, "margin": 0.2}}, "model": {"head": "cosine"}},
    "arcface": {
        "loss": {"name": "arcface", "options": {"scale": 16.0, "margin_radians": 0.2}},
        "model": {"head": "cosine"},
    },
    "normface": {"loss": {"name": "normface", "options": {"scale": 16.0}}, "model": {"head": "cosine"}},
    "amc-0.1": {"feature_loss": {"name": "amc", "weight": 0.1}, "data": {"drop_last": True}},
    # Eq. 6 to the letter, without the epsilon by which its authors' code lets go of fitted samples.
    "gr-equation": {"loss": {"name": "gradient_rescaling", "options": {"beta": 6.0, "lam": 0.5, "epsilon": 0.0}}},
}
# Nearly everyone agrees on nearly every image: the last bin of five would hold 95 % of them.
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.96, 1.0)


@dataclass(frozen=True)
class Runs:
    """One preset: the data, the network, how long, which seeds; `degraded`: test images for each degradation."""

    data: Tree
    model: str
    epochs: int
    seeds: tuple[int, ...]
    losses: tuple[str, ...] = tuple(LOSSES)
    lr: float = 0.1
    ramp_up: int = 5
    people: bool = True
    degraded: int | None = None
    at_once: int = 1


PRESETS = {
    "smoke": Runs(
        {"name": "digits", "limit": 512, "batch_size": 64}, "digits_cnn", 3, (0, 1),
        ("cross-entropy", "amc", "cosface"), lr=0.02, ramp_up=1, people=False, degraded=64,
    ),
    # A tenth of the set at a quarter of the pixels: to see it work on people's votes, not to compare accuracies.
    "cpu": Runs(
        {"name": "cifar10", "test_name": "cifar10h", "limit": 4000, "shrink": 2, "shift": 2, "flip": True}, "resnet20",
        8, (0,), lr=0.05, ramp_up=2, degraded=500,
    ),
    "paper": Runs(
        {"name": "cifar10", "test_name": "cifar10h", "shift": 4, "flip": True, "test_batch_size": 2500}, "resnet20", 30,
        (0, 1, 2), at_once=8,
    ),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# The cells: every loss once, then further seeds.


def cells(preset: str) -> list[Cell]:
    """One cell a loss and seed."""
    of = PRESETS[preset]
    return [Cell({"loss": loss, "seed": seed}) for seed in of.seeds for loss in of.losses]


def configure(preset: str, cell: Cell) -> Tree:
    """The common training with what the cell's loss changes."""
    of, change = PRESETS[preset], LOSSES[cell.settings["loss"]]
    return {
        "epochs": of.epochs,
        "seed": cell.settings["seed"],
        "optimizer": {"lr": of.lr},
        "schedule": {"kind": "cosine", "ramp_up": of.ramp_up},
        "record": {"dynamics": False, "scores": []},
        **{key: value for key, value in change.items() if key not in ("data", "model")},
        "data": {**of.data, **change.get("data", {})},
        "model": {"name": of.model, **change.get("model", {})},
    }


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together and look at the test images with each."""
    of = PRESETS[preset]

    def look(training: CellTraining, model: nn.Module) -> Mapping[str, Any]:
        return measure(of, training, model)

    train_cells(mine, options, lambda cell: configure(preset, cell), Hooks(measure=look))


# ---------------------------------------------------------------------------------------------------------------------
# Measuring: what the record holds of the test images beside the training's own results.


def measure(of: Runs, training: CellTraining, model: nn.Module) -> dict[str, Any]:
    """Writes `test.parquet`, a row a test image; gives accuracy and mean AVH at each level of each degradation."""
    columns = outputs(model, training.test)
    if of.people:
        columns["human_frequency"] = human_frequency(training.test.ids.cpu())
    arrays = {name: pa.array(values.numpy()) for name, values in columns.items()}
    records.write_table(training.folder / "test.parquet", pa.table(arrays))
    return {"robustness": robustness(model, training.test, of.degraded)}


def outputs(model: nn.Module, loader: "DeviceLoader") -> dict[str, Tensor]:
    """By image: id, label, prediction, its probability, that of the label, and AVH against the label."""
    seen = outputs_of(model, loader)
    probabilities = seen.logits.softmax(1)
    top, predicted = probabilities.max(1)
    columns = {
        "id": seen.ids,
        "label": seen.labels,
        "predicted": predicted,
        "top_probability": top,
        "confidence": probabilities.gather(1, seen.labels.unsqueeze(1)).squeeze(1),
        "avh": angular_visual_hardness(seen.features, seen.weight.float(), seen.labels),
    }
    return {name: values.cpu() for name, values in columns.items()}


def human_frequency(ids: Tensor) -> Tensor:
    """Share of people who chose the true class of these test images of CIFAR-10 (CIFAR-10H)."""
    people = datasets.load("cifar10h")
    assert isinstance(people, datasets.ArrayDataset)
    return human_selection_frequency(people.columns["human_votes"], people.labels)[ids]


def robustness(model: nn.Module, loader: "DeviceLoader", samples: int | None) -> dict[str, dict[str, dict[str, float]]]:
    """Accuracy and mean AVH of the first test images at every level that changes something, by degradation."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    kept = slice(0, samples)
    for name, degradation in DEGRADATIONS.items():
        for level in degradation.levels:
            if level == degradation.no_change:
                continue
            generator = torch.Generator(loader.device).manual_seed(0)
            worse = copy.copy(loader)
            worse.images = degrade(loader.images[kept], name, level, generator=generator)
            worse.samples, worse.ids = len(worse.images), loader.ids[kept]
            worse.set_labels(loader.labels[kept])
            seen = outputs(model, worse)
            accuracy = (seen["predicted"] == seen["label"]).double().mean()
            row = {"accuracy": round(float(accuracy), 4), "avh": round(float(seen["avh"].double().mean()), 5)}
            found.setdefault(name, {})[f"{level:g}"] = row
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Judging: records to results.


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """By loss, over seeds: accuracy, calibration, AVH by human frequency, agreement with people, robustness."""
    of = PRESETS[preset]
    found: dict[str, Any] = {}
    for loss in of.losses:
        places = [folder / Cell({"loss": loss, "seed": seed}).name for seed in of.seeds]
        rows = [judge_run(place) for place in places if status_of(place) == FINISHED]
        if rows:
            found[loss] = {name: _over_seeds([row[name] for row in rows]) for name in rows[0]}
    bins = [list(edges) for edges in itertools.pairwise(BINS)] if of.people else []
    return {"losses": found, "bins": bins, "chance": 1 / 10}


def judge_run(place: Path) -> dict[str, Any]:
    """One record's numbers; a bin without images has no mean."""
    test = pq.read_table(place / "test.parquet")
    columns = {name: test[name].to_numpy() for name in test.column_names}
    right = columns["predicted"] == columns["label"]
    degraded = run_details(place)["results"]["robustness"]
    means = {name: float(np.mean([row["accuracy"] for row in rows.values()])) for name, rows in degraded.items()}
    found: dict[str, Any] = {
        "accuracy": float(right.mean()),
        "calibration_error": expected_calibration_error(columns["top_probability"], right),
        "avh": float(columns["avh"].mean()),
        "avh_of_wrong": float(columns["avh"][~right].mean()) if not right.all() else None,
        "degraded_accuracy": float(np.mean(list(means.values()))),
        "degraded_by_kind": means,
        "degraded_by_level": {
            name: {level: row["accuracy"] for level, row in rows.items()} for name, rows in degraded.items()
        },
        "avh_by_level": {name: {level: row["avh"] for level, row in rows.items()} for name, rows in degraded.items()},
    }
    if "human_frequency" in columns:
        # Older records hold float32, where 48 of 50 lies below the edge of 0.96.
        human = columns["human_frequency"].astype(np.float64).round(6)
        place_of = bin_of(human, BINS)
        inside = [place_of == at for at in range(len(BINS) - 1)]
        found["images_by_bin"] = [int(mine.sum()) for mine in inside]
        found["avh_by_bin"] = [float(columns["avh"][mine].mean()) if mine.any() else None for mine in inside]
        found["accuracy_by_bin"] = [float(right[mine].mean()) if mine.any() else None for mine in inside]
        # Turned so that larger is better agreement: hard for the network where few people chose the class.
        found["agreement_avh"] = _agreement(-columns["avh"], human)
        found["agreement_confidence"] = _agreement(columns["confidence"], human)
    return found


def _agreement(easiness: np.ndarray, human: np.ndarray) -> float | None:
    """Spearman's correlation; None of a network that tells no images apart."""
    return correlate(easiness, human).coefficient if np.ptp(easiness) > 0 else None


def _over_seeds(values: Sequence[Any]) -> Any:
    """`spread` of every number, in whatever lists and mappings it stands; None where a run has none."""
    if isinstance(values[0], Mapping):
        return {key: _over_seeds([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], list):
        return [_over_seeds(column) for column in zip(*values, strict=True)]
    known = [float(value) for value in values if value is not None]
    return spread(known) if known else None


ABOUT = """Does the loss that a network is trained with change how hard images are for it, and are images hard where
people find them hard? None of the three papers asks; this study trains one network with ten losses and compares.

*AVH* (angular visual hardness) measures how hard an image is: the angle between its features (the input of the last
layer) and the weights of its true class, divided by the sum of the angles to all classes. It lies between 0 and 1, and
larger is harder.

**How it was made.** A ResNet-20 is trained on CIFAR-10 for 30 epochs: batches of 128, SGD with learning rate 0.1,
momentum 0.9 and weight decay 5e-4, a ramp-up of 5 epochs and then a cosine schedule, random crops and flips. Only the
loss and the last layer differ:

- `cross-entropy`: the ordinary training.
- `amc`, `amc-0.1`: AMC-Loss (pulls features of one class together by angle) beside cross-entropy, with the weight of
  its authors' script (10) and of its paper (0.1).
- `avh`: the AVH loss, cross-entropy on the logits s(π − angle), s = 10.
- `gr`: gradient rescaling with λ = 0.5 and β = 6, its authors' setting for CIFAR-100 without noise. `gr-hard`: with λ =
  0 and β = 2, which leans towards hard samples. Both let go of samples that are fitted, as the authors' code does;
  `gr-equation` is `gr` without that ([why it matters](gr-protocol.md)).
- `cosface` (margin 0.2), `arcface` (margin 0.2 rad) and `normface` (no margin): softmax on the cosines to the classes,
  with scale 16.

The preset `cpu` takes 4,000 training and test images at a quarter of the pixels, and 8 epochs. People's answers are
those of CIFAR-10H, about 50 people for each test image. AVH is measured with the last layer that the loss trained.

**Figures.** AVH and accuracy by the share of people who chose the true class; the columns of the first table, at the
scale of the losses that keep more than 90 % of cross-entropy's accuracy, so that another may be a number at the edge;
accuracy by level of each degradation."""

HARDNESS_BY_LOSS = Study(
    id="hardness-by-loss",
    title="does a loss make samples less hard, and hard where people find them hard?",
    about=ABOUT,
    reference="asked by none of the papers",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
    at_once={name: of.at_once for name, of in PRESETS.items()},
    worth=lambda cell, file: 1 if file == "samples.parquet" else 0,
    entries=Entries(("losses",), lambda cell: cell.settings["loss"]),
)
