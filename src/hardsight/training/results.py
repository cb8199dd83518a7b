"""What a training gives back, what it has measured so far, and what a caller has done on its way."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from torch import nn

from hardsight.training.record import Row


@dataclass(frozen=True)
class Fitted:
    """What a training gives back. `evaluated` is the average of the weights where one is kept.

    `notes`: one sentence for each sign that the training went wrong.
    """

    model: nn.Module
    evaluated: nn.Module
    epochs: list[Row]
    results: dict[str, Any]
    samples: pa.Table | None
    folder: Path | None
    notes: list[str]

    def __repr__(self) -> str:
        """A summary: the network, epochs, last numbers, where the record is; its weights and tables are not printed."""
        parts = [type(self.model).__name__, f"{len(self.epochs)} epochs"]
        parts += [
            f"{name.replace('_', ' ')} {100 * value:.2f} %"
            for name, value in self.results.items()
            if name.endswith("accuracy") and isinstance(value, int | float)
        ]
        parts += [] if self.samples is None else [f"{self.samples.num_rows} scored samples"]
        parts += [] if self.folder is None else [f"record in {self.folder}"]
        parts += [f"note: {note}" for note in self.notes]
        return f"<Fitted: {', '.join(parts)}>"


@runtime_checkable
class Memory(Protocol):
    """What is kept in the checkpoints of a training beside its own state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Hooks:
    """What else is done on the way.

    `after_epoch(epoch, row)`: with every epoch's numbers, epochs counted from 1; what it puts into the row is written
    with them. `measure(model)`: at the end, with the network that is evaluated; what it returns joins the results.
    `start()`: before the first epoch, and not where a training goes on. `before_epoch(done)`: with the number of epochs
    that are done; where it returns a larger one, the epochs up to that are left out. `memory` is kept in the
    checkpoints.
    """

    after_epoch: Callable[[int, Row], None] | None = None
    measure: Callable[[nn.Module], Mapping[str, Any]] | None = None
    start: Callable[[], None] | None = None
    before_epoch: Callable[[int], int | None] | None = None
    memory: Memory | None = None


@dataclass
class Counters:
    """How far a training is, and what it has measured so far."""

    step: int = 0
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    best_epoch: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def best_accuracy(self) -> float:
        """Best test accuracy so far; -inf before the first."""
        return self.rows[self.best_epoch - 1]["test_accuracy"] if self.best_epoch else -math.inf

    def results(self) -> dict[str, Any]:
        """Last and best test accuracy, the epoch of the best, and the last row's other accuracies and losses."""
        last = self.rows[-1] if self.rows else {}
        results: dict[str, Any] = {name: value for name, value in last.items() if name.endswith(("accuracy", "loss"))}
        if self.best_epoch:
            results |= {"test_accuracy_best": self.best_accuracy, "best_epoch": self.best_epoch}
        return results
