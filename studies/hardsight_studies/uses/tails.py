"""Classes of very different size: hardness by group, and whether weights and order by hardness help the small ones."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hardsight.alignment import correlate
from hardsight.cleaning import ClassBalancedSampler, EpochSampler, ImportanceSampler
from hardsight.losses import CrossEntropy, FocalLoss
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import Vectors, drawn, hardness_of, seen_by, trained, vectors


def measure(run: Run) -> Mapping[str, Any]:
    """Accuracy on a test set of equal classes: all, of the three largest and of the three smallest classes."""
    of, method = run.config, str(run.settings["method"])
    train, test = vectors(of["data"])
    data = long_tail(train, run.settings["imbalance"], of["largest"], run.seed)
    counts = torch.bincount(data.labels, minlength=10)
    first = trained(data, classes=10, seed=run.seed, epochs=of["epochs"])
    hardness = hardness_of(first, data)
    by_class = torch.stack([hardness[data.labels == one].mean() for one in range(10)])
    weights, sampler, loss = _ways(method, data, counts, hardness, by_class, run.seed)
    if weights is not None:
        loss = _Weighted(weights / weights.mean())
    again = method != "plain"
    model = (
        trained(data, classes=10, seed=run.seed, epochs=of["epochs"], loss=loss, sampler=sampler) if again else first
    )
    right = seen_by(model, test.features).logits.argmax(1) == test.labels
    recall = torch.stack([right[test.labels == one].double().mean() for one in range(10)])
    order = counts.argsort(descending=True)
    group = correlate(by_class.double().numpy(), counts.double().log().numpy()).coefficient
    return {
        "accuracy": float(recall.mean()),
        "head": float(recall[order[:3]].mean()),
        "tail": float(recall[order[-3:]].mean()),
        "hardness_and_size": group,
    }


def long_tail(data: Vectors, imbalance: int | float, largest: int, seed: int) -> Vectors:
    """Class sizes that fall evenly by factors from the largest to its `imbalance`-th part, classes in random order."""
    sizes = (largest * imbalance ** -(torch.arange(10) / 9)).long()
    order = drawn(seed, 10, 10)
    places = drawn(seed + 1, len(data.labels), len(data.labels))
    return data.of(torch.cat([places[data.labels[places] == int(one)][: int(size)]
                              for one, size in zip(order, sizes, strict=True)]))  # fmt: skip


def _ways(
    method: str, data: Vectors, counts: Tensor, hardness: Tensor, by_class: Tensor, seed: int
) -> tuple[Tensor | None, EpochSampler | None, Any]:
    """Weights of the samples, their order, or the loss of a method."""
    if method == "frequency":
        return 1 / counts[data.labels].float(), None, None
    if method == "class-hardness":
        return by_class[data.labels], None, None
    if method == "hardness":
        return hardness, None, None
    if method == "sampled":
        return None, ImportanceSampler(hardness, seed=seed), None
    if method == "balanced":
        return None, ClassBalancedSampler(data.labels, classes_per_batch=10, samples_per_class=12, seed=seed), None
    return None, None, FocalLoss() if method == "focal" else CrossEntropy()


class _Weighted(torch.nn.Module):
    """Cross-entropy with a weight for each sample, by its place."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, logits: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return (self.weights[ids] * losses).mean()
