"""Cells that are trainings by configuration: what `hardsight train` does, several together, measured at the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.training import Cell, run_together
from hardsight.training.config import TrainingConfig
from hardsight.training.configured import session
from hardsight.training.fitting import Fitted, Session
from hardsight.training.reading import build
from hardsight.training.record import Row
from hardsight_studies.clock import EpochWatch
from hardsight_studies.framework import Options

# A configuration as plain values, as in the TOML file of `hardsight train`; name and folder are the cell's.
Tree = dict[str, Any]


class CellTraining:
    """One cell while it trains: what a study may look at after an epoch and at the end.

    `batches`: the augmented training batches; `samples`: the training set as it is, with the labels that were given;
    `test`: the test set; all of them `DeviceLoader`s with `images`, `labels` and `ids`.
    """

    def __init__(self, cell: Cell, folder: Path, config: TrainingConfig, device: torch.device) -> None:
        self.cell, self.folder, self.config, self.device = cell, folder, config, device
        self.batches: DeviceLoader
        self.samples: DeviceLoader
        self.test: DeviceLoader
        self.model: nn.Module
        self.recorder: Recorder | None

    def look_at(self, made: Session) -> None:
        """Take over what the session trains and with what."""
        loop = made.training
        assert loop.samples is not None
        loaders = loop.feed.batches, loop.samples.batches, loop.test
        self.batches, self.samples, self.test = (cast("DeviceLoader", one) for one in loaders)
        self.model, self.recorder = loop.model, loop.step.recorder


@dataclass(frozen=True)
class Hooks:
    """What a study does beside the training.

    `begin(training)` before the first step, also of a training that goes on: it may give other labels to the batches.
    `after_epoch(training, epoch, row)`, epochs counted from 1; what it puts into the row is in the record's epochs.
    `measure(training, model)` at the end with the network that is evaluated: what it returns joins the results, and it
    may write further files into `training.folder`.
    """

    after_epoch: Callable[[CellTraining, int, Row], None] | None = None
    measure: Callable[[CellTraining, nn.Module], Mapping[str, Any]] | None = None
    begin: Callable[[CellTraining], None] | None = None


def train_cells(
    mine: Sequence[tuple[Cell, Path]], options: Options, configure: Callable[[Cell], Tree], hooks: Hooks | None = None
) -> list[Fitted]:
    """Train these cells, together where they are several; each leaves its record and goes on where it stopped."""
    device = options.torch_device
    hooks = hooks or Hooks()
    sessions = [_session(cell, folder, configure(cell), device, options, hooks) for cell, folder in mine]
    if len(sessions) == 1:
        return [sessions[0].run()]
    return run_together(sessions, stacked=options.stacked)


def _session(cell: Cell, folder: Path, tree: Tree, device: torch.device, options: Options, hooks: Hooks) -> Session:
    config = build(TrainingConfig, {**tree, "folder": str(folder), "name": cell.name})
    training = CellTraining(cell, folder, config, device)
    watch = EpochWatch(options.clock, config.epochs)

    def after_epoch(epoch: int, row: Row) -> None:
        if hooks.after_epoch is not None:
            hooks.after_epoch(training, epoch, row)
        watch.epoch(epoch)

    def measure(model: nn.Module) -> Mapping[str, Any]:
        return {} if hooks.measure is None else hooks.measure(training, model)

    made = session(config, device, progress=False, after_epoch=after_epoch, measure=measure)
    training.look_at(made)
    if hooks.begin is not None:
        hooks.begin(training)
    return made
