"""Training that records: the loop, schedules, checkpoints, run records; one process or many.

`fit` trains objects, `train` a configuration; both leave a record and go on where they stopped.
"""

from hardsight.training import reading, schedules
from hardsight.training.config import TrainingConfig
from hardsight.training.configured import sweep, train
from hardsight.training.fitting import Fitted, Session, fit
from hardsight.training.network import Objective
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.reading import read_settings
from hardsight.training.record import list_runs
from hardsight.training.schedules import PLANS, Plan, Position
from hardsight.training.sweeps import Run, grid, run_sweep
from hardsight.training.together import run_together

__all__ = [
    "PLANS",
    "Fitted",
    "NonFiniteLossError",
    "Objective",
    "Plan",
    "Position",
    "Run",
    "Session",
    "TrainingConfig",
    "fit",
    "grid",
    "list_runs",
    "read_settings",
    "reading",
    "run_sweep",
    "run_together",
    "schedules",
    "sweep",
    "train",
]
