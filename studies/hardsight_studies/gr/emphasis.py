"""Table 1 and Figure 1: which samples a loss emphasises, from its own gradients. Nothing is trained.

A sample's weight is the L1 norm of its gradient at the logits. The focus is the probability of the label with the
largest weight on a fine grid, the spread the variance of the weights over evenly spread probabilities.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.losses import GCELoss, GradientRescaling, MAELoss
from hardsight.losses.emphasis import emphasis_focus, emphasis_spread
from hardsight.losses.entropy import CrossEntropy
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Rows

CLASSES = 10
# Points of the grid of Figure 1's spreads.
_SPREAD = 10_000
# Focuses that differ by less are one.
_SAME_FOCUS = 3


def supervision(name: str) -> nn.Module:
    """The loss of a name: `cce`, `mae`, `gce-0.7` by its q, `gr-8-0.5` by beta and lambda; one number per sample."""
    kind, *numbers = name.split("-")
    makers: dict[str, Callable[..., nn.Module]] = {
        "cce": lambda: CrossEntropy(reduction="none"),
        "mae": lambda: MAELoss(reduction="none"),
        "gce": lambda q: GCELoss(q=q, reduction="none"),
        "gr": lambda beta, lam: GradientRescaling(beta, lam, reduction="none", epsilon=0.0),
    }
    return makers[kind](*map(float, numbers))


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


def measure_focus(run: Run) -> dict[str, Any]:
    """Table 1: focus, spread and largest weight of a supervision."""
    grid = probabilities(run.config["points"])
    weights = gradient_weights(supervision(run.settings["supervision"]), grid)
    flat = bool(weights.max() - weights.min() < 1e-9)
    return {
        # Equal weights have no focus.
        "focus": None if flat else float(grid[weights.argmax()]),
        "spread": float(emphasis_spread(weights)),
        "largest": float(weights.max()),
        "resolution": 0.5 / len(grid),
    }


def measure_curve(run: Run) -> dict[str, Any]:
    """Figure 1: the weight over the probability, and the spread."""
    grid, loss = probabilities(run.config["points"]), supervision(run.settings["supervision"])
    weights = gradient_weights(loss, grid).tolist()
    spread = float(emphasis_spread(gradient_weights(loss, probabilities(_SPREAD))))
    peak = max(zip(weights, grid.tolist(), strict=True))
    points = {"weight": {"x": grid.tolist(), "y": weights}}
    return {"spread": spread, "largest": peak[0], "peak": peak[1], "points": points}


def closed_form(name: str) -> float | None:
    """The focus λ/(1+λ) of the paper's formula: GR's own, CE with λ = 0, MAE with 1, GCE with q."""
    kind, *numbers = name.split("-")
    if kind == "gr":
        beta, lam = map(float, numbers)
        return None if beta == 0 else emphasis_focus(beta, lam)
    return emphasis_focus(2.0, {"cce": 0.0, "mae": 1.0}[kind] if not numbers else float(numbers[0]))


def focus_table(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Every setting: its focus as computed and by the formula, its spread and largest weight."""
    lines = []
    for row in rows:
        name, found = row.settings["supervision"], row.metrics
        focuses = ("none" if one is None else f"{one:.4f}" for one in (found["focus"], closed_form(name)))
        lines.append([title_of(name), *focuses, f"{found['spread']:.4g}", f"{found['largest']:.4g}"])
    return ["loss", "focus, computed", "focus, λ/(1+λ)", "spread", "largest weight"], lines


def abilities_table(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """What each loss can do: the range of its focuses, and its spreads at one and the same focus."""
    printed = {"cce": ("0", "no"), "mae": ("0.5", "no"), "gce": ("0–0.5", "no"), "gr": ("0–1", "yes")}
    lines = []
    for kind, theirs in printed.items():
        by_focus: dict[float, list[float]] = {}
        focuses = []
        for row in rows:
            focus = row.metrics["focus"]
            if row.settings["supervision"].split("-")[0] == kind and focus is not None:
                focuses.append(focus)
                by_focus.setdefault(round(focus, _SAME_FOCUS), []).append(row.metrics["spread"])
        several = [f"{min(of):.3g} to {max(of):.3g} at {at:.2f}" for at, of in by_focus.items() if len(of) > 1]
        ends = dict.fromkeys((f"{min(focuses):.2f}", f"{max(focuses):.2f}"))
        lines.append([title_of(kind), " to ".join(ends), "; ".join(several) or "one", *theirs])
    return ["loss", "focuses computed", "spreads at one focus", "focus, paper", "adjustable spread, paper"], lines


def title_of(name: str) -> str:
    """As it is printed: `GCE (q = 0.7)`, `GR (β = 8, λ = 0.5)`."""
    kind, *numbers = name.split("-")
    letters = {"gce": ("q",), "gr": ("β", "λ")}.get(kind, ())
    options = ", ".join(f"{letter} = {number}" for letter, number in zip(letters, numbers, strict=False))
    shown = {"cce": "CE"}.get(kind, kind.upper())
    return f"{shown} ({options})" if options else shown
