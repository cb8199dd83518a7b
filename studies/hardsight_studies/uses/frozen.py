"""Samples as vectors, small networks on them, and how they are trained: what the studies of uses share."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from hardsight import datasets, models
from hardsight.datasets import registry
from hardsight.datasets.samplers import EpochSampler
from hardsight.hardness import angular_visual_hardness
from hardsight.heads import evaluating
from hardsight.losses import AngularLinear
from hardsight.training import Hooks, Plan, Steps, fit
from hardsight.training.schedules import cosine
from hardsight_studies.avh.people import images_of

CPU = torch.device("cpu")


class Vectors(NamedTuple):
    """Samples as vectors with their classes, float32 and int64."""

    features: Tensor
    labels: Tensor

    def of(self, where: Tensor) -> "Vectors":
        """Some of them."""
        return Vectors(self.features[where], self.labels[where])


class Seen(NamedTuple):
    """What a network says of vectors."""

    features: Tensor
    logits: Tensor
    weight: Tensor
    bias: Tensor | None


@functools.cache
def vectors(name: str) -> tuple[Vectors, Vectors]:
    """Training and test set: `cifar10`, features of a frozen EfficientNet-Lite0; `digits`, scikit-learn's pixels."""
    if name == "digits":
        from sklearn.datasets import load_digits

        bunch = load_digits()
        features, labels = torch.tensor(bunch.data / 16 - 0.3).float(), torch.tensor(bunch.target)
        return Vectors(features[:1200], labels[:1200]), Vectors(features[1200:], labels[1200:])
    known = datasets.source("cifar10")
    path = registry.data_root(None, known) / "cifar-10-features" / "efficientnet-lite0.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: features of CIFAR-10's images by EfficientNet-Lite0")
    held = load_file(path)
    # One scale for all, so that angles stay what they are.
    scale = held["train"].float().std()
    train, test = (Vectors(held[one].float() / scale, images_of("cifar10", one).labels) for one in ("train", "test"))
    return train, test


def drawn(seed: int, count: int, many: int) -> Tensor:
    """So many of `count` places at random, by seed."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:many]


class Batches:
    """Shuffled batches of vectors with places as ids; a sampler orders an epoch, which keeps its length."""

    def __init__(self, data: Vectors, batch_size: int, seed: int, sampler: EpochSampler | None = None) -> None:
        self.data, self.batch_size, self.seed, self.sampler, self.epoch = data, batch_size, seed, sampler, 0

    def __len__(self) -> int:
        return -(-len(self.data.labels) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Which order comes next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        count = len(self.data.labels)
        if self.sampler is None:
            order = drawn(1000 * self.seed + self.epoch, count, count)
        else:
            order = self.sampler.order(self.epoch)
            order = order.repeat(-(-count // len(order)))[:count]
        for part in order.split(self.batch_size):
            yield self.data.features[part], self.data.labels[part], part


def trained(
    data: Vectors,
    *,
    classes: int,
    seed: int,
    epochs: int,
    hidden: int = 256,
    loss: Any = None,
    lr: float = 0.05,
    batch_size: int = 128,
    angular: bool = False,
    sampler: EpochSampler | None = None,
    after_epoch: Callable[[int, nn.Module], None] | None = None,
    weight_decay: float = 5e-4,
    looks: bool = False,
) -> nn.Module:
    """A network with one hidden layer, trained by the library's loop with a cosine schedule.

    `looks`: the loss looks at the training set between epochs.
    """
    torch.manual_seed(seed)
    model = models.create(
        "mlp", num_classes=classes, in_channels=data.features.shape[1], hidden=[hidden], activation="relu",
        head=AngularLinear if angular else nn.Linear,
    )  # fmt: skip
    rules = [*model.parameters(), *(loss.parameters() if isinstance(loss, nn.Module) else ())]
    optimizer = torch.optim.SGD(rules, lr=lr, momentum=0.9, weight_decay=weight_decay)

    hooks = None if after_epoch is None else Hooks(after_epoch=lambda epoch, row: after_epoch(epoch, model))
    fit(
        model, Batches(data, batch_size, seed, sampler), loss, optimizer, epochs=epochs, plan=Plan(cosine(0.0, "step")),
        steps=Steps(clip=1.0), samples=Batches(data, 4096, seed) if looks else None, hooks=hooks, progress=False,
        device=CPU,
    )  # fmt: skip
    return model


def seen_by(model: Any, features: Tensor) -> Seen:
    """Features before the head and logits, in evaluation mode."""
    with evaluating(model):
        hidden = model.forward_features(features)
        return Seen(hidden, model.head(hidden), model.head.weight.detach(), getattr(model.head, "bias", None))


def hardness_of(model: Any, data: Vectors) -> Tensor:
    """AVH of each sample against its label."""
    seen = seen_by(model, data.features)
    return angular_visual_hardness(seen.features, seen.weight, data.labels)


def accuracy(model: Any, data: Vectors) -> float:
    """Share of right predictions."""
    return float((seen_by(model, data.features).logits.argmax(1) == data.labels).double().mean())


def auroc(positive: Tensor, negative: Tensor) -> float:
    """How often a positive sample has the larger value than a negative one; ties count half."""
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([1, 0], [len(positive), len(negative)])
    return float(roc_auc_score(labels, torch.cat([positive, negative]).double().numpy()))
