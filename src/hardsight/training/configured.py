"""Trainings from configurations alone: `train` one, `sweep` a grid of them; both go on where they stopped."""

import copy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hardsight.claims import alone_in
from hardsight.distributed import join_processes, rank_and_count
from hardsight.losses.registry import Sizes
from hardsight.names import visible
from hardsight.training import assembly, objectives
from hardsight.training.config import TrainingConfig
from hardsight.training.fitting import Fitted, Session, fit
from hardsight.training.progress import Tracker
from hardsight.training.reading import build, put
from hardsight.training.record import RunRecord
from hardsight.training.sweeps import Run, run_sweep
from hardsight.training.together import run_together


def train(config: TrainingConfig, *, resume: bool = True, progress: bool | None = None) -> Fitted:
    """Train as the configuration says; the record lies in its folder. Started again, it goes on."""
    device, folder = join_processes(config.device), config.place
    parts = prepare(config, device, folder)
    with alone_in(folder):
        tracker = Tracker(config.record.tracker, folder, config) if config.record.tracker else None
        try:
            return fit(
                **parts,
                epochs=config.epochs,
                folder=folder,
                resume=resume,
                progress=progress,
                after_epoch=None if tracker is None else tracker.epoch,
            )
        finally:
            if tracker is not None:
                tracker.close()


def session(config: TrainingConfig, device: torch.device, **options: Any) -> Session:
    """The training of a configuration, ready to run beside others; `options` are further ones of `Session`."""
    return Session(**prepare(config, device, config.place), epochs=config.epochs, folder=config.place, **options)


def prepare(config: TrainingConfig, device: torch.device, folder: Path | None) -> dict[str, Any]:
    """What `fit` needs for this configuration, by the names of its arguments."""
    sets = assembly.load_sets(config)
    model = assembly.make_model(config, sets)
    sizes = Sizes(getattr(model, "feature_dim", 0), sets.train.num_classes, sets.id_count)
    objective = objectives.make_objective(config, sizes, getattr(model, "head", None))
    channels_last = device.type == "cuda" if config.channels_last is None else config.channels_last
    loaders = assembly.make_loaders(config, sets, device, channels_last=channels_last)
    parameters = [*model.parameters(), *objective.parameters()]
    return {
        "model": model,
        "batches": loaders.train,
        "loss": objective,
        "optimizer": assembly.make_optimizer(config.optimizer, parameters),
        "plan": assembly.make_plan(config.schedule, config.optimizer.beta1),
        "test": loaders.test,
        "samples": loaders.samples,
        "scores": tuple(config.record.scores),
        "clean_labels": sets.clean_by_id(),
        "paths": sets.paths,
        "skipped": sets.skipped(),
        "recorder": assembly.make_recorder(config, sets, device, folder),
        "precision": config.precision,
        "capture": config.capture,
        "channels_last": channels_last,
        "accumulate": config.accumulate,
        "clip": objectives.clip_of(config, objective),
        "average_decay": config.average_decay,
        "fit_every": config.record.fit_every,
        "checkpoint_every": config.record.checkpoint_every,
        "name": config.name,
        "seed": config.seed,
        "config": config.as_dict(),
        "class_names": sets.train.class_names,
        "preprocessing": loaders.preprocessing,
        "device": device,
    }


def sweep(
    config: dict[str, Any],
    folder: Path | str,
    runs: Sequence[Run],
    *,
    at_once: int = 1,
    stacked: bool = False,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> list[Run]:
    """Train `config` (plain values, as in the TOML file) with each run's settings; only what is missing.

    With `at_once` more than 1, that many runs of this process train together on the device (see `together`); with
    `stacked`, runs of one architecture share their forward and backward passes.
    Returns the runs that this process computed.
    """

    def compute(mine: Sequence[tuple[Run, Path]]) -> None:
        settings = [_with_settings(config, run, place) for run, place in mine]
        if len(settings) == 1:
            train(settings[0], progress=progress)
            return
        device = join_processes(settings[0].device)
        run_together([session(one, device, progress=False) for one in settings], stacked=stacked)

    join_processes()
    _, joined = rank_and_count()
    if joined > 1:
        raise ValueError(
            f"a sweep's processes must be started one by one; got {joined} that were joined, as torchrun does"
        )
    for run in runs:
        # All of them before the first is trained: a misspelt key must not be found after hours, and a run that
        # another configuration finished is not this sweep's.
        place = Path(folder) / run.name
        RunRecord(place).check_same_run(_with_settings(config, run, place).as_dict())
    return run_sweep(folder, runs, compute, at_once=at_once, retry_failed=retry_failed, say=_tell(progress))


def _tell(progress: bool | None) -> Callable[[str], object]:
    return (
        (lambda sentence: None) if progress is False else (lambda sentence: print(visible(sentence), file=sys.stderr))
    )


def _with_settings(config: dict[str, Any], run: Run, place: Path) -> TrainingConfig:
    tree = copy.deepcopy(config)
    for key, value in run.settings.items():
        put(tree, key, value)
    return build(TrainingConfig, tree | {"folder": str(place), "name": run.name})
