"""How far a self-training has come: what it gives back, and how its checkpoint keeps that and is read again.

A checkpoint is read whole before anything is changed by it: what cannot be continued leaves record and model alone.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor, nn

from hardsight.domains.selection import Selection
from hardsight.domains.self_training.signs import Signs
from hardsight.records import read_table
from hardsight.training.checkpoints import (
    Checkpoints,
    check_fits,
    load_optimizer,
    random_states,
    restore_random_states,
)


@dataclass
class Progress:
    """How many rounds are complete, and what was seen on the way; `tables` hold the selected of each look."""

    done: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    signs: Signs = field(default_factory=Signs)
    selection: Selection | None = None


class Kept(NamedTuple):
    """A checkpoint as it was read."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    loss: dict[str, Tensor] | None
    random: dict[str, Any]
    progress: Progress

    def take_up(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: object) -> Progress:
        """Put model, optimiser, a loss with a memory and the global generators where the checkpoint says."""
        model.load_state_dict(self.weights)
        load_optimizer(optimizer, self.optimizer)
        if isinstance(loss, nn.Module) and self.loss is not None:
            loss.load_state_dict(self.loss)
        restore_random_states(self.random)
        return self.progress


def keep(
    checkpoints: Checkpoints, progress: Progress, model: nn.Module, optimizer: torch.optim.Optimizer, loss: object
) -> None:
    """Write the checkpoint of the last complete round. The tables are in `selected.parquet` already."""
    shared = {
        "optimizer": optimizer.state_dict(),
        "loss": loss.state_dict() if isinstance(loss, nn.Module) else None,
        "rows": progress.rows,
        "epochs": progress.epochs,
        "notes": progress.notes,
        "done": progress.done,
        "signs": dataclasses.asdict(progress.signs),
        "selection": None if progress.selection is None else progress.selection._asdict(),
    }
    checkpoints.save(progress.done, model.state_dict(), shared, {"random": random_states()})


def read_kept(checkpoints: Checkpoints, model: nn.Module) -> Kept | None:
    """The last checkpoint, refused where it is damaged or another model's; None where no round is complete."""
    path = checkpoints.latest()
    if path is None:
        return None
    weights, shared, own = checkpoints.load(path)
    check_fits(model, weights, path)
    done, selection = int(shared["done"]), shared.get("selection")
    progress = Progress(
        done=done,
        rows=shared["rows"],
        epochs=shared["epochs"],
        notes=shared["notes"],
        signs=Signs(**shared.get("signs", {})),
        tables=_selected_before(done, path.parents[1] / "selected.parquet"),
        selection=None if selection is None else Selection(**selection),
    )
    return Kept(weights, shared["optimizer"], shared.get("loss"), own["random"], progress)


def _selected_before(done: int, path: Path) -> list[pa.Table]:
    """What was selected in the complete rounds; the file may hold the look of one that was not completed."""
    if not path.is_file():
        return []
    try:
        table = read_table(path)
    except ValueError as damage:
        raise ValueError(f"{path} is damaged and cannot be continued: {damage}; begin anew") from None
    return [table.filter(pa.compute.less(table["round"], done))]
