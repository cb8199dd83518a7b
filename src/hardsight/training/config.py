"""A training as a configuration: typed, complete, and written into the record as it is.

The tables of the TOML file are the dataclasses below; a key left out has the default that stands here.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hardsight.hardness.scoring import choose_scores
from hardsight.names import check_name
from hardsight.training.schedules import PLANS

# What torch's generators take.
_LARGEST_SEED = 2**63 - 1
# Far above every batch: the numbers of its samples alone are held at once.
_LARGEST_BATCH = 2**24


@dataclass(frozen=True)
class DataConfig:
    """Which data, and what happens to each training image.

    `train` and `test` name splits; `test_name` another data set to test on (CIFAR-10N has no test set: CIFAR-10's).
    Where there is no test split apart from the training set ("all" holds every split), the share `held_out` of the
    training set is kept for it. `limit`: the first so many samples of each set. `shrink`: average squares of so many
    pixels a side. `options` go to the reader of the training set.
    """

    name: str
    root: str | None = None
    train: str | None = None
    test: str | None = None
    test_name: str | None = None
    held_out: float = 0.2
    limit: int | None = None
    shrink: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 128
    test_batch_size: int = 512
    drop_last: bool = False
    class_balanced: tuple[int, ...] | None = None
    shift: int = 0
    flip: bool = False
    fill: Literal["zero", "edge", "reflect"] = "zero"
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        _at_least(1, batch_size=self.batch_size, test_batch_size=self.test_batch_size, shrink=self.shrink)
        _at_least(1, limit=self.limit)
        _at_least(0, shift=self.shift, noise_std=self.noise_std)
        for name in ("batch_size", "test_batch_size"):
            if getattr(self, name) > _LARGEST_BATCH:
                raise ValueError(f"{name} must be at most {_LARGEST_BATCH}; got {getattr(self, name)}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must lie in (0, 1), the share kept for testing; got {self.held_out!r}")
        if self.class_balanced is not None and len(self.class_balanced) != 2:
            raise ValueError(f"class_balanced must be [classes, images of each]; got {list(self.class_balanced)}")


@dataclass(frozen=True)
class NoiseConfig:
    """Which training labels are made wrong. `column` names people's labels in the data for `kind = "human"`."""

    kind: Literal["none", "symmetric", "pairwise", "within_groups", "lookalikes", "human"] = "none"
    rate: float = 0.0
    exact: bool = False
    column: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate must lie in [0, 1], the share of labels to change; got {self.rate!r}")
        if self.rate and self.kind in ("none", "human"):
            raise ValueError(f"kind must be symmetric, say, where a rate is given, {self.rate!r}; got {self.kind!r}")
        _check_seed(self.seed)


@dataclass(frozen=True)
class ModelConfig:
    """A network by name, its own options, and its head; `weights`: a safetensors file to start from.

    The head is linear, "angular" (logits s(pi - angle): cross-entropy is the AVH loss) or "cosine", which the margin
    losses train.
    """

    name: str
    head: Literal["linear", "angular", "cosine"] = "linear"
    weights: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LossConfig:
    """A loss by name and its options."""

    name: str = "cross_entropy"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureLossConfig:
    """A loss on features beside the loss; `weight` at full ramp, `pairs` by the model's predictions or the labels."""

    name: str
    weight: float = 1.0
    pairs: Literal["predictions", "labels"] = "predictions"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _at_least(0, weight=self.weight)


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD, Adam or AdamW. The betas are Adam's, the momentum SGD's."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr must be positive; got {self.lr!r}")


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate changes, or a paper's preset instead of everything else.

    `ramp_up` and `ramp_down` are Gaussian: the first also weighs the feature loss, the second takes Adam's beta1 down
    to `last_beta1`. `unit` is what milestones, warm-up and ramps are counted in. `stretch` multiplies a preset's ramps.
    """

    kind: Literal["constant", "steps", "cosine"] = "constant"
    milestones: list[int] = field(default_factory=list)
    factor: float = 0.1
    unit: Literal["epoch", "step"] = "epoch"
    warm_up: int = 0
    final: float = 0.0
    ramp_up: int = 0
    ramp_down: int = 0
    last_beta1: float | None = None
    preset: str | None = None
    stretch: float = 1.0

    def __post_init__(self) -> None:
        _at_least(0, warm_up=self.warm_up, ramp_up=self.ramp_up, ramp_down=self.ramp_down)
        _at_least(0, factor=self.factor, final=self.final)
        if self.preset is not None:
            check_name("preset", self.preset, PLANS)
        if not self.stretch > 0:
            raise ValueError(f"stretch must be positive; got {self.stretch!r}")
        if self.kind == "steps" and not self.milestones:
            raise ValueError("milestones must be given for a schedule of steps")


@dataclass(frozen=True)
class RecordConfig:
    """What the record holds. `fit_every`: epochs between measurements of the fit to right and wrong labels."""

    scores: list[str] = field(default_factory=lambda: ["avh", "confidence", "norm"])
    dynamics: bool = True
    history: bool = False
    fit_every: int = 0
    checkpoint_every: int | None = None
    tracker: str | None = None

    def __post_init__(self) -> None:
        _at_least(0, fit_every=self.fit_every)
        _at_least(1, checkpoint_every=self.checkpoint_every)
        if self.scores:
            choose_scores(self.scores)


@dataclass(frozen=True)
class TrainingConfig:
    """One training. `folder` left out: runs/NAME."""

    data: DataConfig
    model: ModelConfig
    epochs: int
    name: str = "training"
    folder: str | None = None
    seed: int = 0
    loss: LossConfig = field(default_factory=LossConfig)
    feature_loss: FeatureLossConfig | None = None
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    precision: Literal["auto", "float32", "bf16", "fp16"] = "auto"
    capture: bool = True
    channels_last: bool | None = None
    accumulate: int = 1
    clip: float | None = None
    average_decay: float | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        _at_least(1, epochs=self.epochs, accumulate=self.accumulate)
        _check_seed(self.seed)
        if not self.name:
            raise ValueError("name must not be empty: it names the run's folder")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive, the largest norm of the gradient; got {self.clip!r}")
        if self.optimizer.name == "sgd" and (self.schedule.preset or self.schedule.last_beta1 is not None):
            raise ValueError("optimizer.name must be adam or adamw for a schedule of beta1; got 'sgd'")
        if self.average_decay is not None and not 0 <= self.average_decay < 1:
            raise ValueError(f"average_decay must lie in [0, 1); got {self.average_decay!r}")

    @property
    def place(self) -> Path:
        """The folder of its record."""
        return Path(self.folder) if self.folder else Path("runs") / self.name

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain values: what the record holds."""
        return dataclasses.asdict(self)


def _at_least(least: int, **values: float | int | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value!r}")


def _check_seed(seed: int | None) -> None:
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"seed must lie in [0, {_LARGEST_SEED}]; got {seed!r}")
