"""How `fit_head` fits: samples read in chunks, the heads of all folds minimised together.

One pass over the data serves the heads of all folds: a chunk of features meets their weights in one product, and where
a sample belongs to a head's own fold it adds nothing to that head. L-BFGS in coordinates that the features' covariance
makes round needs a dozen passes where plain L-BFGS needs hundreds.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.distributed import sum_over_processes, world_size
from hardsight.validation import check_finite

# Elements of a chunk's logits (samples x folds x classes) and of its features: 16 and 32 MiB of float32.
_LOGITS, _FEATURES = 2**22, 2**23
# Of L-BFGS: steps that are remembered, tries of a step, the fall that is enough, and passes over the data at most.
_MEMORY, _STEPS, _ENOUGH, _PASSES = 10, 12, 1e-4, 100
# A fall of the mean loss by less than this share of it changes no choice.
_CHOSEN_WITHIN = 1e-3


@dataclass(frozen=True)
class Rows:
    """Features in chunks, centred, of length one, on a device; a row that equals the mean stays zero."""

    source: Any
    centre: Float[Tensor, "dim"]
    device: torch.device
    order: Int[Tensor, "samples"] | None = None

    @classmethod
    def of(cls, features: Any, device: torch.device | str | None) -> "Rows":
        source = features.detach() if isinstance(features, Tensor) else np.asanyarray(features)
        floating = source.is_floating_point() if isinstance(source, Tensor) else source.dtype.kind == "f"
        if source.ndim != 2 or not floating or not all(source.shape):
            raise ValueError(
                "features must be a matrix [samples, dim] of floating point numbers; got "
                f"{source.dtype} of shape {list(source.shape)}"
            )
        if device is None:
            device = source.device if isinstance(source, Tensor) else "cpu"
        wide = torch.float64 if str(source.dtype).endswith("float64") else torch.float32
        rows = cls(source, torch.zeros(source.shape[1], dtype=wide), torch.device(device))
        total = torch.zeros(rows.dim, dtype=torch.float64)
        low, high = torch.full((rows.dim,), math.inf, dtype=wide), torch.full((rows.dim,), -math.inf, dtype=wide)
        for start in range(0, len(rows), rows.length):
            part = rows.read(slice(start, start + rows.length))
            check_finite("features", part)
            total += part.double().sum(0).cpu()
            low, high = torch.minimum(low, part.amin(0).cpu()), torch.maximum(high, part.amax(0).cpu())
        if bool((low == high).all()):
            raise ValueError(f"features must vary between samples; all {len(rows)} rows are the same")
        return replace(rows, centre=(total / len(rows)).to(wide))

    def __len__(self) -> int:
        return len(self.source) if self.order is None else len(self.order)

    @property
    def dim(self) -> int:
        return int(self.source.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        return self.centre.dtype

    @property
    def length(self) -> int:
        """Rows of a chunk, by the features alone."""
        return max(1, _FEATURES // self.dim)

    def part(self, order: Int[Tensor, "some"]) -> "Rows":
        """Some of the rows; all of them cost no look-up."""
        return self if len(order) == len(self) else replace(self, order=order)

    def take(self, places: Int[Tensor, "some"]) -> Tensor:
        return self._unit(self.read(places.numpy()))

    def chunks(self, columns: int) -> Iterator[tuple[slice, Tensor]]:
        """Chunks whose logits, of so many columns a sample, fit the memory set aside for them."""
        length = max(1, min(self.length, _LOGITS // columns))
        for start in range(0, len(self), length):
            rows = slice(start, min(start + length, len(self)))
            yield rows, self._unit(self.read(rows if self.order is None else self.order[rows].numpy()))

    def read(self, rows: Any) -> Tensor:
        part = self.source[rows]
        part = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
        return part.to(self.device, self.dtype)

    def _unit(self, part: Tensor) -> Tensor:
        return torch.nn.functional.normalize(part - self.centre.to(self.device), dim=1)


class Problem:
    """Mean loss of every fold's head over the samples outside its fold, the gradient, and a round geometry."""

    def __init__(self, rows: Rows, labels: Tensor, fold: Tensor, folds: int, classes: int) -> None:
        self.rows, self.labels, self.fold, self.folds, self.classes = rows, labels, fold, folds, classes
        self.samples = torch.stack([(fold != one).sum() for one in range(folds)]).double()
        self._axes: tuple[Tensor, Tensor] | None = None

    def gradient(self, weight: Tensor, aside: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sum of the losses by head, that over the samples set aside, and the gradient of the first."""
        heads = weight.view(self.folds * self.classes, -1)
        own = torch.arange(self.folds, device=weight.device)
        total = torch.zeros(2, self.folds, dtype=torch.float64, device=weight.device)
        gradient = torch.zeros_like(heads, dtype=torch.float64)
        for rows, features in self._mine():
            labels, fold = self.labels[rows].to(weight.device), self.fold[rows].to(weight.device)
            # Samples come last: classes are few, and what is summed over them is then read in long rows.
            logits = torch.addmm(heads[:, -1:], heads[:, :-1], features.T).view(self.folds, self.classes, -1)
            at = labels.expand(self.folds, 1, -1)
            level = logits.logsumexp(1)
            losses = level - logits.gather(1, at).squeeze(1)
            seen = fold != own[:, None]
            if aside is not None:
                apart = aside[rows].to(weight.device)
                total[1] += (losses * (seen & apart)).sum(1, dtype=torch.float64)
                seen = seen & ~apart
            total[0] += (losses * seen).sum(1, dtype=torch.float64)
            slopes = logits.sub_(level.unsqueeze(1)).exp_()
            slopes.scatter_add_(1, at, slopes.new_full((1, 1, 1), -1.0).expand(at.shape))
            slopes = slopes.mul_(seen.unsqueeze(1)).view(len(heads), -1)
            gradient[:, :-1] += slopes @ features
            gradient[:, -1] += slopes.sum(1)
        total, gradient = sum_over_processes(total), sum_over_processes(gradient)
        return total[0], total[1], gradient.view(self.folds, -1)

    def axes(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of the second moments of the features and the one beside them."""
        if self._axes is None:
            size = self.rows.dim + 1
            moments = torch.zeros(size, size, dtype=torch.float64, device=self.rows.device)
            for _, features in self._mine():
                one = torch.cat([features, features.new_ones(len(features), 1)], 1)
                moments += one.T @ one
            values, vectors = torch.linalg.eigh(sum_over_processes(moments) / len(self.labels))
            self._axes = values.clamp_min(0), vectors.to(self.rows.dtype)
        return self._axes

    def log_loss_out_of_fold(self, weight: Tensor) -> float:
        """Mean loss of every sample by the head of its own fold."""
        heads, total = weight.view(self.folds, self.classes, -1), torch.zeros((), dtype=torch.float64)
        for rows, features in self._mine():
            fold, labels = self.fold[rows].to(weight.device), self.labels[rows].to(weight.device)
            logits = torch.einsum("nd,kcd->nkc", features, heads[..., :-1]) + heads[..., -1]
            own = logits[torch.arange(len(fold), device=weight.device), fold]
            total += torch.nn.functional.cross_entropy(own.double(), labels, reduction="sum").cpu()
        return float(sum_over_processes(total)) / len(self.labels)

    def _mine(self) -> Iterator[tuple[slice, Tensor]]:
        """This process's share of the chunks."""
        count = world_size()
        rank = dist.get_rank() if count > 1 else 0
        for place, chunk in enumerate(self.rows.chunks(self.folds * self.classes)):
            if place % count == rank:
                yield chunk


def choose_penalties(problem: Problem, aside: Tensor, penalties: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Each head's penalty, by the samples set aside, and its weights under it; from strong to weak."""
    weight = torch.zeros(
        problem.folds, problem.classes * (problem.rows.dim + 1), dtype=problem.rows.dtype, device=problem.rows.device
    )
    best = torch.full((problem.folds,), math.inf, dtype=torch.float64)
    penalty, chosen = torch.zeros(problem.folds, dtype=torch.float64), weight.clone()
    held_out = torch.stack([((problem.fold != one) & aside).sum() for one in range(problem.folds)])
    if len(penalties) == 1 or not bool(held_out.all()):
        return torch.full_like(penalty, sorted(penalties)[len(penalties) // 2]), weight
    for strength in sorted(penalties, reverse=True):
        trial = torch.full_like(penalty, strength)
        weight = minimise(problem, trial, weight, _CHOSEN_WITHIN, aside)
        losses = problem.gradient(weight, aside)[1].cpu()
        better = losses < best
        if not bool(better.any()):
            break
        best, penalty = torch.where(better, losses, best), torch.where(better, strength, penalty)
        chosen[better.to(chosen.device)] = weight[better.to(weight.device)]
    return penalty, chosen


def minimise(
    problem: Problem, penalty: Tensor, weight: Tensor, tolerance: float, aside: Tensor | None = None
) -> Tensor:
    """L-BFGS of all heads at once, each with its own step; ends when no mean loss falls by more than `tolerance`.

    The penalty spares the bias. Sums, steps and gradients are float64, products in the features' precision.
    """
    samples = problem.samples.to(weight.device)
    if aside is not None:
        samples = torch.stack([((problem.fold != one) & ~aside).sum() for one in range(problem.folds)]).to(samples)
    strength = penalty.to(weight.device) / samples
    spared = torch.ones(problem.classes, problem.rows.dim + 1, dtype=torch.float64, device=weight.device)
    spared[:, -1] = 0
    spared = spared.view(-1)

    def look(at: Tensor) -> tuple[Tensor, Tensor]:
        total, _, gradient = problem.gradient(at.to(problem.rows.dtype), aside)
        pull = strength[:, None] * spared * at
        return total / samples + (at * pull).sum(1) / 2, gradient / samples[:, None] + pull

    rounded = _rounding(problem, strength)
    at = weight.double()
    loss, gradient = look(at)
    passes, history = 1, _History()
    while passes < _PASSES:
        direction = -history.apply(gradient, rounded)
        slope = (direction * gradient).sum(1)
        # What rounding leaves of a head that has arrived is no way down.
        direction = torch.where((slope < 0)[:, None], direction, -rounded(gradient))
        slope = (direction * gradient).sum(1)
        step = torch.ones_like(loss)
        for _ in range(_STEPS):
            ahead, ahead_gradient = look(at + step[:, None] * direction)
            passes += 1
            fine = ahead <= loss + _ENOUGH * step * slope + 1e-12 * loss.abs()
            if bool(fine.all()) or passes >= _PASSES:
                break
            step = torch.where(fine, step, 0.4 * step)
        # A head for which no step went down stays where it is.
        step, ahead = torch.where(fine, step, 0.0), torch.where(fine, ahead, loss)
        ahead_gradient = torch.where(fine[:, None], ahead_gradient, gradient)
        history.add(step[:, None] * direction, ahead_gradient - gradient)
        fall = float(((loss - ahead) / ahead.abs().clamp_min(1e-6)).max())
        at, loss, gradient = at + step[:, None] * direction, ahead, ahead_gradient
        if fall < tolerance:
            break
    return at.to(weight.dtype)


def _rounding(problem: Problem, strength: Tensor) -> Callable[[Tensor], Tensor]:
    """The inverse of a Hessian in which every sample is as unsure as equal probabilities are."""
    values, vectors = problem.axes()
    curvature = (1 - 1 / problem.classes) / problem.classes
    inverse = 1 / (curvature * values + strength[:, None] + 1e-12)

    def rounded(gradient: Tensor) -> Tensor:
        heads = gradient.view(problem.folds, problem.classes, -1)
        along = (heads @ vectors.double()) * inverse[:, None]
        return (along @ vectors.double().T).reshape(problem.folds, -1)

    return rounded


class _History:
    """The latest steps of every head and how its gradient changed along them: L-BFGS's two loops."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, step: Tensor, change: Tensor) -> None:
        along = (step * change).sum(1)
        # A head that did not move, or along which the slope did not rise, remembers nothing of it.
        inverse = torch.where(along > 1e-14, 1 / along.clamp_min(1e-14), 0.0)
        self.steps = [*self.steps, (step, change, inverse)][-_MEMORY:]

    def apply(self, gradient: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
        way, shares = gradient.clone(), []
        for step, change, inverse in reversed(self.steps):
            shares.append(inverse * (step * way).sum(1))
            way -= shares[-1][:, None] * change
        way = rounded(way)
        if self.steps:
            step, change, inverse = self.steps[-1]
            scale = (step * change).sum(1) / (change * rounded(change)).sum(1).clamp_min(1e-30)
            way *= torch.where(inverse > 0, scale, 1.0)[:, None]
        for (step, change, inverse), share in zip(self.steps, reversed(shares), strict=True):
            way += (share - inverse * (change * way).sum(1))[:, None] * step
        return way
