"""Gradient rescaling on vectors: labels wrong by chance, by people, from outside; with angles, and driven by them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hardsight import noise
from hardsight.losses import (
    AMCLoss,
    AutomaticRescaling,
    GCELoss,
    GradientRescaling,
    gradient_rescaling,
    weight_curve,
)
from hardsight.training import Objective
from hardsight_studies.avh.people import images_of
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import Vectors, accuracy, drawn, seen_by, trained, vectors

_PEOPLE = {"worse": "worse_label", "random1": "random_label1", "random2": "random_label2", "aggre": "aggre_label"}
_FOREIGN = 7


def measure(run: Run) -> Mapping[str, Any]:
    """Last and best test accuracy, and the share of the wrong labels that is fitted."""
    of, method = run.config, str(run.settings["method"])
    train, test = vectors(of["data"])
    data, wrong = _noisy(train, str(run.settings["labels"]), of["samples"], run.seed)
    classes = 10
    if run.settings["labels"] == "open-set":
        test = test.of((test.labels < _FOREIGN).nonzero().squeeze(1))
        classes = _FOREIGN
    curve: list[float] = []
    every = max(1, of["epochs"] // 10)

    def after_epoch(epoch: int, model: nn.Module) -> None:
        if epoch % every == 0 or epoch == of["epochs"]:
            curve.append(accuracy(model, test))

    model = trained(
        data, classes=classes, seed=run.seed, epochs=of["epochs"], hidden=512, loss=_loss(method, classes),
        angular=method.startswith("angular"), after_epoch=after_epoch, weight_decay=1e-4, looks=method == "auto",
    )  # fmt: skip
    fitted = seen_by(model, data.features).logits.argmax(1) == data.labels
    return {
        "last": curve[-1],
        "best": max(curve),
        "clean": float(fitted[~wrong].double().mean()),
        "noisy": float(fitted[wrong].double().mean()),
        "share": float(wrong.double().mean()),
    }


def _noisy(train: Vectors, labels: str, samples: int, seed: int) -> tuple[Vectors, Tensor]:
    """The training set, and which of its labels are wrong."""
    generator = torch.Generator().manual_seed(seed)
    places = drawn(seed, len(train.labels), samples)
    data = train.of(places)
    if labels in _PEOPLE:
        given = images_of("cifar10n", "train").columns[_PEOPLE[labels]][places]
        return Vectors(data.features, given), given != data.labels
    if labels == "open-set":
        # The samples of the last three classes get a label of the first seven: no label would be right.
        data = train.of(places[_outside(train.labels[places], 0.4)])
        foreign = data.labels >= _FOREIGN
        given = torch.where(foreign, torch.randint(_FOREIGN, data.labels.shape, generator=generator), data.labels)
        return Vectors(data.features, given), foreign
    kind, rate = labels.split("-")
    flip = noise.flip_symmetric if kind == "symmetric" else noise.flip_pairwise
    noisy = flip(data.labels, float(rate) / 100, 10, generator=generator, exact=True)
    return Vectors(data.features, noisy.labels), noisy.changed


def _outside(labels: Tensor, share: float) -> Tensor:
    """Places of all samples of the first classes and of so many of the others that these are that share of all."""
    inside, foreign = (labels < _FOREIGN).nonzero().squeeze(1), (labels >= _FOREIGN).nonzero().squeeze(1)
    own = min(len(inside), int(len(foreign) * (1 - share) / share))
    return torch.cat([inside[:own], foreign[: int(own * share / (1 - share))]])


def _loss(method: str, classes: int) -> Any:
    if method.endswith("amc"):
        on_logits = GradientRescaling(8.0, 0.5) if "gr" in method else None
        return Objective(on_logits, AMCLoss(pairs="all"), feature_weight=1.0)
    losses: dict[str, Any] = {
        "gce": GCELoss, "auto": lambda: AutomaticRescaling(classes),
        "gr": lambda: GradientRescaling(8.0, 0.5), "angular-gr": lambda: GradientRescaling(8.0, 0.5),
        "angular-avc": lambda: DrivenByConfidence(8.0, 0.5),
    }  # fmt: skip
    return losses[method]() if method in losses else None


class DrivenByConfidence(nn.Module):
    """Gradient rescaling of an angular head whose weights follow AVC in place of the softmax probability.

    The head's logits are s (pi - angle), so AVC is the share of a class in their sum. It is stretched linearly so that
    1 / C stays 1 / C, and an angle of 0 with right angles to the others, 2 / (C + 1), becomes 1.
    """

    def __init__(self, beta: float, lam: float) -> None:
        super().__init__()
        self.beta, self.lam = beta, lam

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        classes = logits.shape[1]
        visual = (logits / logits.sum(1, keepdim=True)).detach().gather(1, labels.unsqueeze(1)).squeeze(1)
        chance, most = 1 / classes, 2 / (classes + 1)
        likely = (chance + (visual - chance) * (1 - chance) / (most - chance)).clamp(1e-6, 1 - 1e-6)
        weights = weight_curve(likely, self.beta, self.lam)
        return gradient_rescaling(logits, labels, beta=0.0, lam=0.0, sample_weight=weights)
