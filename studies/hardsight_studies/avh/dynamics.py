"""AVH, Figures 4 and 9 to 13: what norm, AVH, confidence and accuracy of test images do while a network trains.

A cell is one training; after every epoch its row in the record holds the means and standard deviations of all groups of
test images. The studies made of such cells are in `figure4.py`.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
from torch import nn

from hardsight import records
from hardsight.models import Classifier
from hardsight.training import Cell
from hardsight.training.record import Row
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.avh.groups import ALL, CONTRAST, GROUPINGS, HUMAN, NOISE, TestImages
from hardsight_studies.avh.levels import judge_levels
from hardsight_studies.avh.looking import curves_of, mean_curves, short
from hardsight_studies.avh.people import human_frequency
from hardsight_studies.avh.plateau import ordered_share, phases
from hardsight_studies.configured import CellTraining, Hooks, Tree, train_cells
from hardsight_studies.framework import Options, run_details

LEVELS = "levels.json"
_WITH_PEOPLE = ("cifar10", "digits")


@dataclass(frozen=True)
class Network:
    """A network to follow: how long, how fast (the paper's rates), what else its training needs."""

    name: str
    epochs: int
    lr: float
    shortcuts: bool
    batch_size: int = 128
    shrink: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    capture: bool = True


@dataclass(frozen=True)
class Dynamics:
    """A preset: data, networks in order of value, seeds, and how many test images are degraded."""

    data: Tree
    networks: tuple[Network, ...]
    seeds: int = 1
    degraded: int = 2000


# ---------------------------------------------------------------------------------------------------------------------
# Cells to records.


def cells_of(of: Dynamics) -> list[Cell]:
    """Every network once, then further seeds."""
    return [Cell({"network": one.name, "seed": seed}) for seed in range(of.seeds) for one in of.networks]


def configuration(of: Dynamics, cell: Cell) -> Tree:
    """The paper's schedule, shortened: a tenth of the learning rate after each third of the epochs."""
    network = network_of(of, cell)
    third = max(1, round(network.epochs / 3))
    return {
        "data": of.data | {"batch_size": network.batch_size, "shrink": network.shrink},
        "model": {"name": network.name, "options": network.options},
        "epochs": network.epochs,
        "seed": cell.settings["seed"],
        "optimizer": {"lr": network.lr},
        "schedule": {"kind": "steps", "milestones": [third, 2 * third]},
        "record": {"dynamics": False, "scores": ["avh"]},
        "capture": network.capture,
    }


def network_of(of: Dynamics, cell: Cell) -> Network:
    """The cell's network."""
    return next(one for one in of.networks if one.name == cell.settings["network"])


class Watching:
    """Looks at the test images, as they are and degraded, after every epoch of every cell."""

    def __init__(self, of: Dynamics) -> None:
        self.of = of
        self._images: dict[Path, TestImages] = {}

    def hooks(self) -> Hooks:
        """What `train_cells` calls."""
        return Hooks(self._after_epoch, self._measure, self._begin)

    def _begin(self, training: CellTraining) -> None:
        """Now, not after the first epoch: people's answers may be missing."""
        self._test_images(training)

    def _test_images(self, training: CellTraining) -> TestImages:
        if training.folder not in self._images:
            name = training.config.data.name
            people = human_frequency(name)[training.test.ids.cpu()] if name in _WITH_PEOPLE else None
            test = training.test
            made = TestImages(test.images, test.labels, test.scale, people, self.of.degraded)
            self._images[training.folder] = made
        return self._images[training.folder]

    def _after_epoch(self, training: CellTraining, epoch: int, row: Row) -> None:
        row |= self._test_images(training).statistics(cast("Classifier", training.model))

    def _measure(self, training: CellTraining, model: nn.Module) -> Mapping[str, Any]:
        images = self._test_images(training)
        _, at_levels = images.looks(cast("Classifier", model))
        found = {one.name: judge_levels(at_levels[one.name], one.levels) for one in (NOISE, CONTRAST)}
        records.write_json(training.folder / LEVELS, found)
        return {"human_sizes": images.sizes}


def compute_dynamics(of: Dynamics, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together and follow the test images."""
    train_cells(mine, options, lambda cell: configuration(of, cell), Watching(of).hooks())


# ---------------------------------------------------------------------------------------------------------------------
# Records to results.


def judge_dynamics(of: Dynamics, folder: Path) -> dict[str, Any]:
    """Of every network: curves by group, the phases of its training, and AVH at each level of degradation."""
    found: dict[str, Any] = {}
    for network in of.networks:
        places = [folder / cell.name for cell in cells_of(of) if cell.settings["network"] == network.name]
        places = [place for place in places if status_of(place) == FINISHED]
        if places:
            found[network.name] = _judge_network(network, places)
    return {"data": of.data["name"], "settings": dataclasses.asdict(of), "networks": found}


def _judge_network(network: Network, places: Sequence[Path]) -> dict[str, Any]:
    runs = [pq.read_table(place / "epochs.parquet").to_pylist() for place in places]
    groupings = [one.name for one in GROUPINGS if f"{one.name}0_avh" in runs[0][0]]
    curves = {
        name: [mean_curves([curves_of(rows, name, 5)[group] for rows in runs]) for group in range(5)]
        for name in groupings
    }
    curves[ALL] = [mean_curves([curves_of(rows, ALL, 1)[0] for rows in runs])]
    measured = [_measures(rows, groupings) for rows in runs]
    details = run_details(places[0])["results"]
    levels = places[0] / LEVELS
    return {
        "shortcuts": network.shortcuts,
        "epochs": network.epochs,
        "seeds": len(runs),
        "human_sizes": details.get("human_sizes"),
        "curves": curves,
        "train_loss": _mean_column(runs, "train_loss"),
        "test_loss": _mean_column(runs, "test_loss"),
        "rho": {
            name: _mean_column(runs, f"{name}_rho") for name in ("avh", "confidence", "norm") if HUMAN.name in curves
        },
        "measures": {name: spread_known([one[name] for one in measured]) for name in measured[0]},
        "levels": json.loads(levels.read_text(encoding="utf-8")) if levels.is_file() else None,
    }


def _measures(rows: Sequence[Mapping[str, Any]], groupings: Sequence[str]) -> dict[str, float | int]:
    """The phases of one training, and how its groups stand to each other."""
    found = phases(curves_of(rows, ALL, 1)[0])
    for name in groupings:
        groups = curves_of(rows, name, 5)
        found[f"{name}_avh_ordered"] = ordered_share([one["avh"] for one in groups], falling=True)
        found[f"{name}_norm_ordered"] = ordered_share([one["norm"] for one in groups], falling=False)
        first, last = (one["norm"][-1] for one in (groups[0], groups[-1]))
        found[f"{name}_norm_gap"] = math.nan if first is None or last is None else last / first - 1
    if HUMAN.name in groupings:
        for name in ("avh", "confidence", "norm"):
            rho = np.array([row[f"{name}_rho"] for row in rows], dtype=np.float64)
            found |= {f"{name}_rho_first": rho[0], f"{name}_rho_last": rho[-1], f"{name}_rho_mean": float(rho.mean())}
    return found


def _mean_column(runs: Sequence[Sequence[Mapping[str, Any]]], name: str) -> list[float | None]:
    values = np.array([[row[name] for row in rows] for rows in runs], dtype=np.float64)
    return [short(value) for value in values.mean(0).tolist()]


def spread_known(values: Sequence[float | int | None]) -> dict[str, Any] | None:
    """Mean, standard deviation and values of those that are numbers, four significant digits; None where none is.

    As `spread`, but AVH of a hundred classes is about 0.01: four decimals would leave two digits of it.
    """
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    apart = statistics.stdev(known) if len(known) > 1 else None
    return {
        "mean": short(statistics.fmean(known)),
        "sd": None if apart is None else short(apart),
        "values": [short(value) for value in known],
    }
