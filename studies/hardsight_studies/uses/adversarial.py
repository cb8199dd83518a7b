"""Adversarial training: what it does to norm and angle, and which of them says what an attack will change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hardsight import models
from hardsight.datasets.epochs import Batch
from hardsight.degradation import adversarial
from hardsight.hardness import angular_visual_hardness, open_set_scores
from hardsight.training import Hooks, Plan, fit
from hardsight.training.schedules import cosine
from hardsight_studies.avh.people import images_of
from hardsight_studies.engine.grid import Run
from hardsight_studies.outputs import Outputs, outputs_of
from hardsight_studies.uses.frozen import CPU, Batches, Vectors, auroc, drawn


def measure(run: Run) -> Mapping[str, Any]:
    """Accuracy, norm and AVH of test images before and after an attack; norm and AVH after each epoch."""
    of = run.config
    train, test = (_images(of["data"], part, of[part], run.seed) for part in ("train", "test"))
    torch.manual_seed(run.seed)
    model = models.create(of["model"], num_classes=10, in_channels=1)
    curves: dict[str, list[float]] = {"norm": [], "avh": []}

    def after_epoch(epoch: int, row: Any) -> None:
        seen = outputs_of(model, _batches(test))
        curves["norm"].append(_norm(seen))
        curves["avh"].append(_avh(seen))

    batches = Batches(train, 64, run.seed)
    if run.settings["training"] == "adversarial":
        batches = _Attacked(train, 64, run.seed, model, of["epsilon"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    fit(
        model, batches, None, optimizer, epochs=of["epochs"], plan=Plan(cosine(0.0, "step")),
        hooks=Hooks(after_epoch=after_epoch), progress=False, device=CPU,
    )  # fmt: skip
    plain = outputs_of(model, _batches(test))
    attacked = outputs_of(model, [Batch(_attack(model, *one, of["epsilon"], 20), *one[1:]) for one in _batches(test)])
    right, still = (seen.logits.argmax(1) == seen.labels for seen in (plain, attacked))
    found = {
        "accuracy": float(right.double().mean()), "attacked_accuracy": float((right & still).double().mean()),
        "norm": _norm(plain), "attacked_norm": _norm(attacked), "avh": _avh(plain), "attacked_avh": _avh(attacked),
    }  # fmt: skip
    scores = open_set_scores(plain.features, plain.weight, plain.bias)
    for name in ("avh", "norm", "softmax", "angular_margin"):
        found[f"changed_by_{name}"] = auroc(scores[name][right & ~still], scores[name][right & still])
    epochs = [float(1 + at) for at in range(of["epochs"])]
    return {**found, "points": {name: {"x": epochs, "y": values} for name, values in curves.items()}}


class _Attacked(Batches):
    """Batches of which every image has been attacked against the network as it is now (Madry et al., 2018)."""

    def __init__(self, data: Vectors, batch_size: int, seed: int, model: nn.Module, epsilon: float) -> None:
        super().__init__(data, batch_size, seed)
        self.model, self.epsilon = model, epsilon

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for images, labels, places in super().__iter__():
            yield _attack(self.model, images, labels, places, self.epsilon, 7), labels, places


def _attack(model: nn.Module, images: Tensor, labels: Tensor, places: Tensor, epsilon: float, steps: int) -> Tensor:
    return adversarial(model, images, labels, epsilon=epsilon, steps=steps, low=0.0, high=1.0)


def _images(name: str, split: str, many: int, seed: int) -> Vectors:
    """So many images with values in [0, 1]; of a set without parts the first two thirds are the training set."""
    whole = images_of(name, None if name == "digits" else split)
    third = len(whole.labels) // 3
    part = (slice(0, 2 * third) if split == "train" else slice(2 * third, None)) if name == "digits" else slice(None)
    images, labels = whole.images[part], whole.labels[part]
    places = drawn(seed, len(labels), many)
    return Vectors(images[places].float() / 255, labels[places])


def _batches(data: Vectors) -> Sequence[Batch]:
    places = torch.arange(len(data.labels)).split(250)
    return [Batch(data.features[one], data.labels[one], one) for one in places]


def _norm(seen: Outputs) -> float:
    return float(seen.features.double().norm(dim=1).mean())


def _avh(seen: Outputs) -> float:
    return float(angular_visual_hardness(seen.features.double(), seen.weight.double(), seen.labels).mean())
