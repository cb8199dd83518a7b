"""The old place of `engine.trainings`, until the last study has moved: cells and folders in place of runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from hardsight.training import Cell
from hardsight.training.fitting import Fitted
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.study import Tree
from hardsight_studies.engine.trainings import Hooks, Training, train
from hardsight_studies.framework import Options

CellTraining = Training

__all__ = ["CellTraining", "Hooks", "Tree", "train_cells"]


def train_cells(
    mine: Sequence[tuple[Cell, Path]], options: Options, configure: Callable[[Cell], Tree], hooks: Hooks | None = None
) -> list[Fitted]:
    """Train these cells, together where they are several."""
    return train([Run(dict(cell.settings), configure(cell), folder) for cell, folder in mine], options, hooks)
