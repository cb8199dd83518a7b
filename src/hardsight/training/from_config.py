"""A training from a configuration alone: `train` makes network, loss, optimiser, schedules and data, and trains."""

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardsight import models
from hardsight.claims import alone_in
from hardsight.distributed import join_processes, rank_and_count
from hardsight.dynamics import Recorder
from hardsight.heads import evaluating
from hardsight.losses.angular import AngularLinear
from hardsight.losses.registry import Sizes
from hardsight.names import check_name, unknown_name
from hardsight.training.checkpoints import check_fits, read_tensors
from hardsight.training.config import OptimizerConfig, ScheduleConfig, TrainingConfig
from hardsight.training.data import Sets, load_sets, make_loaders
from hardsight.training.evaluation import Samples
from hardsight.training.loop import Loop
from hardsight.training.objectives import clip_of, cosine_head, make_objective
from hardsight.training.reading import about
from hardsight.training.record import Details, Fitted, Hooks, flat
from hardsight.training.schedules import (
    PLANS,
    Plan,
    Schedule,
    between,
    constant,
    cosine,
    gaussian_ramp_down,
    gaussian_ramp_up,
    product,
    steps,
    warm_up,
)


def train(config: TrainingConfig, *, resume: bool = True, progress: bool | None = None) -> Fitted:
    """Train as the configuration says; the record goes into its folder. Started again, it goes on."""
    device, folder = join_processes(config.device), config.place
    loop = loop_of(config, device, resume=resume, progress=progress)
    if not config.record.tracker:
        return loop.run()
    with alone_in(folder), contextlib.closing(Tracker(config.record.tracker, folder, config)) as tracker:
        loop.hooks = Hooks(after_epoch=tracker.epoch)
        return loop.run()


def loop_of(
    config: TrainingConfig,
    device: torch.device,
    *,
    resume: bool = True,
    hooks: Hooks | None = None,
    progress: bool | None = None,
) -> Loop:
    """The training of a configuration, not started."""
    sets, folder = load_sets(config), config.place
    model = make_model(config, sets)
    sizes = Sizes(getattr(model, "feature_dim", 0), sets.train.num_classes, sets.id_count)
    objective = make_objective(config, sizes, getattr(model, "head", None))
    channels_last = device.type == "cuda" if config.channels_last is None else config.channels_last
    loaders = make_loaders(config, sets, device, channels_last=channels_last)
    return Loop(
        model,
        loaders.train,
        objective,
        make_optimizer(config.optimizer, [*model.parameters(), *objective.parameters()]),
        epochs=config.epochs,
        plan=make_plan(config.schedule, config.optimizer.beta1),
        steps=dataclasses.replace(config.steps(), clip=clip_of(config, objective), channels_last=channels_last),
        test=loaders.test,
        samples=Samples(
            loaders.samples,
            tuple(config.record.scores),
            clean_labels=sets.clean_by_id(),
            fit_every=config.record.fit_every,
            paths=sets.paths,
            skipped=sets.skipped(),
        ),
        recorder=make_recorder(config, sets, device, folder),
        folder=folder,
        resume=resume,
        details=Details(config.name, config.seed, config.as_dict(), sets.train.class_names, loaders.preprocessing),
        hooks=hooks,
        progress=progress,
        device=device,
    )


def make_model(config: TrainingConfig, sets: Sets) -> nn.Module:
    """The network with weights drawn by the configuration's seed, or read from its file."""
    torch.manual_seed(config.seed)
    heads: dict[str, Any] = {"linear": nn.Linear, "angular": AngularLinear, "cosine": cosine_head(config)}
    settled: dict[str, Any] = {
        "num_classes": sets.train.num_classes,
        "in_channels": sets.train.images.shape[1],
        "head": heads[config.model.head],
    }
    doubled = next((option for option in config.model.options if option in settled), None)
    if doubled is not None:
        raise ValueError(f"model.options.{doubled} must be left out: the data and model.head say it")
    with about("model"):
        if ":" in config.model.name:
            known = unknown_name("name", config.model.name, models.names(), "networks")
            raise ValueError(f"{known}; a model of your own is trained by hardsight.training.fit")
        model = models.create(config.model.name, **settled, **config.model.options)
    if config.model.weights is not None:
        with about("model.weights"):
            state = read_tensors(config.model.weights)
            check_fits(model, state, config.model.weights)
        model.load_state_dict(state)
    _check_takes(model, sets.train.images[:1], config.model.name)
    return model


def _check_takes(model: nn.Module, images: Tensor, name: str) -> None:
    """One image through the network, before anything is recorded: small ones leave nothing to pool."""
    with evaluating(model):
        try:
            model(images.float())
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"model.name must be a network that takes images of shape {list(images.shape[1:])}; "
                f"{name!r} does not: {reason}"
            ) from None


def make_optimizer(config: OptimizerConfig, parameters: Any) -> torch.optim.Optimizer:
    """The optimiser over these parameters."""
    with about("optimizer"):
        if config.name == "sgd":
            return torch.optim.SGD(
                parameters,
                lr=config.lr,
                momentum=config.momentum,
                nesterov=config.nesterov,
                weight_decay=config.weight_decay,
            )
        kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
        return kind(parameters, lr=config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay)


def make_plan(config: ScheduleConfig, beta1: float = 0.9) -> Plan:
    """The schedules of learning rate, feature loss and beta1."""
    if config.preset is not None:
        return PLANS[config.preset](config.stretch)
    with about("schedule"):
        kinds: dict[str, Schedule] = {
            "constant": constant,
            "steps": steps(config.milestones, config.factor, config.unit),
            "cosine": cosine(config.final, config.unit),
        }
    rate = [kinds[config.kind]]
    if config.warm_up:
        rate.append(warm_up(config.warm_up, config.unit))
    rise = gaussian_ramp_up(config.ramp_up, config.unit) if config.ramp_up else constant
    fall = gaussian_ramp_down(config.ramp_down, config.unit) if config.ramp_down else constant
    down = None if config.last_beta1 is None else between(config.last_beta1, beta1, fall)
    return Plan(product(*rate, rise, fall), rise, down)


def make_recorder(config: TrainingConfig, sets: Sets, device: torch.device, folder: Path | None) -> Recorder | None:
    """A recorder of every training sample, unless switched off."""
    if not config.record.dynamics:
        return None
    history = folder / "dynamics" if config.record.history and folder is not None else None
    return Recorder(sets.id_count, sets.train.num_classes, device=device, history=history)


class Tracker:
    """Logs one row an epoch under the tracker's own folder in the run, `RUN/NAME`."""

    def __init__(self, name: str, folder: Path, config: TrainingConfig) -> None:
        try:
            from accelerate import PartialState
            from accelerate.tracking import LOGGER_TYPE_TO_CLASS
            from accelerate.utils import LoggerType
        except ImportError:
            raise ImportError("record.tracker needs accelerate: pip install accelerate") from None
        PartialState()  # its trackers ask it which process they are in
        known = [str(one) for one in LoggerType if str(one) != "all"]
        check_name("record.tracker", name, known)
        kind = LOGGER_TYPE_TO_CLASS[name]
        try:
            self.tracker = kind(folder.name, folder / name) if kind.requires_logging_directory else kind(folder.name)
            self.tracker.start()
        except (ImportError, NameError):
            # accelerate imports a tracker's package only if it is there, and finds a name undefined where it is not.
            raise ImportError(f"record.tracker {name!r} needs its package: pip install {name}") from None
        self.tracker.store_init_configuration(_plain(config))

    def epoch(self, number: int, row: Mapping[str, float | int]) -> None:
        """Log an epoch's numbers; one process does."""
        if rank_and_count()[0] == 0:
            self.tracker.log({name: value for name, value in row.items() if name != "epoch"}, step=number)

    def close(self) -> None:
        """Finish what is still to be written."""
        self.tracker.finish()


def _plain(config: TrainingConfig) -> dict[str, Any]:
    """Trackers keep one level of plain values."""
    settings = flat(config.as_dict())
    return {
        key: value if isinstance(value, int | float | str | bool) else str(value) for key, value in settings.items()
    }
