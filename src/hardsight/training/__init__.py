"""Training that records: the loop, schedules, checkpoints, run records; one process or many.

`fit` trains objects, `train` a configuration; both leave a record and go on where they stopped.
"""

from hardsight.training import reading, schedules
from hardsight.training.config import TrainingConfig
from hardsight.training.evaluation import Samples
from hardsight.training.from_config import train
from hardsight.training.loop import Loop, fit
from hardsight.training.network import Objective
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.reading import read_settings
from hardsight.training.record import Details, Fitted, Hooks
from hardsight.training.schedules import PLANS, Plan, Position, Steps
from hardsight.training.sweeps import Run, grid, list_runs, run_sweep, sweep

__all__ = [
    "PLANS",
    "Details",
    "Fitted",
    "Hooks",
    "Loop",
    "NonFiniteLossError",
    "Objective",
    "Plan",
    "Position",
    "Run",
    "Samples",
    "Steps",
    "TrainingConfig",
    "fit",
    "grid",
    "list_runs",
    "read_settings",
    "reading",
    "run_sweep",
    "schedules",
    "sweep",
    "train",
]
