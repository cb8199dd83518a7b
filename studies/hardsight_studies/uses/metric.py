"""Metric learning: embeddings of classes that were not trained on, by triplets mined by angle and by other losses."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.explain import recall_at_k
from hardsight.geometry import angle_between
from hardsight.losses import AMCLoss, ContrastiveLoss, TripletLoss
from hardsight.training import Objective
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import Vectors, drawn, seen_by, trained, vectors


def measure(run: Run) -> Mapping[str, Any]:
    """Recall at 1 and 5 on the test images of five classes that were left out."""
    of, method = run.config, str(run.settings["method"])
    train, test = vectors(of["data"])
    order = drawn(run.seed, 10, 10)
    data, judged = _of_classes(train, order[:5]), _of_classes(test, order[5:])
    data = data.of(drawn(run.seed, len(data.labels), of["samples"]))
    embedded = judged.features
    if method != "raw":
        loss = Objective(_Nothing(), _LOSSES[method](), pairs="labels") if method in _LOSSES else None
        model = trained(data, classes=5, seed=run.seed, epochs=of["epochs"], hidden=128, loss=loss)
        embedded = seen_by(model, judged.features).features
    found = recall_at_k(embedded, judged.labels, (1, 5))
    return {f"recall_{k}": value for k, value in found.items()}


def _of_classes(data: Vectors, classes: Tensor) -> Vectors:
    """The samples of these classes, numbered in their order."""
    place = torch.full((10,), -1)
    place[classes] = torch.arange(len(classes))
    inside = (place[data.labels] >= 0).nonzero().squeeze(1)
    return Vectors(data.features[inside], place[data.labels[inside]])


class _Nothing(nn.Module):
    """No loss on logits: the features alone are trained."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return 0.0 * logits.sum()


class _RandomTriplets(nn.Module):
    """The rival without mining: a random positive and a random negative for each sample."""

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        chances = torch.rand(len(labels), len(labels))
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        positive = torch.where(same, chances, -1.0).argmax(1)
        negative = torch.where(same, -1.0, chances).argmax(1)
        gaps = angle_between(features, features[positive]) - angle_between(features, features[negative])
        return (gaps + 0.2).clamp_min(0).mean()


_LOSSES: dict[str, Callable[[], nn.Module]] = {
    "triplets": TripletLoss,
    "triplets-random": _RandomTriplets,
    "amc": lambda: AMCLoss(pairs="all"),
    "contrastive": lambda: ContrastiveLoss(pairs="all"),
}
