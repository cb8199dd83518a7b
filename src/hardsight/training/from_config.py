"""A training from a configuration alone: `train` makes network, loss, optimiser, schedules and data, and trains."""

import contextlib
import dataclasses
import functools
import inspect
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
from hardsight.losses.angular import MARGINS, AngularLinear, CosineLinear, MarginLoss, margin_loss
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.correction import noisy_transition
from hardsight.losses.registry import LOSSES, LossEntry, Sizes
from hardsight.losses.rescaling import GradientRescaling
from hardsight.names import check_name, unknown_name
from hardsight.training import schedules
from hardsight.training.checkpoints import check_fits, read_tensors
from hardsight.training.config import OptimizerConfig, ScheduleConfig, TrainingConfig
from hardsight.training.data import Sets, load_sets, make_loaders
from hardsight.training.evaluation import Samples
from hardsight.training.loop import Loop
from hardsight.training.network import Objective
from hardsight.training.reading import about, typed
from hardsight.training.record import Details, Fitted, Hooks, flat
from hardsight.training.schedules import PLANS, Plan, Schedule, constant


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
    record, recorder = config.record, None
    if record.dynamics:
        history = folder / "dynamics" if record.history else None
        recorder = Recorder(sets.id_count, sets.train.num_classes, device=device, history=history)
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
            tuple(record.scores),
            clean_labels=sets.clean_by_id(),
            fit_every=record.fit_every,
            paths=sets.paths,
            skipped=tuple(dict.fromkeys(map(str, (*sets.train.skipped, *sets.test.skipped)))),
        ),
        recorder=recorder,
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
    cosine_head: Any = CosineLinear
    if config.loss.name in MARGINS:
        # With the scale of the margin loss that trains it.
        loss: Any = make_loss(config.loss.name, config.loss.options, Sizes(2, 2, 1), "loss")
        cosine_head = functools.partial(CosineLinear, scale=loss.scale)
    heads: dict[str, Any] = {"linear": nn.Linear, "angular": AngularLinear, "cosine": cosine_head}
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
    images = sets.train.images[:1]
    with evaluating(model):
        try:
            # Before anything is recorded: small images leave nothing to pool.
            model(images.float())
        except RuntimeError as error:
            raise ValueError(
                f"model.name must be a network that takes images of shape {list(images.shape[1:])}; "
                f"{config.model.name!r} does not: {str(error).splitlines()[0]}"
            ) from None
    return model


# What papers and people call a loss, beside its own name.
ALIASES = {"gr": "gradient_rescaling"}


def _entry(name: str, key: str) -> LossEntry:
    name = ALIASES.get(name, name)
    if name not in LOSSES:
        raise unknown_name(f"{key}.name", name, [*LOSSES, *ALIASES], "losses")
    return LOSSES[name]


def make_loss(name: str, options: dict[str, Any], sizes: Sizes, key: str) -> nn.Module:
    """A loss of the registry with options; errors name the configuration's key."""
    entry = _entry(name, key)
    made = entry.make(sizes)
    if not options:
        return made
    kind, known = type(made), _parameters(type(made))
    if isinstance(made, GradientRescaling) and "auto" in (options.get("beta"), options.get("lam")):
        if {options.get("beta", "auto"), options.get("lam", "auto")} != {"auto"}:
            raise ValueError(f'{key}.options must have both beta and lam "auto" or neither; got {options}')
        # The rule chooses both. They are known too, so that a misspelt option is answered with them.
        kind = AutomaticRescaling
        known = _parameters(kind) | {option: known[option] for option in ("beta", "lam")}
        options = {option: value for option, value in options.items() if option not in ("beta", "lam")}
    for option, value in options.items():
        check_name(f"{key}.options of {entry.name}", option, known, "options")
        if known[option].annotation in (bool, int, float, str):
            typed(known[option].annotation, value, f"{key}.options.{option}")
    if "transition" in options:
        # The rate of symmetric noise, or the rows of the matrix.
        wanted, classes, place = options["transition"], sizes.classes, f"{key}.options.transition"
        if isinstance(wanted, int | float):
            matrix = noisy_transition(classes, wanted)
        else:
            rows = typed(list[list[float]], wanted, place)
            if [len(row) for row in rows] != [classes] * classes:
                raise ValueError(f"{place} must be a rate or {classes} rows of {classes} numbers; got {wanted!r}")
            matrix = torch.tensor(rows)
        options = options | {"transition": matrix}
    taken = _parameters(kind)
    sized = {"dim": sizes.dim, "classes": sizes.classes, "num_samples": sizes.samples}
    required = [name for name, one in taken.items() if one.default is inspect.Parameter.empty]
    given: dict[str, Any] = {name: sized[name] for name in required if name in sized}
    # Defaults that the registry chose for this name (all pairs, a transition matrix, a table of samples) stay.
    given |= {name: getattr(made, name) for name in ("transition", "pairs") if name in taken and hasattr(made, name)}
    with about(f"{key}.options"):
        return kind(**(given | options))


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """What a constructor takes that a file can say, by name; that which it hands on to its base included."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if base is nn.Module or "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        named = (one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL))
        found |= {one.name: found.get(one.name, one) for one in named}
        if not any(one.kind == one.VAR_KEYWORD for one in parameters):
            break
    return found


def make_objective(config: TrainingConfig, sizes: Sizes, head: nn.Module | None = None) -> Objective:
    """The loss and, where one is asked for, the loss on features; a margin loss trains `head`, the model's own."""
    loss: Any = make_loss(config.loss.name, config.loss.options, sizes, "loss")
    if isinstance(loss, MarginLoss) and isinstance(head, CosineLinear):
        options = {name: getattr(loss, name) for name in ("kind", "scale", "margin", "annealing")}

        # No module: the weights belong to the model alone.
        def loss_of_head(features: Tensor, labels: Tensor) -> Tensor:
            return margin_loss(features, head.weight, labels, **options)

        loss = loss_of_head
    elif isinstance(loss, AutomaticRescaling) and config.accumulate > 1:
        raise ValueError(f'accumulate must be 1 with beta and lam "auto"; got {config.accumulate}')
    elif _entry(config.loss.name, "loss").takes == "features":
        # Trained by it, the network's own head would stay as it was drawn, and every accuracy with it.
        raise ValueError(
            f"loss.name must be a loss on logits; {config.loss.name!r} looks at features: make it feature_loss, or set "
            'model.head = "angular", with which cross-entropy is the AVH loss, or "cosine" for a margin loss'
        )
    beside = config.feature_loss
    if beside is None:
        return Objective(loss)
    if _entry(beside.name, "feature_loss").takes != "features":
        on_features = ", ".join(name for name, entry in LOSSES.items() if entry.takes == "features")
        raise ValueError(f"feature_loss.name must be a loss on features, {on_features}; got {beside.name!r}")
    extra = make_loss(beside.name, beside.options, sizes, "feature_loss")
    return Objective(loss, extra, feature_weight=beside.weight, pairs=beside.pairs)


def clip_of(config: TrainingConfig, objective: Objective) -> float | None:
    """The largest norm of the gradient; 1 for automatic gradient rescaling, whose rule was chosen with that limit."""
    automatic = isinstance(objective.loss, AutomaticRescaling)
    return 1.0 if config.clip is None and automatic else config.clip


def make_optimizer(config: OptimizerConfig, parameters: Any) -> torch.optim.Optimizer:
    """The optimiser over these parameters."""
    with about("optimizer"):
        if config.name == "sgd":
            own = {name: getattr(config, name) for name in ("lr", "momentum", "nesterov", "weight_decay")}
            return torch.optim.SGD(parameters, **own)
        kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
        return kind(parameters, lr=config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay)


def make_plan(config: ScheduleConfig, beta1: float = 0.9) -> Plan:
    """The schedules of learning rate, feature loss and beta1."""
    if config.preset is not None:
        return PLANS[config.preset](config.stretch)
    with about("schedule"):
        kinds: dict[str, Schedule] = {
            "constant": constant,
            "steps": schedules.steps(config.milestones, config.factor, config.unit),
            "cosine": schedules.cosine(config.final, config.unit),
        }
    rate = [kinds[config.kind]]
    if config.warm_up:
        rate.append(schedules.warm_up(config.warm_up, config.unit))
    rise = schedules.gaussian_ramp_up(config.ramp_up, config.unit) if config.ramp_up else constant
    fall = schedules.gaussian_ramp_down(config.ramp_down, config.unit) if config.ramp_down else constant
    down = None if config.last_beta1 is None else schedules.between(config.last_beta1, beta1, fall)
    return Plan(schedules.product(*rate, rise, fall), rise, down)


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
        settings = flat(config.as_dict())
        plain = {key: value if isinstance(value, int | float | str) else str(value) for key, value in settings.items()}
        self.tracker.store_init_configuration(plain)

    def epoch(self, number: int, row: Mapping[str, float | int]) -> None:
        """Log an epoch's numbers; one process does."""
        if rank_and_count()[0] == 0:
            self.tracker.log({name: value for name, value in row.items() if name != "epoch"}, step=number)

    def close(self) -> None:
        """Finish what is still to be written."""
        self.tracker.finish()
