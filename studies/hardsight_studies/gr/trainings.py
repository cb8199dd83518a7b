"""The trainings behind Gradient Rescaling's tables: the printed protocol and the losses by name.

A cell names a method, a noise rate, a seed and whatever else a table varies; `Protocol.tree` turns it into a
configuration. What the records become is in `judged`.
"""

from dataclasses import dataclass

import torch
from torch import nn

from hardsight.heads import evaluating
from hardsight.training import Cell
from hardsight_studies.configured import CellTraining, Tree


@dataclass(frozen=True)
class Protocol:
    """How networks of a table are trained. `drops`: shares of the training after which the rate falls to a tenth.

    `limit` and `shrink`: the first so many images, squares of so many pixels averaged. `reduction`: what divides GR's
    gradients, the sum of the weights ("weight") or the number of samples ("mean"). `epsilon`: what is added to the
    2 (1 - p) by which GR divides: 0 is Eq. 6 to the letter, the authors' code adds 1e-6. `balanced`: classes and images
    of each in a batch, by the given labels. `warm_up`: epochs of a linear rise. `dropout`: the share of features
    dropped, for networks that have it; None leaves the network's own. `clip`: the largest norm of a gradient.
    """

    data: str
    model: str
    epochs: int
    drops: tuple[float, ...] = (1 / 4, 1 / 2, 3 / 4)
    batch_size: int = 128
    lr: float = 0.1
    weight_decay: float = 1e-4
    shift: int = 4
    flip: bool = True
    limit: int | None = None
    shrink: int = 1
    precision: str = "auto"
    reduction: str = "weight"
    epsilon: float = 0.0
    balanced: tuple[int, int] | None = None
    warm_up: int = 0
    dropout: float | None = None
    clip: float | None = None

    def tree(self, method: str, rate: float, seed: int, *, noise: str = "symmetric") -> Tree:
        """The configuration of one training: this method on labels with that noise."""
        data: Tree = {
            "name": self.data, "batch_size": self.batch_size, "drop_last": True, "shift": self.shift,
            "flip": self.flip, "limit": self.limit, "shrink": self.shrink, "test_batch_size": 2500,
        }  # fmt: skip
        if self.balanced is not None:
            data["class_balanced"] = list(self.balanced)
        model: Tree = {"name": self.model}
        if self.dropout is not None:
            model["options"] = {"dropout": self.dropout}
        return {
            "data": data,
            "model": model,
            "loss": loss_of(method, rate, self.data, self.reduction, self.epsilon),
            # Without wrong labels the kind is symmetric all the same: the record then knows the true labels.
            "noise": {"kind": noise, "rate": rate},
            "optimizer": {"name": "sgd", "lr": self.lr, "momentum": 0.9, "weight_decay": self.weight_decay},
            "schedule": self._schedule(),
            "record": {"scores": [], "dynamics": False},
            "precision": self.precision,
            "clip": self.clip,
            "epochs": self.epochs,
            "seed": seed,
        }

    def tree_of(self, cell: Cell) -> Tree:
        """The configuration of a cell that names method, rate and seed, whatever else it names."""
        return self.tree(*(cell.settings[name] for name in ("method", "rate", "seed")))

    def _schedule(self) -> Tree:
        # Between epochs, nearest to the share: the curves then show a fall where it happened.
        falls = sorted({max(1, round(share * self.epochs)) for share in self.drops})
        return {"kind": "steps", "milestones": falls, "factor": 0.1, "unit": "epoch", "warm_up": self.warm_up}


# What the authors' code adds to the 2 (1 - p) that it divides by. Their numbers were made with it; without it logits
# grow for ever (`gr-protocol`).
RELEASED_EPSILON = 1e-6
# Section 4.1: SGD 0.1, momentum 0.9, weight decay 1e-4, batch 128, a tenth of the rate every 5,000 iterations, crop and
# flip. How long, is not printed: after the third fall nothing moves any more, so 20,000 iterations (51 epochs of 390).
PRINTED = Protocol("cifar10", "resnet56", epochs=51, epsilon=RELEASED_EPSILON)
# The schedule of the authors' released code for CIFAR-100: a tenth after 15,000 and 22,000 of 30,000 iterations.
RELEASED_DROPS = (15 / 30, 22 / 30)
# Cells that are trained so name this protocol; those that are as long and else as printed, the other.
RELEASED, LONG = "released", "long"
# The whole of that training but for its batches of 32 classes: 30,000 iterations are 154 epochs of 195.
RELEASED_TRAINING: Tree = {"epochs": 154, "drops": RELEASED_DROPS, "batch_size": 256, "weight_decay": 5e-4}
# Postal digits at 8 x 8 pixels: a minute on two cores, to see it work, not to compare numbers.
TINY = Protocol(
    "usps", "digits_cnn", epochs=10, limit=2000, shrink=2, shift=1, flip=False, batch_size=32, lr=0.05,
    epsilon=RELEASED_EPSILON,
)  # fmt: skip
# scikit-learn's digits: seconds.
DIGITS = Protocol(
    "digits", "digits_cnn", epochs=3, limit=400, shift=1, flip=False, batch_size=64, lr=0.05, epsilon=RELEASED_EPSILON
)


def gr(beta: int | float, lam: int | float) -> str:
    """The name of GR with these two knobs."""
    return f"gr-{beta:g}-{lam:g}"


def knobs(method: str) -> tuple[float, float] | None:
    """(beta, lambda) of a GR method's name, None of any other."""
    kind, *numbers = method.split("-")
    return (float(numbers[0]), float(numbers[1])) if kind == "gr" else None


_LOSSES: dict[str, Tree] = {
    "cce": {"name": "cross_entropy"},
    "mae": {"name": "mae"},
    "gce": {"name": "gce"},
    "sl": {"name": "symmetric_cross_entropy"},
    "focal": {"name": "focal"},
    "boot-hard": {"name": "bootstrapping_hard"},
    "boot-soft": {"name": "bootstrapping_soft"},
    "forward": {"name": "forward_correction"},
    "backward": {"name": "backward_correction"},
    "d2l": {"name": "d2l"},
    "self-paced": {"name": "self_paced"},
    "mentornet-pd": {"name": "mentornet_pd"},
}


def loss_of(method: str, rate: float, data: str, reduction: str = "weight", epsilon: float = 0.0) -> Tree:
    """The loss of a method's name as configuration. Forward and Backward are told the true noise rate."""
    both = knobs(method)
    if both is not None:
        options: Tree = {"beta": both[0], "lam": both[1], "reduction": reduction, "epsilon": epsilon}
        return {"name": "gradient_rescaling", "options": options}
    loss = dict(_LOSSES[method])
    if method in ("forward", "backward"):
        loss["options"] = {"transition": rate}
    if method == "sl" and data == "cifar100":
        # Wang et al. (2019), Section 4.2: other weights of its two parts than for ten classes.
        loss["options"] = {"alpha": 6.0, "beta": 0.1}
    return loss


TITLES = {
    "cce": "CCE", "mae": "MAE", "gce": "GCE", "sl": "SL", "focal": "Focal loss", "boot-hard": "Boot-hard",
    "boot-soft": "Boot-soft", "forward": "Forward", "backward": "Backward", "d2l": "D2L", "self-paced": "Self-paced",
    "mentornet-pd": "MentorNet PD",
}  # fmt: skip


def title_of(method: str) -> str:
    """A method as it is printed: `GR (β = 8, λ = 0.5)`."""
    both = knobs(method)
    return TITLES[method] if both is None else f"GR (β = {both[0]:g}, λ = {both[1]:g})"


def recalls(training: CellTraining, model: nn.Module) -> dict[str, list[float]]:
    """Share of each class's test images that the trained network recognises: a collapse leaves whole classes out."""
    with evaluating(model):
        hits = torch.cat([model(images).argmax(1) == labels for images, labels, _ in training.test])
    count = torch.bincount(training.test.labels)
    right = torch.bincount(training.test.labels[hits], minlength=len(count))
    return {"recalls": [round(share, 4) for share in (right / count.clamp_min(1)).tolist()]}
