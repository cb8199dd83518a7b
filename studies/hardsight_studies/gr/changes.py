"""The changes of GR's protocol that `protocol` measures: what each is called, what it does, in which order they come.

One factor at a time around Section 4.1 as printed, on ResNet-20 and 30 epochs, the falls of the rate at the same
shares of the training: a shortened protocol, to find what matters, not to be the table.
"""

import dataclasses
from typing import Any

from hardsight.training import Cell
from hardsight_studies.gr.trainings import (
    DIGITS,
    PRINTED,
    RELEASED_DROPS,
    RELEASED_EPSILON,
    RELEASED_TRAINING,
    TINY,
    Protocol,
    gr,
)

RATE, METHODS = 0.4, ("cce", gr(8, 0.5), gr(16, 1))
# Trained as printed alone: from far below to far above the limit that `limit` derives.
SETTINGS = (gr(8, 1), gr(12, 0.5), gr(20, 2), gr(12, 1), gr(4, 1))
# The printed equations to the letter: without the authors' epsilon.
BASES = {
    "smoke": dataclasses.replace(DIGITS, epsilon=0.0),
    "cpu": dataclasses.replace(TINY, epsilon=0.0),
    "paper": dataclasses.replace(PRINTED, model="resnet20", epochs=30, epsilon=0.0),
}
PRINTED_AS_IT_IS, RIGHT_LABELS = "printed", "right-labels"
ANCHOR, RELEASED_ANCHOR = "clean-anchor", "clean-anchor-released"
ANCHORS = (ANCHOR, RELEASED_ANCHOR)
# What is printed of each change.
TITLES = {
    PRINTED_AS_IT_IS: "as printed",
    "released-falls": "rate falls at 1/2 and 11/15 (the authors' code)",
    "lr-tenth": "a tenth of the learning rate",
    "decay-5e-4": "weight decay 5e-4",
    "no-augmentation": "no crop, no flip",
    "no-crop": "flip, no crop",
    "no-flip": "crop, no flip",
    "warm-up": "warm-up over a tenth of the epochs",
    "clip": "gradients no longer than 1",
    "balanced": "class-balanced batches of 8 classes",
    "mean": "gradients divided by N",
    "mean-lr-tenth": "divided by N, a tenth of the learning rate",
    "falls-and-decay": "falls and weight decay of the authors' code",
    "released": "the authors' code: falls, weight decay, balanced batches",
    "epsilon": "fitted samples let go (the authors' code divides by 2(1 − p) + 1e-6)",
    "released-epsilon": "the authors' code: falls, weight decay, balanced batches, fitted samples let go",
    "float32": "float32",
    "twice-as-long": "twice as long",
    "late-falls": "twice as long, rate falls at 3/4 and 7/8",
    "late-epsilon": "twice as long, rate falls at 3/4 and 7/8, fitted samples let go",
    RIGHT_LABELS: "no noise",
    ANCHOR: "clean labels, full length",
    RELEASED_ANCHOR: "clean labels, as the authors' code trains on CIFAR-100, full length",
}
# What changes GR's loss, and the change whose CCE it is compared with: all but the loss is the same there.
OF_GR_ALONE = {
    "mean": PRINTED_AS_IT_IS, "mean-lr-tenth": "lr-tenth", "epsilon": PRINTED_AS_IT_IS,
    "released-epsilon": "released", "late-epsilon": "late-falls",
}  # fmt: skip
FACTORS = [change for change in TITLES if change not in (PRINTED_AS_IT_IS, RIGHT_LABELS, *ANCHORS)]


def changed(base: Protocol, change: str) -> Protocol:
    """The base protocol with one change."""
    falls, decay = {"drops": RELEASED_DROPS}, {"weight_decay": 5e-4}
    balanced, let_go = {"balanced": (8, base.batch_size // 8)}, {"epsilon": RELEASED_EPSILON}
    real = base.data == PRINTED.data and base.limit is None
    slower, late = {"lr": base.lr / 10}, {"epochs": 2 * base.epochs, "drops": (3 / 4, 7 / 8)}
    of: dict[str, dict[str, Any]] = {
        PRINTED_AS_IT_IS: {},
        "released-falls": falls,
        "lr-tenth": slower,
        "decay-5e-4": decay,
        "no-augmentation": {"shift": 0, "flip": False},
        "no-crop": {"shift": 0},
        "no-flip": {"flip": False},
        "warm-up": {"warm_up": max(2, base.epochs // 10)},
        "clip": {"clip": 1.0},
        "balanced": balanced,
        "mean": {"reduction": "mean"},
        "mean-lr-tenth": {"reduction": "mean", **slower},
        "falls-and-decay": {**falls, **decay},
        "released": {**falls, **decay, **balanced},
        "epsilon": let_go,
        "released-epsilon": {**falls, **decay, **balanced, **let_go},
        "float32": {"precision": "float32"},
        "twice-as-long": {"epochs": 2 * base.epochs},
        "late-falls": late,
        "late-epsilon": {**late, **let_go},
        RIGHT_LABELS: {},
        ANCHOR: {"epochs": PRINTED.epochs} if real else {},
        RELEASED_ANCHOR: RELEASED_TRAINING if real else {},
    }
    return dataclasses.replace(base, **of[change])


def cells(preset: str) -> list[Cell]:
    """The base and the settings around the limit, then changes, most telling first; those of one length together.

    Of the paper's size two more seeds come last, of what the authors' code is told apart by.
    """
    cce, mild, strong = METHODS
    pairs = [(PRINTED_AS_IT_IS, method) for method in (strong, cce, mild)]
    if preset == "smoke":
        return [_cell(*pair) for pair in (*pairs[:2], (ANCHOR, cce), ("balanced", strong), ("clip", strong))]
    if preset == "paper":
        pairs += [("epsilon", mild), ("released-epsilon", mild), ("released-epsilon", strong), ("epsilon", strong)]
    pairs += [(PRINTED_AS_IT_IS, method) for method in SETTINGS]
    if preset == "cpu":
        pairs += [("epsilon", mild), ("epsilon", strong)]
        changes = ["lr-tenth", "decay-5e-4", "warm-up", "clip", "balanced", "released-falls", "mean-lr-tenth"]
        changes += ["late-falls", RIGHT_LABELS]
        chosen = (*pairs, *((change, strong) for change in changes), (ANCHOR, cce))
        # Three seeds: rounding alone moves a training near its collapse by twenty points.
        return [_cell(*pair, seed) for seed in range(3) for pair in chosen]
    # Without crops and flips wrong labels can be learnt by heart, as the paper's CCE has learnt them.
    pairs += [("no-augmentation", method) for method in METHODS]
    pairs += [(RIGHT_LABELS, strong), ("lr-tenth", strong), ("decay-5e-4", strong)]
    # Twice as long as the others: whether classes that were ruled out come back while the rate is high.
    pairs += [("late-epsilon", strong), ("late-epsilon", mild), ("late-falls", cce)]
    pairs += [(change, method) for change in ("late-falls", "twice-as-long") for method in (strong, cce, mild)]
    pairs += [("clip", strong), ("released", strong), ("warm-up", strong), ("balanced", strong)]
    pairs += [("falls-and-decay", mild), ("released", cce), ("clip", mild)]
    pairs += [("released", mild), ("mean-lr-tenth", strong)]
    pairs += [("float32", strong), ("mean", strong), ("decay-5e-4", cce), (RIGHT_LABELS, cce)]
    pairs += [(anchor, cce) for anchor in ANCHORS]
    rest = [(change, method) for change in TITLES if change not in ANCHORS for method in METHODS]
    rest = [pair for pair in rest if not (pair[0] in OF_GR_ALONE and pair[1] == cce)]
    told = [(PRINTED_AS_IT_IS, one) for one in (strong, cce, mild)] + [("epsilon", mild), ("epsilon", strong)]
    told += [("released-epsilon", mild), ("released-epsilon", strong), ("released", cce)]
    found = [_cell(*pair) for pair in dict.fromkeys([*pairs, *rest])]
    return found + [_cell(*pair, seed) for seed in (1, 2) for pair in told]


def _cell(change: str, method: str, seed: int = 0) -> Cell:
    return Cell({"change": change, "method": method, "seed": seed})


def key(change: str, method: str) -> str:
    """What the cells of all seeds of a change and a method share."""
    return f"change={change},method={method}"
