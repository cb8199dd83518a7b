"""The trainings on people's labels: which labels, which methods, their cells, their configurations.

A cell names the labels, the method and, where it is not the short one, the protocol.
"""

import dataclasses
from typing import NamedTuple

from hardsight.training import Cell
from hardsight_studies.configured import Tree
from hardsight_studies.gr.choosing import AUTO, AUTO_AS_PRINTED, AUTO_BOUNDED, method_loss
from hardsight_studies.gr.trainings import (
    DIGITS,
    PRINTED,
    RELEASED,
    RELEASED_DROPS,
    RELEASED_EPSILON,
    RELEASED_TRAINING,
    Protocol,
    gr,
)

# A cell's name says how it was trained: a setting alone is Eq. 6 to the letter, which was measured first; with this
# behind it, fitted samples are let go as in the authors' code.
_LETS_GO = "-released"


def _released(beta: int | float, lam: int | float) -> str:
    return gr(beta, lam) + _LETS_GO


class Labels(NamedTuple):
    """Where noisy labels come from: a data set's column, or for the digits a noise made on purpose."""

    title: str
    data: str
    noise: Tree
    tuned: str  # the paper's best setting for about this much noise and this many classes


def _people(title: str, data: str, column: str, tuned: str) -> Labels:
    return Labels(title, data, {"kind": "human", "column": column}, tuned)


LABELS = {
    "worse": _people("CIFAR-10N worse (40 %)", "cifar10", "worse_label", _released(16, 1)),
    "random1": _people("CIFAR-10N random1 (17 %)", "cifar10", "random_label1", _released(12, 0.5)),
    "aggre": _people("CIFAR-10N aggre (9 %)", "cifar10", "aggre_label", _released(2, 0)),
    "cifar100n": _people("CIFAR-100N (40 %)", "cifar100", "noisy_label", _released(6, 0.4)),
    "pairwise": Labels("digits, next class (30 %)", "digits", {"kind": "pairwise", "rate": 0.3}, _released(12, 0.5)),
}  # fmt: skip
UNKNOWN_NOISE = _released(8, 0.5)
TO_THE_LETTER = gr(8, 0.5)
COMMON = ("cce", UNKNOWN_NOISE, "gce", "sl", AUTO)
# The first forms of GR, kept with what was measured of them.
FORMER = (TO_THE_LETTER, AUTO_AS_PRINTED, AUTO_BOUNDED)
# As long as the authors' code trains on CIFAR-100: where wrong labels can be learnt by heart.
LONG_METHODS = ("cce", UNKNOWN_NOISE, "gce", AUTO)
# Shortened: 20 epochs, the rate's falls where the authors' released code has them.
_SHORT = dataclasses.replace(PRINTED, model="resnet20", epochs=20, drops=RELEASED_DROPS, weight_decay=5e-4)
PROTOCOLS: dict[str, Protocol] = {
    "smoke": dataclasses.replace(DIGITS, epochs=6),
    # 3,000 images at a quarter of the pixels: to see it work on people's errors.
    "cpu": dataclasses.replace(_SHORT, epochs=6, limit=3000, shrink=2, shift=2),
    "paper": _SHORT,
}


def cells(preset: str) -> list[Cell]:
    """CCE, GR and auto on every kind of labels, the worst first; then GCE, SL and the tuned setting; then seeds.

    Then, or at any time by `--cells protocol=released`, long trainings; last, once, the first forms of GR and of auto.
    """
    if preset == "smoke":
        return [_cell("pairwise", method, 0) for method in ("cce", UNKNOWN_NOISE, AUTO)]
    kinds = ("worse", "aggre") if preset == "cpu" else ("worse", "random1", "aggre", "cifar100n")
    pairs = [(kind, method) for kind in kinds for method in ("cce", UNKNOWN_NOISE, AUTO)]
    pairs += [(kind, method) for kind in kinds for method in ("gce", "sl")]
    if preset == "paper":
        pairs += [(kind, LABELS[kind].tuned) for kind in kinds]
    seeds = (0, 1, 2) if preset == "paper" else (0,)
    planned = [_cell(kind, method, seed) for seed in seeds for kind, method in pairs]
    if preset == "paper":
        planned += [_cell(kind, method, 0, RELEASED) for kind in kinds for method in LONG_METHODS]
    former = [(kind, method) for method in (TO_THE_LETTER, AUTO_BOUNDED) for kind in kinds[:3]]
    former += [(kind, AUTO_AS_PRINTED) for kind in kinds[:2]]
    return planned + [_cell(kind, method, 0) for kind, method in former]


def _cell(kind: str, method: str, seed: int, protocol: str = "") -> Cell:
    named = {"protocol": protocol} if protocol else {}
    return Cell({"labels": kind, "method": method, **named, "seed": seed})


def configure(preset: str, cell: Cell) -> Tree:
    """One training on people's labels, tested on the test set that nobody relabelled."""
    labels = LABELS[cell.settings["labels"]]
    # As the authors' code trains, no gradient is clipped either.
    as_released = {**RELEASED_TRAINING, "clip": None} if "protocol" in cell.settings else {"clip": 1.0}
    protocol = dataclasses.replace(PROTOCOLS[preset], data=labels.data, **as_released)
    tree = protocol.tree("cce", 0.0, cell.settings["seed"])
    if labels.noise["kind"] == "human":
        tree["data"] |= {"name": f"{labels.data}n", "test_name": labels.data}
    method = cell.settings["method"]
    loss = method_loss(method, 0.0, labels.data, RELEASED_EPSILON if method.endswith(_LETS_GO) else 0.0)
    return tree | {"loss": loss, "noise": labels.noise}
