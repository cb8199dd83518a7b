"""Runs that are trainings by configuration: what `hardsight train` does, several together, measured at the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.training import Fitted, Loop
from hardsight.training import Hooks as LoopHooks
from hardsight.training.config import TrainingConfig
from hardsight.training.from_config import loop_of
from hardsight.training.record import Row as EpochRow
from hardsight_studies.engine.clock import EpochWatch, Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.stacked import run_stacked
from hardsight_studies.engine.together import run_together

_CPU = torch.device("cpu")


class Training:
    """One run while it trains: what a study may look at after an epoch and at the end.

    `batches`: the augmented training batches; `samples`: the training set as it is, with the labels that were given;
    `test`: the test set; all of them `DeviceLoader`s with `images`, `labels` and `ids`.
    """

    def __init__(self, run: Run, config: TrainingConfig, device: torch.device) -> None:
        self.run, self.folder, self.config, self.device = run, run.folder, config, device
        self.batches: DeviceLoader
        self.samples: DeviceLoader
        self.test: DeviceLoader
        self.model: nn.Module
        self.recorder: Recorder | None

    def look_at(self, loop: Loop) -> None:
        """Take over what the loop trains and with what."""
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

    after_epoch: Callable[[Training, int, EpochRow], None] | None = None
    measure: Callable[[Training, nn.Module], Mapping[str, Any]] | None = None
    begin: Callable[[Training], None] | None = None


def train(runs: Sequence[Run], options: Options, hooks: Hooks | None = None) -> list[Fitted]:
    """Train these runs, together where they are several; each leaves its record and goes on where it stopped.

    Runs whose data are not there are left out, with a sentence each; where none of them has its data, it raises.
    """
    device, hooks = options.torch_device, hooks or Hooks()
    loops: list[Loop] = []
    for run in runs:
        try:
            loops.append(_loop(run, device, options, hooks))
        except FileNotFoundError as absent:
            options.say(f"left out {run.name}: {absent}")
            problem = absent
    if not loops:
        raise problem
    if len(loops) == 1:
        return [loops[0].run()]
    return run_stacked(loops) if options.stacked else run_together(loops)


def config_of(run: Run) -> TrainingConfig:
    """The configuration of a run, every key checked."""
    try:
        return TrainingConfig(**{**run.config, "folder": str(run.folder), "name": run.name})
    except ValueError as refusal:
        raise ValueError(f"{run.name}: {refusal}") from None


def _loop(run: Run, device: torch.device, options: Options, hooks: Hooks) -> Loop:
    config = config_of(run)
    training = Training(run, config, device)
    watch = EpochWatch(options.clock, config.epochs)

    def after_epoch(epoch: int, row: EpochRow) -> None:
        if hooks.after_epoch is not None:
            hooks.after_epoch(training, epoch, row)
        watch.epoch(epoch)

    def measure(model: nn.Module) -> Mapping[str, Any]:
        return {} if hooks.measure is None else hooks.measure(training, model)

    loop = loop_of(config, device, progress=False, hooks=LoopHooks(after_epoch, measure))
    training.look_at(loop)
    if hooks.begin is not None:
        hooks.begin(training)
    return loop


def write_record(
    run: Run,
    results: Mapping[str, Any],
    device: torch.device = _CPU,
    *,
    config: Mapping[str, Any] | None = None,
    error: str | None = None,
) -> Path:
    """The record of a run that was no training by configuration: finished, or failed for good with this error."""
    from hardsight.training.record import RunRecord, device_name

    record = RunRecord(run.folder)
    record.begin(name=run.name, seed=run.seed, config={**run.settings, **(config or {})}, device=device_name(device))
    if error is None:
        record.finish(results)
    else:
        record.fail(error)
    return run.folder
