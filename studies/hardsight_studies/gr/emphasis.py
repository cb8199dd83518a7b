"""Weights as a training sees them: the L1 norm of a loss's gradient at the logits, by the label's probability."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.losses import GCELoss, GradientRescaling, MAELoss
from hardsight.losses.entropy import CrossEntropy
from hardsight.training import Cell
from hardsight.training.record import RunRecord, device_name

CLASSES = 10


def supervision(name: str) -> nn.Module:
    """The loss of a name: `cce`, `mae`, `gce-0.7` by its q, `gr-8-0.5` by beta and lambda; one loss a sample."""
    kind, *numbers = name.split("-")
    values = [float(number) for number in numbers]
    makers: dict[str, Callable[..., nn.Module]] = {
        "cce": lambda: CrossEntropy(reduction="none"),
        "mae": lambda: MAELoss(reduction="none"),
        "gce": lambda q: GCELoss(q=q, reduction="none"),
        "gr": lambda beta, lam: GradientRescaling(beta, lam, reduction="none", epsilon=0.0),
    }
    return makers[kind](*values)


def title_of_supervision(name: str) -> str:
    """As it is printed: `GCE (q = 0.7)`, `GR (β = 8, λ = 0.5)`."""
    kind, *numbers = name.split("-")
    letters = {"gce": ("q",), "gr": ("β", "λ")}.get(kind, ())
    options = ", ".join(f"{letter} = {number}" for letter, number in zip(letters, numbers, strict=True))
    return f"{kind.upper()} ({options})" if options else kind.upper()


def gradient_weights(loss: nn.Module, probability: Tensor) -> Tensor:
    """L1 norm of the gradient at the logits of samples whose label has these probabilities, the rest spread evenly.

    By automatic differentiation of the loss as it trains: no formula of the paper is used.
    """
    rest = ((1 - probability) / (CLASSES - 1)).unsqueeze(1).expand(-1, CLASSES - 1)
    logits = torch.cat([probability.unsqueeze(1), rest], 1).log().requires_grad_()
    labels = torch.zeros(len(probability), dtype=torch.int64)
    (gradient,) = torch.autograd.grad(loss(logits, labels).sum(), logits)
    return gradient.abs().sum(1)


def probabilities(count: int) -> Tensor:
    """Evenly spaced over (0, 1), float64: the midpoints of `count` equal parts."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def write_exact(cell: Cell, folder: Path, results: dict[str, Any]) -> None:
    """A record of what needs no training."""
    record = RunRecord(folder)
    record.begin(
        name=cell.name, seed=0, config=dict(cell.settings), device=device_name(torch.device("cpu")), class_names=[]
    )
    record.finish(results)
