"""What the studies of features and of maps share: the test set through the trained network, and numbers over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.datasets.loader import DeviceLoader
from hardsight.studies.framework import finished_cells, run_details, spread
from hardsight.studies.outputs import outputs_of
from hardsight.training import Cell


def normalised(loader: DeviceLoader, count: int | None = None) -> tuple[Tensor, Tensor]:
    """The first images of a set as the network gets them, and their labels."""
    images, labels, seen = [], [], 0
    for batch, targets, _ in loader:
        images.append(batch)
        labels.append(targets)
        seen += len(targets)
        if count is not None and seen >= count:
            break
    return torch.cat(images)[:count], torch.cat(labels)[:count]


def look(model: nn.Module, loader: DeviceLoader) -> tuple[Tensor, Tensor, Tensor]:
    """Features, predictions and labels of a set, on the host."""
    seen = outputs_of(model, loader)
    return seen.features.cpu(), seen.logits.argmax(1).cpu(), seen.labels.cpu()


def finished(folder: Path, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """What the finished ones of these cells measured, in their order."""
    return [run_details(folder / cell.name)["results"] for cell in finished_cells(folder, cells)]


def over_seeds(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """`spread` of each number over the runs that have it; None where none has."""
    found: dict[str, Any] = {}
    for name in names:
        values = [float(row[name]) for row in rows if row.get(name) is not None]
        found[name] = spread(values) if values else None
    return found


def four(number: Mapping[str, Any] | None) -> str:
    """`0.9712 ± 0.0021`; nothing where there is no number."""
    if number is None:
        return ""
    return f"{number['mean']:.4f}" + (f" ± {number['sd']:.4f}" if number["sd"] is not None else "")


def compared(better: Mapping[str, Any] | None, worse: Mapping[str, Any] | None) -> str:
    """How two means over seeds differ, and whether by more than twice the standard error of that."""
    if better is None or worse is None:
        return "not measured"
    difference = f"{better['mean'] - worse['mean']:+.4f}"
    if better["sd"] is None or worse["sd"] is None:
        return f"{difference}, one run each"
    error = sum(one["sd"] ** 2 / len(one["values"]) for one in (better, worse)) ** 0.5
    apart = abs(better["mean"] - worse["mean"]) > 2 * error
    return f"{difference}, {'more' if apart else 'not more'} than twice its standard error of {error:.4f}"
