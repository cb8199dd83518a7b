"""How steps are taken, and how learning rate, loss weight and Adam's beta1 change: functions of the position.

A schedule maps a `Position` to a factor, usually in [0, 1], and knows nothing of optimisers. Its time is counted in
epochs (whole ones finished so far) or in optimiser steps, whichever the paper it comes from counts in.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from hardsight.losses import contrastive as ramps
from hardsight.losses.contrastive import AMC_PAPER, AMC_SCRIPT, AMCSchedule

Unit = Literal["epoch", "step"]


@dataclass(frozen=True)
class Position:
    """The position of a training before a step: steps done so far, steps in an epoch, epochs in all."""

    step: int
    steps_per_epoch: int
    epochs: int

    @property
    def epoch(self) -> int:
        """Epochs finished so far."""
        return self.step // self.steps_per_epoch

    def time(self, unit: Unit) -> int:
        """Epochs or steps finished so far."""
        return self.epoch if unit == "epoch" else self.step

    def total(self, unit: Unit) -> int:
        """Epochs or steps of the whole training."""
        return self.epochs if unit == "epoch" else self.epochs * self.steps_per_epoch


Schedule = Callable[[Position], float]


def constant(position: Position) -> float:
    """1, always."""
    return 1.0


def steps(milestones: Sequence[int], factor: float = 0.1, unit: Unit = "epoch") -> Schedule:
    """`factor` to the power of the milestones passed."""
    ordered = sorted(milestones)
    if ordered and ordered[0] < 0:
        raise ValueError(f"milestones must be 0 or later; got {list(milestones)}")
    return lambda position: factor ** sum(position.time(unit) >= milestone for milestone in ordered)


def cosine(final: float = 0.0, unit: Unit = "step") -> Schedule:
    """Half a cosine from 1 at the start to `final` at the end (Loshchilov & Hutter 2017, without restarts)."""

    def at(position: Position) -> float:
        done = position.time(unit) / position.total(unit)
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))

    return at


def warm_up(length: int, unit: Unit = "step") -> Schedule:
    """Linear to 1: 1/length in the first unit of time, 1 from the last unit of the warm-up on."""
    _check_length(length)
    return lambda position: min(1.0, (position.time(unit) + 1) / length)


def gaussian_ramp_up(length: int, unit: Unit = "epoch") -> Schedule:
    """exp[-5 (1 - t/length)^2] until `length`, then 1 (AMC-Loss, Section 4; after Laine & Aila 2017)."""
    _check_length(length)
    return lambda position: ramps.gaussian_ramp_up(position.time(unit), length)


def gaussian_ramp_down(length: int, unit: Unit = "epoch", sharpness: float = 12.5) -> Schedule:
    """1, and over the last `length` exp[-12.5 (1 - (T - t)/length)^2] (AMC-Loss, Section 4)."""
    _check_length(length)
    return lambda position: ramps.gaussian_ramp_down(position.time(unit), position.total(unit), length, sharpness)


def product(*factors: Schedule) -> Schedule:
    """The factors multiplied: a warm-up and what follows it, say."""
    return lambda position: math.prod(factor(position) for factor in factors)


def between(low: float, high: float, factor: Schedule) -> Schedule:
    """`high` where the factor is 1, `low` where it is 0: Adam's beta1 from 0.9 down to 0.5."""
    return lambda position: factor(position) * high + (1 - factor(position)) * low


PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Steps:
    """How the steps of a training are taken.

    `accumulate`: batches of one step. `clip`: largest norm of the gradient. `average_decay`: evaluate an exponential
    moving average of the weights. `precision`: "float32", "bf16", "fp16" or "auto" (bf16 on CUDA). `capture`: on CUDA,
    compile the network and replay the step as a graph. `channels_last`: the layout of convolutions, by default on CUDA.
    `check_every`: steps between two checks that the loss is a finite number. `checkpoint_every`: steps between
    checkpoints within an epoch.
    """

    accumulate: int = 1
    clip: float | None = None
    average_decay: float | None = None
    precision: str = "auto"
    capture: bool = True
    channels_last: bool | None = None
    check_every: int = 100
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("accumulate", "check_every", "checkpoint_every"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1; got {count!r}")
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ValueError(f"clip must be positive and finite, the largest norm of the gradient; got {self.clip!r}")
        decay = self.average_decay
        if decay is not None and not 0 <= decay < 1:
            raise ValueError(f"average_decay must lie in [0, 1), what a step keeps of the average; got {decay!r}")
        if self.precision not in ("auto", *PRECISIONS):
            raise ValueError(f"precision must be auto, {', '.join(PRECISIONS)}; got {self.precision!r}")

    def precision_on(self, device: torch.device) -> torch.dtype:
        """The precision as a type; "auto" is bf16 on CUDA."""
        wanted = ("bf16" if device.type == "cuda" else "float32") if self.precision == "auto" else self.precision
        return PRECISIONS[wanted]


@dataclass(frozen=True)
class Plan:
    """All that changes during a training: factors of the learning rate and of the feature loss, and Adam's beta1."""

    learning_rate: Schedule = constant
    feature_loss: Schedule = constant
    beta1: Schedule | None = None


def amc_plan(schedule: AMCSchedule, stretch: float = 1.0) -> Plan:
    """AMC-Loss: learning rate and loss weight ramp up, learning rate and beta1 (0.9 to 0.5) ramp down, by the epoch.

    The factors are of the schedule's own learning rate and coefficient, which the configuration states. `stretch`
    multiplies the ramps: a training of a tenth of the paper's epochs wants ramps of a tenth.
    """
    up, down = (max(1, round(stretch * length)) for length in (schedule.ramp_up, schedule.ramp_down))
    schedule = dataclasses.replace(schedule, ramp_up=up, ramp_down=down)
    rise, fall = gaussian_ramp_up(up), gaussian_ramp_down(down, "epoch", schedule.down_sharpness)
    return Plan(
        learning_rate=product(rise, fall),
        feature_loss=lambda position: schedule.loss_weight(position.epoch) / schedule.coefficient,
        beta1=between(schedule.last_beta1, schedule.beta1, fall),
    )


PLANS: dict[str, Callable[..., Plan]] = {
    "amc-paper": functools.partial(amc_plan, AMC_PAPER),
    "amc-script": functools.partial(amc_plan, AMC_SCRIPT),
}


def _check_length(length: int) -> None:
    if length < 1:
        raise ValueError(f"length must be 1 or more; got {length!r}")
