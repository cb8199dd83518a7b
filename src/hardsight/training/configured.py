"""`train`: a training from its configuration alone, resumed where it stopped."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from hardsight.losses.registry import Sizes
from hardsight.training import assembly
from hardsight.training.config import TrainingConfig
from hardsight.training.fitting import Fitted, fit
from hardsight.training.tracking import Tracker


def train(config: TrainingConfig, *, resume: bool = True, progress: bool | None = None) -> Fitted:
    """Train as the configuration says; the record lies in its folder. Started again, it goes on."""
    accelerator = Accelerator()
    device = torch.device(config.device) if config.device else accelerator.device
    folder = Path(config.folder or Path("runs") / config.name)
    parts = prepare(config, device, folder)
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


def prepare(config: TrainingConfig, device: torch.device, folder: Path | None) -> dict[str, Any]:
    """What `fit` needs for this configuration, by the names of its arguments."""
    sets = assembly.load_sets(config)
    model = assembly.make_model(config, sets)
    sizes = Sizes(getattr(model, "feature_dim", 0), sets.train.num_classes, sets.id_count)
    objective = assembly.make_objective(config, sizes)
    channels_last = device.type == "cuda" if config.channels_last is None else config.channels_last
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loaders = assembly.make_loaders(config, sets, device, channels_last=channels_last)
    parameters = [*model.parameters(), *objective.parameters()]
    return {
        "model": model,
        "batches": loaders.train,
        "loss": objective,
        "optimizer": assembly.make_optimizer(config.optimizer, parameters),
        "plan": assembly.make_plan(config.schedule),
        "test": loaders.test,
        "samples": loaders.samples,
        "scores": tuple(config.record.scores),
        "clean_labels": sets.clean_by_id(),
        "recorder": assembly.make_recorder(config, sets, device, folder),
        "precision": config.precision,
        "capture": config.capture,
        "accumulate": config.accumulate,
        "clip": config.clip,
        "average_decay": config.average_decay,
        "fit_every": config.record.fit_every,
        "checkpoint_every": config.record.checkpoint_every,
        "name": config.name,
        "seed": config.seed,
        "config": config.as_dict(),
        "class_names": sets.train.class_names,
        "device": device,
    }
