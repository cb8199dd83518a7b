"""`adapt_baseline`: train a classifier on a labelled source and an unlabelled target by one of Table 3's methods."""

import itertools
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.heads import evaluating
from hardsight.training import NonFiniteLossError, Objective
from hardsight.training.feed import take_apart
from hardsight.training.network import Network
from hardsight_studies.avh.baselines.methods import Baseline, MakeOptimizer, make_baseline


@dataclass(frozen=True)
class ClassAccuracy:
    """Right predictions and samples of each class, int64 [C]."""

    right: Tensor
    count: Tensor

    @property
    def overall(self) -> float:
        """Share of all samples that are right, in [0, 1]."""
        return int(self.right.sum()) / int(self.count.sum())

    @property
    def by_class(self) -> list[float | None]:
        """Share of each class that is right; None for a class without samples."""
        pairs = zip(self.right.tolist(), self.count.tolist(), strict=True)
        return [right / count if count else None for right, count in pairs]

    @property
    def class_mean(self) -> float:
        """Mean over the classes that have samples: the `Mean` of AVH's Table 3."""
        present = self.count > 0
        return float((self.right[present].double() / self.count[present]).mean())


def adapt_baseline(
    method: str | Baseline,
    model: nn.Module,
    source: Iterable[Any],
    target: Iterable[Any],
    *,
    epochs: int,
    optimizer: MakeOptimizer,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> list[dict[str, float]]:
    """Train `model` in place for `epochs` passes over `source`; returns the means of the method's losses by epoch.

    `method`: a name of `BASELINES`, or a `make_baseline` with options. `source` and `target` are batches of (images,
    labels) or (images, labels, ids) that can be gone through again; `target` goes round as often as that needs, and
    its labels are never looked at. `optimizer` makes an optimiser of parameters; a method with two players has two.
    `seed`: weights and dropout that the method draws; the caller's random states stay as they are.
    """
    if epochs < 1 or not isinstance(source, Sized) or len(source) < 1:
        raise ValueError(f"epochs and the batches of source must be at least 1; got {epochs!r} and {source!r}")
    playing, device = make_baseline(method) if isinstance(method, str) else method, torch.device(device)
    network = Network(model.to(device), Objective(), features=True)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            images, _, _ = take_apart(next(iter(source)), device)
            with evaluating(network):
                _, features = network.look(images[:2])
            assert features is not None
            playing.begin(network, features.float(), optimizer)
            unlabelled = _round_and_round(target, device)
            return [_epoch(playing, network, source, unlabelled, number, epochs, device) for number in range(epochs)]
    finally:
        network.close()


def _epoch(
    method: Baseline,
    network: Network,
    source: Any,
    target: Iterator[Tensor],
    number: int,
    epochs: int,
    device: torch.device,
) -> dict[str, float]:
    """One pass over the source."""
    network.train()
    if hasattr(source, "set_epoch"):
        source.set_epoch(number)
    sums: dict[str, Tensor] = {}
    for index, batch in enumerate(source):
        images, labels, _ = take_apart(batch, device)
        losses = method.step(images, labels, next(target), (number + index / len(source)) / epochs)
        for name, loss in losses.items():
            sums[name] = sums.get(name, torch.zeros((), device=device)) + loss.detach().float()
    means = {name: float(total) / len(source) for name, total in sums.items()}
    bad = [name for name, mean in means.items() if not abs(mean) < float("inf")]
    if bad:
        raise NonFiniteLossError(f"{bad[0]} is not a finite number in epoch {number + 1} of {epochs}")
    return means


def _round_and_round(target: Iterable[Any], device: torch.device) -> Iterator[Tensor]:
    """The target's images, epoch after epoch without end."""
    for epoch in itertools.count():
        if hasattr(target, "set_epoch"):
            target.set_epoch(epoch)
        seen = False
        for batch in target:
            seen = True
            yield take_apart(batch, device)[0]
        if not seen:
            raise ValueError("target must hold at least one batch; got none")


def accuracy_by_class(
    model: nn.Module, batches: Iterable[Any], classes: int, device: torch.device | str
) -> ClassAccuracy:
    """How many of each class are right, in one pass without gradients; samples without a label (-1) do not count."""
    device = torch.device(device)
    right, count = torch.zeros(2, classes, dtype=torch.int64, device=device)
    with evaluating(model):
        for batch in batches:
            images, labels, _ = take_apart(batch, device)
            predicted, known = model(images).argmax(1), labels >= 0
            found = torch.bincount(labels[known], minlength=classes)
            if len(found) > classes:
                raise ValueError(f"labels must lie below {classes}, the number of logits; got {len(found) - 1}")
            count += found
            right += torch.bincount(labels[known & (predicted == labels)], minlength=classes)
    if int(count.sum()) == 0:
        raise ValueError("the evaluation batches must hold at least one labelled sample; they hold none")
    return ClassAccuracy(right.cpu(), count.cpu())
