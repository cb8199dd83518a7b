"""A training as a configuration: typed, complete, and written into the record as it is.

The tables of the TOML file are the classes below; a key left out has the default that is given here.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from hardsight.hardness.scoring import choose_scores
from hardsight.names import check_name
from hardsight.training.reading import Named, Number, Settings, Whole
from hardsight.training.schedules import PLANS, Steps

# Far above every batch: the numbers of its samples alone are held at once.
_LARGEST_BATCH = 2**24


class DataConfig(Named):
    """Which data, and what happens to each training image.

    `test_name`: CIFAR-10N has no test set of its own, and is tested on CIFAR-10's. Where there is no test split apart
    from the training set ("all" holds every split), the share `held_out` of the training set is kept for it.
    """

    name: str = Field(description="data set, or folder")
    root: str | None = Field(default=None, description="its folder; left out, below $HARDSIGHT_DATA")
    train: str | None = Field(default=None, description="split to train on")
    test: str | None = Field(default=None, description="split to test on")
    test_name: str | None = Field(default=None, description="another data set to test on")
    held_out: Number = Field(default=0.2, gt=0, lt=1, description="share kept for testing where there is no test split")
    limit: Whole | None = Field(default=None, ge=1, description="the first so many samples of each set")
    shrink: Whole = Field(default=1, ge=1, description="average squares of so many pixels a side")
    options: dict[str, Any] = Field(default_factory=dict, description="for the reader of the training set")
    batch_size: Whole = Field(default=128, ge=1, le=_LARGEST_BATCH, description="of all processes together")
    test_batch_size: Whole = Field(default=512, ge=1, le=_LARGEST_BATCH, description="of evaluation")
    drop_last: bool = Field(default=False, description="leave out a last batch that is not full")
    class_balanced: list[Whole] | None = Field(
        default=None, min_length=2, max_length=2, description="[classes, images of each] in every batch"
    )
    shift: Whole = Field(default=0, ge=0, description="largest random shift (pixels)")
    flip: bool = Field(default=False, description="mirror each image half of the time")
    fill: Literal["zero", "edge", "reflect"] = Field(default="zero", description="what a shift leaves empty")
    noise_std: Number = Field(default=0.0, ge=0, description="of Gaussian noise on the normalised image")


class NoiseConfig(Settings):
    """Which training labels are made wrong."""

    kind: Literal["none", "symmetric", "pairwise", "within_groups", "lookalikes", "human"] = Field(
        default="none", description="which training labels are made wrong"
    )
    rate: Number = Field(default=0.0, ge=0, le=1, description="share of labels to change")
    exact: bool = Field(default=False, description="change exactly that share")
    column: str | None = Field(default=None, description="people's labels in the data, for human")
    seed: Whole | None = Field(default=None, ge=0, description="of the noise; left out, the training's")

    @model_validator(mode="after")
    def _check(self) -> "NoiseConfig":
        if self.rate and self.kind in ("none", "human"):
            raise ValueError(f"kind must be symmetric, say, where a rate is given, {self.rate!r}; got {self.kind!r}")
        return self


class SamplerConfig(Settings):
    """The order of the training samples, by a score of an earlier run, say; an epoch keeps its number of batches."""

    kind: Literal["curriculum", "hard", "importance"] = Field(description="easy first, hardest alone, by hardness")
    scores: str = Field(description="run folder, or Parquet file with the columns id and score")
    score: str = Field(default="avh", description="column of hardness")
    options: dict[str, Any] = Field(default_factory=dict, description="of the sampler")


class ModelConfig(Named):
    """A network by name, its own options, and its head; the logits of the angular one are s(pi - angle)."""

    name: str = Field(description="network")
    head: Literal["linear", "angular", "cosine"] = Field(
        default="linear", description="angular: cross-entropy is the AVH loss; cosine: for margin losses"
    )
    weights: str | None = Field(default=None, description="safetensors file to start from")
    options: dict[str, Any] = Field(default_factory=dict, description="of the network")


class LossConfig(Named):
    """A loss by name and its options."""

    name: str = Field(default="cross_entropy", description="loss on logits")
    options: dict[str, Any] = Field(default_factory=dict, description="of the loss")


class FeatureLossConfig(Named):
    """A loss on features beside the loss."""

    name: str = Field(description="loss on features beside the loss; none without this table")
    weight: Number = Field(default=1.0, ge=0, description="at full ramp")
    pairs: Literal["predictions", "labels"] = Field(default="predictions", description="whose labels make the pairs")
    options: dict[str, Any] = Field(default_factory=dict, description="of the loss")


class OptimizerConfig(Named):
    """SGD, Adam or AdamW."""

    name: Literal["sgd", "adam", "adamw"] = Field(default="sgd", description="optimiser")
    lr: Number = Field(default=0.1, gt=0, description="learning rate")
    momentum: Number = Field(default=0.9, description="of SGD")
    nesterov: bool = Field(default=False, description="of SGD")
    weight_decay: Number = Field(default=5e-4, description="of all parameters")
    beta1: Number = Field(default=0.9, description="of Adam")
    beta2: Number = Field(default=0.999, description="of Adam")


class ScheduleConfig(Settings):
    """How the learning rate changes, or a paper's preset instead of everything else.

    `ramp_up` and `ramp_down` are Gaussian: the first also weighs the feature loss, the second takes Adam's beta1 down
    to `last_beta1`.
    """

    kind: Literal["constant", "steps", "cosine"] = Field(default="constant", description="of the learning rate")
    milestones: list[Whole] = Field(default_factory=list, description="of steps: when the rate changes")
    factor: Number = Field(default=0.1, ge=0, description="what each milestone multiplies the rate by")
    unit: Literal["epoch", "step"] = Field(default="epoch", description="of milestones, warm-up and ramps")
    warm_up: Whole = Field(default=0, ge=0, description="length of the linear warm-up")
    final: Number = Field(default=0.0, ge=0, description="of cosine: share of the rate at the end")
    ramp_up: Whole = Field(default=0, ge=0, description="length of a Gaussian ramp, of the feature loss too")
    ramp_down: Whole = Field(default=0, ge=0, description="length of a Gaussian ramp at the end")
    last_beta1: Number | None = Field(default=None, description="of Adam, after the ramp down")
    preset: str | None = Field(default=None, description="amc-paper or amc-script, instead of all above")
    stretch: Number = Field(default=1.0, gt=0, description="multiplies the ramps of a preset")

    @model_validator(mode="after")
    def _check(self) -> "ScheduleConfig":
        if self.preset is not None:
            check_name("preset", self.preset, PLANS)
        if self.kind == "steps" and not self.milestones:
            raise ValueError("milestones must be given for a schedule of steps")
        return self


class RecordConfig(Settings):
    """What the record holds."""

    scores: list[str] = Field(default=["avh", "confidence", "norm"], description="of every training sample at the end")
    dynamics: bool = Field(default=True, description="record every sample in every step")
    history: bool = Field(default=False, description="keep its measures of every epoch")
    fit_every: Whole = Field(
        default=0, ge=0, description="epochs between measurements of the fit to right and wrong labels; 0: at the end"
    )
    checkpoint_every: Whole | None = Field(default=None, ge=1, description="steps between checkpoints in an epoch")
    tracker: str | None = Field(default=None, description="of accelerate, by name")

    @model_validator(mode="after")
    def _check(self) -> "RecordConfig":
        if self.scores:
            choose_scores(self.scores)
        return self


class TrainingConfig(Settings):
    """One training."""

    data: DataConfig
    model: ModelConfig
    epochs: Whole = Field(ge=1, description="passes over the training set")
    name: str = Field(default="training", description="of the run")
    folder: str | None = Field(default=None, description="of the record; left out, runs/NAME")
    seed: Whole = Field(default=0, ge=0, description="of weights, order and augmentation")
    loss: LossConfig = LossConfig()
    feature_loss: FeatureLossConfig | None = None
    noise: NoiseConfig = NoiseConfig()
    sampler: SamplerConfig | None = None
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    record: RecordConfig = RecordConfig()
    precision: Literal["auto", "float32", "bf16", "fp16"] = Field(default="auto", description="auto: bf16 on CUDA")
    capture: bool = Field(default=True, description="on CUDA, compile and replay the step")
    channels_last: bool | None = Field(default=None, description="layout of convolutions; left out, on CUDA")
    accumulate: Whole = Field(default=1, description="batches of one step")
    clip: Number | None = Field(default=None, description="largest norm of the gradient")
    average_decay: Number | None = Field(default=None, description="evaluate an exponential average of the weights")
    device: str | None = Field(default=None, description="cpu or cuda:0, say; left out, a GPU where there is one")

    @model_validator(mode="after")
    def _check(self) -> "TrainingConfig":
        self.steps()  # rejects what no step can be
        if not self.name:
            raise ValueError("name must not be empty: it names the run's folder")
        if self.optimizer.name == "sgd" and (self.schedule.preset or self.schedule.last_beta1 is not None):
            raise ValueError("optimizer.name must be adam or adamw for a schedule of beta1; got 'sgd'")
        return self

    def steps(self) -> Steps:
        """How the steps are taken."""
        names = ("accumulate", "clip", "average_decay", "precision", "capture", "channels_last")
        own = {name: getattr(self, name) for name in names}
        return Steps(**own, checkpoint_every=self.record.checkpoint_every)

    @property
    def place(self) -> Path:
        """The folder of its record."""
        return Path(self.folder) if self.folder else Path("runs") / self.name

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain values: what the record holds."""
        return self.model_dump()
