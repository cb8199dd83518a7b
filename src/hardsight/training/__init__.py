"""Training that records: the loop, schedules, checkpoints, run records; one process or many."""

from hardsight.training import schedules
from hardsight.training.fitting import Fitted, fit
from hardsight.training.loop import NonFiniteLossError
from hardsight.training.network import Objective
from hardsight.training.schedules import PLANS, Plan, Position

__all__ = [
    "PLANS",
    "Fitted",
    "NonFiniteLossError",
    "Objective",
    "Plan",
    "Position",
    "fit",
    "schedules",
]
