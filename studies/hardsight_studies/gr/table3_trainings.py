"""The trainings of GR's Table 3, which Table 11 goes on from: their protocols, cells and configurations.

Beside the printed protocol three that are not the paper's, each for a question: whether wrong labels can be learnt by
heart at all (no crops, no flips), and what the length of the authors' later code makes of the table, with its weight
decay and with the printed one.
"""

import dataclasses
from typing import NamedTuple

from hardsight.training import Cell
from hardsight_studies.configured import Tree
from hardsight_studies.gr.judged import cell_of
from hardsight_studies.gr.table3_numbers import PAPER, SPREADS, best_in_paper
from hardsight_studies.gr.trainings import DIGITS, LONG, PRINTED, RELEASED, RELEASED_TRAINING, TINY, Protocol, gr

PROTOCOLS = {"smoke": DIGITS, "cpu": TINY, "paper": PRINTED}
BARE = "no-augmentation"


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
        "**Without crops and flips**, in the printed 51 epochs; the paper's numbers are with them:",
        "no augmentation",
    ),
    RELEASED: Other(
        _AS_RELEASED,
        "**As the authors' code trains on CIFAR-100**: 154 epochs as well, with the weight decay of that code, 5e-4:",
        "as the authors' code trains",
    ),
    LONG: Other(
        dataclasses.replace(_AS_RELEASED, weight_decay=PRINTED.weight_decay),
        "**Long: 154 epochs** (30,000 iterations of batch 256, the rate divided by ten after 15,000 and 22,000, weight "
        "decay 1e-4 as printed, crops and flips):",
        "154 epochs, weight decay as printed",
    ),
}


def configure(preset: str, cell: Cell) -> Tree:
    """The configuration of such a cell, whatever else it names."""
    named = cell.settings.get("protocol")
    return (PROTOCOLS[preset] if named is None else OTHERS[named].protocol).tree_of(cell)


def cells(preset: str) -> list[Cell]:
    """CCE against the paper's best GR, 40 % first; then the rest of the table; then the other spreads and seeds.

    Last, or at any time by `--cells protocol=released` and the like, the first of them under the other protocols.
    """
    if preset != "paper":
        rates = (0.4,) if preset == "cpu" else (0.2, 0.4)
        few = ("cce", gr(12, 0.5), gr(16, 1)) if preset == "cpu" else ("cce", gr(12, 0.5))
        return [cell_of(rate, method, 0) for rate in rates for method in few]
    order = (0.4, 0.2, 0.6, 0.8)
    pairs = [(0.4, "cce"), (0.4, gr(16, 1)), (0.4, gr(12, 0.5))]
    pairs += [(rate, method) for rate in order for method in ("cce", best_in_paper(rate))]
    first = dict.fromkeys([*pairs, (0.4, gr(8, 0.5))])
    others = [cell_of(rate, method, 0, protocol) for protocol in OTHERS for rate, method in first]
    # The protocol that reaches the paper's numbers gets further seeds.
    others += [
        cell_of(rate, one, seed, LONG) for seed in (1, 2) for rate in order for one in ("cce", best_in_paper(rate))
    ]
    pairs += [pair for rate in order for pair in PAPER if pair[0] == rate]
    every = [gr(beta, lam) for lam, betas in SPREADS.items() for beta in betas]
    found = [cell_of(rate, method, 0) for rate, method in dict.fromkeys(pairs)]
    found += [cell_of(rate, method, seed) for seed in (1, 2) for rate, method in dict.fromkeys(pairs)]
    return found + [cell_of(rate, one, 0) for rate in order for one in every if (rate, one) not in PAPER] + others
