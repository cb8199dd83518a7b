"""The trainings of GR's Table 3, which Table 11 goes on from: their protocols, their cells, their configurations.

Beside the printed protocol three that are not the paper's, each for a question: whether wrong labels can be learnt by
heart at all (no crops, no flips), and what the length of the authors' later code makes of the table, with its weight
decay and with the printed one.
"""

import dataclasses
from typing import NamedTuple

from hardsight.studies.configured import Tree
from hardsight.studies.gr.trainings import DIGITS, PRINTED, RELEASED, RELEASED_TRAINING, TINY, Protocol
from hardsight.training import Cell

PROTOCOLS = {"smoke": DIGITS, "cpu": TINY, "paper": PRINTED}
BARE, LONG = "no-augmentation", "long"


class Other(NamedTuple):
    """A protocol that is not the paper's, what its table says above it, and what its figure calls it."""

    protocol: Protocol
    head: str
    title: str


# Without that code's batches balanced by class: of ten classes all are in every batch anyway.
_AS_RELEASED = dataclasses.replace(PRINTED, **RELEASED_TRAINING)
OTHERS = {
    BARE: Other(
        dataclasses.replace(PRINTED, shift=0, flip=False),
        "Without crops and flips, where wrong labels can be learnt by heart (the paper's numbers are with them):",
        "no augmentation",
    ),
    RELEASED: Other(
        _AS_RELEASED,
        "As the authors' code trains on CIFAR-100: 30,000 iterations of batch 256, the rate's falls after 15,000 and "
        "22,000, weight decay 5e-4, crops and flips:",
        "as the authors' code trains",
    ),
    LONG: Other(
        dataclasses.replace(_AS_RELEASED, weight_decay=PRINTED.weight_decay),
        "As long as that, with the weight decay that the paper prints, 1e-4:",
        "154 epochs, weight decay as printed",
    ),
}


def cell_of(rate: float, method: str, seed: int, protocol: str = "") -> Cell:
    """The training with one loss at one rate of noise; without a protocol as printed."""
    named = {"protocol": protocol} if protocol else {}
    return Cell({"rate": rate, "method": method, **named, "seed": seed})


def configure(preset: str, cell: Cell) -> Tree:
    """The configuration of such a cell, whatever else it names."""
    named = cell.settings.get("protocol")
    return (PROTOCOLS[preset] if named is None else OTHERS[named].protocol).tree_of(cell)
