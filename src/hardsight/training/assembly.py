"""From a configuration to objects: data, noise, network, losses, optimiser, schedules; then `fit`."""

import dataclasses
import difflib
import functools
import inspect
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardsight import datasets, models, noise
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.losses.angular import AngularLinear
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.margins import MARGINS, CosineLinear, MarginLoss, margin_loss
from hardsight.losses.registry import LOSSES, Sizes, noisy_transition
from hardsight.training.checkpoints import check_fits
from hardsight.training.config import DataConfig, NoiseConfig, OptimizerConfig, ScheduleConfig, TrainingConfig
from hardsight.training.evaluation import process
from hardsight.training.network import Objective
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


class Sets(NamedTuple):
    """Training set with the labels it is trained on, the true labels where they are known, and the test set."""

    train: datasets.ArrayDataset
    labels: Tensor
    clean: Tensor | None
    test: datasets.ArrayDataset

    @property
    def id_count(self) -> int:
        """One more than the largest id: how many rows a table of samples by id needs."""
        return int(self.train.ids.max()) + 1

    def clean_by_id(self) -> Tensor | None:
        """The true label at each id; -1 where there is no such sample."""
        if self.clean is None:
            return None
        return torch.full((self.id_count,), -1).scatter_(0, self.train.ids, self.clean)

    def statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel over the training images, as shares of full brightness."""
        channels = self.train.images.shape[1]
        counts = torch.stack(
            [torch.bincount(self.train.images[:, place].flatten().int(), minlength=256) for place in range(channels)]
        ).double()
        values, total = torch.arange(256, dtype=torch.float64) / 255, counts.sum(1)
        mean = (counts * values).sum(1) / total
        spread = ((counts * values.square()).sum(1) / total - mean.square()).clamp_min(1e-12).sqrt()
        return mean.tolist(), spread.tolist()


def load_sets(config: TrainingConfig) -> Sets:
    """The data as the configuration asks for it, with noise on the training labels."""
    data = config.data
    train = _in_memory(datasets.load(data.name, data.train, data.root, **data.options))
    splits = list(datasets.source(data.test_name or data.name).splits)
    if data.test_name is not None or data.test is not None or (data.train is None and len(splits) > 1):
        split = data.test or ("test" if "test" in splits else splits[-1])
        own = {} if data.test_name else data.options
        test = _in_memory(datasets.load(data.test_name or data.name, split, data.root, **own))
    else:
        train, test = _hold_out(train, data.held_out, config.seed)
    if data.limit is not None:
        train, test = (one.subset(torch.arange(min(data.limit, len(one)))) for one in (train, test))
    if data.shrink > 1:
        train, test = shrunk(train, data.shrink), shrunk(test, data.shrink)
    if train.num_classes != test.num_classes:
        raise ValueError(
            f"data.test_name must have the classes of data.name, {train.num_classes}; got {test.num_classes}"
        )
    labels = noisy_labels(train, config.noise, config.seed)
    clean = None if labels is None else train.labels
    return Sets(train, train.labels if labels is None else labels, clean, test)


def shrunk(data: datasets.ArrayDataset, side: int) -> datasets.ArrayDataset:
    """The set with every square of `side` x `side` pixels averaged to one."""
    smaller = nn.functional.avg_pool2d(data.images.float(), side).round().to(torch.uint8)
    return dataclasses.replace(data, images=smaller)


def _in_memory(data: datasets.ArrayDataset | datasets.FileDataset) -> datasets.ArrayDataset:
    return data.load() if isinstance(data, datasets.FileDataset) else data


def _hold_out(
    data: datasets.ArrayDataset, share: float, seed: int
) -> tuple[datasets.ArrayDataset, datasets.ArrayDataset]:
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    kept = round(share * len(data))
    return data.subset(order[kept:].sort().values), data.subset(order[:kept].sort().values)


_LOOKALIKES = {"cifar10": noise.CIFAR10_LOOKALIKES, "mnist": noise.MNIST_LOOKALIKES}


def noisy_labels(data: datasets.ArrayDataset, config: NoiseConfig, seed: int) -> Tensor | None:
    """The training labels after noise; None without noise."""
    generator = torch.Generator().manual_seed(seed if config.seed is None else config.seed)
    classes = data.num_classes
    options: dict[str, Any] = {"generator": generator, "exact": config.exact}
    if config.kind == "none":
        return None
    if config.kind == "symmetric":
        return noise.flip_symmetric(data.labels, config.rate, classes, **options).labels
    if config.kind == "pairwise":
        return noise.flip_pairwise(data.labels, config.rate, classes, **options).labels
    name = "".join(letter for letter in data.name.lower() if letter.isalnum())
    if config.kind == "within_groups":
        if name != "cifar100":
            raise ValueError(
                f"noise.kind 'within_groups' needs CIFAR-100's coarse classes; got data.name {data.name!r}"
            )
        return noise.flip_within_groups(data.labels, config.rate, noise.CIFAR100_COARSE, **options).labels
    if config.kind == "lookalikes":
        if name not in _LOOKALIKES:
            raise ValueError(f"noise.kind 'lookalikes' is known for {', '.join(_LOOKALIKES)}; got {data.name!r}")
        return noise.flip_by_mapping(data.labels, config.rate, _LOOKALIKES[name], classes, **options).labels
    if config.column is None or config.column not in data.columns:
        there = ", ".join(data.columns) or "none"
        raise ValueError(f"noise.column must name a column of the data (there: {there}); got {config.column!r}")
    return noise.human_labels(data.labels, data.columns[config.column], classes, generator=generator).labels


def make_model(config: TrainingConfig, sets: Sets) -> nn.Module:
    """The network with weights drawn by the configuration's seed, or read from its file."""
    torch.manual_seed(config.seed)
    heads: dict[str, Any] = {"linear": nn.Linear, "angular": AngularLinear, "cosine": _cosine_head(config)}
    try:
        model = models.create(
            config.model.name,
            num_classes=sets.train.num_classes,
            in_channels=sets.train.images.shape[1],
            head=heads[config.model.head],
            **config.model.options,
        )
    except (ValueError, TypeError) as refusal:
        raise ValueError(f"model: {refusal}") from None
    if config.model.weights is not None:
        import safetensors.torch

        state = safetensors.torch.load(Path(config.model.weights).read_bytes())
        check_fits(model, state, config.model.weights)
        model.load_state_dict(state)
    return model


def _cosine_head(config: TrainingConfig) -> Any:
    """A head of cosines with the scale of the margin loss that trains it."""
    if config.loss.name not in MARGINS:
        return CosineLinear
    loss = make_loss(config.loss.name, config.loss.options, Sizes(2, 2, 1), "loss")
    assert isinstance(loss, MarginLoss)
    return functools.partial(CosineLinear, scale=loss.scale)


class _MarginOfHead:
    """A margin loss on the weights of the model's own head. No module: the weights belong to the model alone."""

    def __init__(self, loss: MarginLoss, head: CosineLinear) -> None:
        self.head = head
        self.options: dict[str, Any] = {
            "kind": loss.kind,
            "scale": loss.scale,
            "margin": loss.margin,
            "annealing": loss.annealing,
        }

    def __call__(self, features: Tensor, labels: Tensor) -> Tensor:
        return margin_loss(features, self.head.weight, labels, **self.options)


# What papers and people call a loss, beside its own name.
ALIASES = {"gr": "gradient_rescaling"}


def make_loss(name: str, options: dict[str, Any], sizes: Sizes, key: str) -> nn.Module:
    """A loss of the registry with options; errors name the configuration's key."""
    name = ALIASES.get(name, name)
    if name not in LOSSES:
        near = difflib.get_close_matches(name, [*LOSSES, *ALIASES], n=1, cutoff=0.0)
        raise ValueError(f"{key}.name must be a known loss; got {name!r}, did you mean {near[0]!r}?")
    if name == "gradient_rescaling" and "auto" in (options.get("beta"), options.get("lam")):
        return _automatic(options, sizes, key)
    made = LOSSES[name].make(sizes)
    if not options:
        return made
    known = _parameters(type(made))
    _check_options(options, known, name, key)
    if "transition" in options:
        options = options | {"transition": _transition(options["transition"], sizes.classes)}
    sized = {"dim": sizes.dim, "classes": sizes.classes, "num_samples": sizes.samples}
    needed: dict[str, Any] = {
        place: size for place, size in sized.items() if place in known and known[place] is inspect.Parameter.empty
    }
    # Defaults that the registry chose for this name (all pairs, a transition matrix, a table of samples) stay.
    chosen = {
        place: getattr(made, place) for place in ("transition", "pairs") if place in known and hasattr(made, place)
    }
    try:
        return type(made)(**(needed | chosen | options))
    except (ValueError, TypeError) as refusal:
        raise ValueError(f"{key}.options: {refusal}") from None


def _automatic(options: dict[str, Any], sizes: Sizes, key: str) -> AutomaticRescaling:
    """Gradient rescaling that chooses beta and lam; both, because its rule gives pairs."""
    chosen = {knob: options.get(knob, "auto") for knob in ("beta", "lam")}
    if set(chosen.values()) != {"auto"}:
        given = ", ".join(f"{knob} = {value!r}" for knob, value in chosen.items())
        raise ValueError(f'{key}.options must have both beta and lam "auto" or neither; got {given}')
    others = {option: value for option, value in options.items() if option not in chosen}
    _check_options(others, _parameters(AutomaticRescaling), "automatic gradient rescaling", key)
    try:
        return AutomaticRescaling(**({"classes": sizes.classes} | others))
    except (ValueError, TypeError) as refusal:
        raise ValueError(f"{key}.options: {refusal}") from None


def _check_options(options: dict[str, Any], known: dict[str, Any], name: str, key: str) -> None:
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1, cutoff=0.0)
            raise ValueError(f"{key}.options.{option} is no option of {name}; did you mean {near[0]}?")


def _transition(value: Any, classes: int) -> Tensor:
    """A transition matrix as a configuration can write it: its rows, or the rate of symmetric noise."""
    return noisy_transition(classes, value) if isinstance(value, int | float) else torch.as_tensor(value)


def _parameters(kind: type) -> dict[str, Any]:
    """Names and defaults of what a constructor takes, those that it hands on to its base included."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base is nn.Module or "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        found |= {
            one.name: one.default
            for one in parameters
            if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name not in found
        }
        if not any(one.kind == one.VAR_KEYWORD for one in parameters):
            break
    return found


def make_objective(config: TrainingConfig, sizes: Sizes, head: nn.Module | None = None) -> Objective:
    """The loss and, where one is asked for, the loss on features; a margin loss trains `head`, the model's own."""
    loss: Any = make_loss(config.loss.name, config.loss.options, sizes, "loss")
    if isinstance(loss, MarginLoss) and isinstance(head, CosineLinear):
        loss = _MarginOfHead(loss, head)
    elif isinstance(loss, AutomaticRescaling) and config.accumulate > 1:
        raise ValueError(f'accumulate must be 1 with beta and lam "auto"; got {config.accumulate}')
    elif LOSSES[ALIASES.get(config.loss.name, config.loss.name)].takes == "features":
        # Trained by it, the network's own head would stay as it was drawn, and every accuracy with it.
        raise ValueError(
            f"loss.name must be a loss on logits; {config.loss.name!r} looks at features: make it feature_loss, or set "
            'model.head = "angular", with which cross-entropy is the AVH loss, or "cosine" for a margin loss'
        )
    beside = config.feature_loss
    if beside is None:
        return Objective(loss)
    extra = make_loss(beside.name, beside.options, sizes, "feature_loss")
    return Objective(loss, extra, feature_weight=beside.weight, pairs=beside.pairs)


def clip_of(config: TrainingConfig, objective: Objective) -> float | None:
    """The largest norm of the gradient; 1 for automatic gradient rescaling unless the configuration says another.

    Rescaled gradients do not vanish as samples are fitted: without a limit such trainings may collapse.
    """
    if config.clip is None and isinstance(objective.loss, AutomaticRescaling):
        return 1.0
    return config.clip


def make_optimizer(config: OptimizerConfig, parameters: Any) -> torch.optim.Optimizer:
    """The optimiser over these parameters."""
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


class Loaders(NamedTuple):
    """Training batches, the training set as it is, and the test set."""

    train: DeviceLoader
    samples: DeviceLoader
    test: DeviceLoader


def make_loaders(config: TrainingConfig, sets: Sets, device: torch.device, *, channels_last: bool) -> Loaders:
    """The loaders; the ids are those of the data set."""
    data, (mean, std) = config.data, sets.statistics()
    rank, world = process()
    common: dict[str, Any] = {"device": device, "mean": mean, "std": std, "channels_last": channels_last}
    plain = {**common, "batch_size": data.test_batch_size, "shuffle": False}
    train = DeviceLoader(
        sets.train.images,
        sets.labels,
        sets.train.ids,
        data.batch_size,
        seed=config.seed,
        augmentation=augmentation_of(data),
        drop_last=data.drop_last,
        class_balanced=None if data.class_balanced is None else (data.class_balanced[0], data.class_balanced[1]),
        rank=rank,
        world_size=world,
        **common,
    )
    # The same memory: the set lies on the device once.
    samples = DeviceLoader(train.images, sets.labels, train.ids, **plain)
    return Loaders(train, samples, DeviceLoader(sets.test.images, sets.test.labels, sets.test.ids, **plain))


def augmentation_of(data: DataConfig) -> Augmentation:
    """What the configuration asks to be done to each training image."""
    return Augmentation(shift=data.shift, fill=data.fill, flip=data.flip, noise_std=data.noise_std)


def make_recorder(config: TrainingConfig, sets: Sets, device: torch.device, folder: Path | None) -> Recorder | None:
    """A recorder of every training sample, unless switched off."""
    if not config.record.dynamics:
        return None
    history = folder / "dynamics" if config.record.history and folder is not None else None
    return Recorder(sets.id_count, sets.train.num_classes, device=device, history=history)
