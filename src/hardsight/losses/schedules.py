"""Gaussian ramps over epochs, and the two schedules AMC-Loss is trained with: the paper's and the authors' script's."""

import math
from dataclasses import dataclass


def gaussian_ramp_up(epoch: float | int, length: float | int, sharpness: float = 5.0) -> float:
    """exp(-sharpness (1 - epoch/length)^2) during the first `length` epochs, then 1. In (0, 1]."""
    missing = 1 - max(0.0, epoch) / length if epoch < length else 0.0
    return math.exp(-sharpness * missing**2)


def gaussian_ramp_down(epoch: float | int, epochs: float | int, length: float | int, sharpness: float = 12.5) -> float:
    """1, then exp(-sharpness (1 - (epochs - epoch)/length)^2) during the last `length` of `epochs`. In (0, 1]."""
    gone = max(0.0, 1 - (epochs - epoch) / length) if length > 0 else 0.0
    return math.exp(-sharpness * gone**2)


@dataclass(frozen=True)
class AMCSchedule:
    """How AMC training changes over its epochs, counted from 0: loss weight, learning rate, Adam's beta1."""

    epochs: int
    ramp_up: int
    ramp_down: int
    down_sharpness: float
    coefficient: float
    skips_first_epoch: bool
    learning_rate: float = 0.003
    beta1: float = 0.9
    last_beta1: float = 0.5

    def loss_weight(self, epoch: float | int) -> float:
        """What AMC-Loss is multiplied by before it is added to the cross-entropy."""
        if self.skips_first_epoch and epoch == 0:
            return 0.0
        return self.coefficient * gaussian_ramp_up(epoch, self.ramp_up)


# Section 3.2 of the paper. Its mean is printed over the batch, half of `amc_loss`, which takes it over the pairs.
AMC_PAPER = AMCSchedule(
    epochs=300, ramp_up=80, ramp_down=50, down_sharpness=12.5, coefficient=0.1, skips_first_epoch=False
)
# The authors' script: 100 * 0.1 at full ramp, a ramp-down of exp(-(t/2)^2 / length), nothing in the first epoch.
AMC_SCRIPT = AMCSchedule(
    epochs=200, ramp_up=50, ramp_down=30, down_sharpness=7.5, coefficient=10.0, skips_first_epoch=True
)
