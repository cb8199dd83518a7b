"""A training as a configuration: typed, complete, and written into the record as it is.

The tables of the TOML file are the dataclasses below; a key left out has the default that stands here.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from hardsight.hardness.scoring import choose_scores
from hardsight.names import check_name
from hardsight.training.schedules import PLANS, Steps

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

    name: Annotated[str, "data set, or folder"]
    root: Annotated[str | None, "its folder; left out, below $HARDSIGHT_DATA"] = None
    train: Annotated[str | None, "split to train on"] = None
    test: Annotated[str | None, "split to test on"] = None
    test_name: Annotated[str | None, "another data set to test on"] = None
    held_out: Annotated[float, "share kept for testing where no split lies apart"] = 0.2
    limit: Annotated[int | None, "the first so many samples of each set"] = None
    shrink: Annotated[int, "average squares of so many pixels a side"] = 1
    options: Annotated[dict[str, Any], "for the reader of the training set"] = field(default_factory=dict)
    batch_size: Annotated[int, "of all processes together"] = 128
    test_batch_size: Annotated[int, "of evaluation"] = 512
    drop_last: Annotated[bool, "leave out a last batch that is not full"] = False
    class_balanced: Annotated[tuple[int, ...] | None, "[classes, images of each] in every batch"] = None
    shift: Annotated[int, "largest random shift (pixels)"] = 0
    flip: Annotated[bool, "mirror each image half of the time"] = False
    fill: Annotated[Literal["zero", "edge", "reflect"], "what a shift leaves empty"] = "zero"
    noise_std: Annotated[float, "of Gaussian noise on the normalised image"] = 0.0

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

    kind: Annotated[
        Literal["none", "symmetric", "pairwise", "within_groups", "lookalikes", "human"],
        "which training labels are made wrong",
    ] = "none"
    rate: Annotated[float, "share of labels to change"] = 0.0
    exact: Annotated[bool, "change exactly that share"] = False
    column: Annotated[str | None, "people's labels in the data, for human"] = None
    seed: Annotated[int | None, "of the noise; left out, the training's"] = None

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

    name: Annotated[str, "network"]
    head: Annotated[
        Literal["linear", "angular", "cosine"], "angular: cross-entropy is the AVH loss; cosine: for margin losses"
    ] = "linear"
    weights: Annotated[str | None, "safetensors file to start from"] = None
    options: Annotated[dict[str, Any], "of the network"] = field(default_factory=dict)


@dataclass(frozen=True)
class LossConfig:
    """A loss by name and its options."""

    name: Annotated[str, "loss on logits"] = "cross_entropy"
    options: Annotated[dict[str, Any], "of the loss"] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureLossConfig:
    """A loss on features beside the loss; `weight` at full ramp, `pairs` by the model's predictions or the labels."""

    name: Annotated[str, "loss on features beside the loss; none without this table"]
    weight: Annotated[float, "at full ramp"] = 1.0
    pairs: Annotated[Literal["predictions", "labels"], "whose labels a loss on pairs compares"] = "predictions"
    options: Annotated[dict[str, Any], "of the loss"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _at_least(0, weight=self.weight)


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD, Adam or AdamW. The betas are Adam's, the momentum SGD's."""

    name: Annotated[Literal["sgd", "adam", "adamw"], "optimiser"] = "sgd"
    lr: Annotated[float, "learning rate"] = 0.1
    momentum: Annotated[float, "of SGD"] = 0.9
    nesterov: Annotated[bool, "of SGD"] = False
    weight_decay: Annotated[float, "of all parameters"] = 5e-4
    beta1: Annotated[float, "of Adam"] = 0.9
    beta2: Annotated[float, "of Adam"] = 0.999

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr must be positive; got {self.lr!r}")


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate changes, or a paper's preset instead of everything else.

    `ramp_up` and `ramp_down` are Gaussian: the first also weighs the feature loss, the second takes Adam's beta1 down
    to `last_beta1`. `unit` is what milestones, warm-up and ramps are counted in. `stretch` multiplies a preset's ramps.
    """

    kind: Annotated[Literal["constant", "steps", "cosine"], "how the learning rate changes"] = "constant"
    milestones: Annotated[list[int], "of steps: when the rate changes"] = field(default_factory=list)
    factor: Annotated[float, "what each milestone multiplies the rate by"] = 0.1
    unit: Annotated[Literal["epoch", "step"], "of milestones, warm-up and ramps"] = "epoch"
    warm_up: Annotated[int, "length of the linear warm-up"] = 0
    final: Annotated[float, "of cosine: share of the rate at the end"] = 0.0
    ramp_up: Annotated[int, "length of a Gaussian ramp, of the feature loss too"] = 0
    ramp_down: Annotated[int, "length of a Gaussian ramp at the end"] = 0
    last_beta1: Annotated[float | None, "of Adam, after the ramp down"] = None
    preset: Annotated[str | None, "amc-paper or amc-script, instead of all above"] = None
    stretch: Annotated[float, "multiplies the ramps of a preset"] = 1.0

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

    scores: Annotated[list[str], "of every training sample at the end"] = field(
        default_factory=lambda: ["avh", "confidence", "norm"]
    )
    dynamics: Annotated[bool, "record every sample in every step"] = True
    history: Annotated[bool, "keep its measures of every epoch"] = False
    fit_every: Annotated[int, "epochs between measurements of the fit to right and wrong labels; 0: at the end"] = 0
    checkpoint_every: Annotated[int | None, "steps between checkpoints, beside each epoch's"] = None
    tracker: Annotated[str | None, "of accelerate, by name"] = None

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
    epochs: Annotated[int, "passes over the training set"]
    name: Annotated[str, "of the run"] = "training"
    folder: Annotated[str | None, "of the record; left out, runs/NAME"] = None
    seed: Annotated[int, "of weights, order and augmentation"] = 0
    loss: LossConfig = field(default_factory=LossConfig)
    feature_loss: FeatureLossConfig | None = None
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    precision: Annotated[Literal["auto", "float32", "bf16", "fp16"], "auto: bf16 on CUDA, else float32"] = "auto"
    capture: Annotated[bool, "on CUDA, compile and replay the step"] = True
    channels_last: Annotated[bool | None, "layout of convolutions; left out, on CUDA"] = None
    accumulate: Annotated[int, "batches of one step"] = 1
    clip: Annotated[float | None, "largest norm of the gradient"] = None
    average_decay: Annotated[float | None, "evaluate an exponential average of the weights"] = None
    device: Annotated[str | None, "cpu or cuda:0, say; left out, a GPU where there is one"] = None

    def __post_init__(self) -> None:
        _at_least(1, epochs=self.epochs)
        self.steps()  # refuses what no step can be
        _check_seed(self.seed)
        if not self.name:
            raise ValueError("name must not be empty: it names the run's folder")
        if self.optimizer.name == "sgd" and (self.schedule.preset or self.schedule.last_beta1 is not None):
            raise ValueError("optimizer.name must be adam or adamw for a schedule of beta1; got 'sgd'")

    def steps(self) -> Steps:
        """How the steps are taken."""
        return Steps(
            self.accumulate,
            self.clip,
            self.average_decay,
            self.precision,
            self.capture,
            self.channels_last,
            checkpoint_every=self.record.checkpoint_every,
        )

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
