"""AVH, Table 3 (with Table 4, Figures 6 and 21): self-training on a domain without labels, AVH against others.

Paper: VisDA-17, mean of class accuracies 81.5 (CBST+AVH), 78.1 (CRST), 76.4 (CBST), 51.6 (their source model), all from
one ResNet-101 with ImageNet weights. Ours, 17 pairs of other domains, 5 seeds: all three gain on the source model, and
CBST+AVH ends behind CBST; the study's page has the numbers. VisDA-17 is not measured yet.

Pairs: MNIST and USPS, both ways, LeNet on pixels; the twelve of Office-Caltech10 and PACS from photos, a two-layer
network on features of a frozen EfficientNet-Lite0; VisDA-17 in the same way. All methods of a pair and seed start from
the same source model, and baselines take as many steps. Portions as in CBST's public code: 0.20, +0.05 a round, 0.50.
The target's labels are used for measuring alone; the accuracy is that of the last model, not of the best.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardsight.studies.adaptation.judging import judge_cells
from hardsight.studies.adaptation.pairs import Pair
from hardsight.studies.adaptation.printed import draw, print_table
from hardsight.studies.adaptation.runs import BASELINES, CORE, SELECTING, Family, compute_cell
from hardsight.studies.framework import Options, Study
from hardsight.training import Cell

_OFFICE = ("amazon", "caltech10", "dslr", "webcam")
_MNIST_USPS = (Pair("mnist", "usps", "usps:test"), Pair("usps", "mnist", "mnist:test"))
_OFFICE_PAIRS = tuple(
    Pair(f"office-caltech10:{one}", f"office-caltech10:{other}") for one, other in itertools.permutations(_OFFICE, 2)
)
_PACS_PAIRS = tuple(Pair("pacs:photo", f"pacs:{one}") for one in ("art_painting", "cartoon", "sketch"))
_VISDA = Pair("visda17:train", "visda17:validation", known_as="visda17")
_DIGITS: dict[str, Any] = {"model": "lenet", "model_options": {"feature_dim": 64}, "size": 28}
_FROZEN: dict[str, Any] = {
    "model": "mlp", "model_options": {"hidden": [256], "activation": "relu"}, "frozen": True, "batch_size": 64,
    "source_epochs": 20, "steps_per_epoch": 25, "rounds": 10,
}  # fmt: skip
_FIVE = tuple(range(5))

PRESETS: dict[str, tuple[Family, ...]] = {
    "smoke": (
        Family(
            "digits", (Pair("digits", "digits", degraded=True),), (0, 1), "digits_cnn", source_epochs=2, rounds=2,
            steps_per_epoch=8, batch_size=64,
        ),
    ),
    "cpu": (
        Family(
            "digits", _MNIST_USPS, (0, 1), **_DIGITS, limit=2000, source_epochs=8, rounds=7, steps_per_epoch=25,
            batch_size=64,
        ),
        Family("office-caltech10", _OFFICE_PAIRS[:4], (0, 1), **_FROZEN),
    ),
    "paper": (
        Family("digits", _MNIST_USPS, _FIVE, **_DIGITS, source_epochs=4, rounds=10, steps_per_epoch=100),
        Family("office-caltech10", _OFFICE_PAIRS, _FIVE, **_FROZEN),
        Family("pacs", _PACS_PAIRS, _FIVE, **_FROZEN),
        # The authors' schedule: 3 epochs on the source, 20 on the target, labels made anew for each.
        Family("visda17", (_VISDA,), (0,), **_FROZEN | {"source_epochs": 3, "rounds": 20, "steps_per_epoch": 400}),
    ),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# The cells, what matters most first: every seed of the four core methods; then, seed by seed, the others.


def cells(preset: str) -> list[Cell]:
    """One cell a pair, method and seed."""
    seeds = sorted({seed for family in PRESETS[preset] for seed in family.seeds})
    others = (SELECTING, BASELINES) if preset != "smoke" else (("avh-slides",), ("mmd",))
    tiers = [(CORE, seed) for seed in seeds] + [(tier, seed) for seed in seeds for tier in others]
    return [
        Cell({"pair": pair.name, "method": method, "seed": seed})
        for tier, seed in tiers
        for family in PRESETS[preset]
        for pair in (family.pairs if seed in family.seeds else ())
        for method in tier
    ]


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Compute these cells and write their records."""
    known = {pair.name: (family, pair) for family in PRESETS[preset] for pair in family.pairs}
    for cell, folder in mine:
        compute_cell(*known[str(cell.settings["pair"])], cell, folder, options)


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """The finished cells of a preset in numbers."""
    return judge_cells(cells(preset), folder, PRESETS[preset])


ABOUT = """Labels in one domain, none in the other. A model trained on the source labels the target samples that it is
surest of, and is trained on both; each round takes more. The selectors differ in what "surest" means: softmax
confidence by class (`cbst`), with soft labels and a divergence in the loss (`crst`: LRENT and MRKLD), or the angle to
the class's weights (`avh`, Eq. 4: labelled by softmax, kept by angle; `avh-slides`: angle for both; `avh-inclusive`
keeps the sample at the threshold too, as CBST does). `confidence` and `argmax` do without classes, or without any
selection. MNIST and USPS: LeNet on 28 x 28 pixels. Office-Caltech10, PACS from photos, VisDA-17 where it is at hand:
two layers on features of EfficientNet-Lite0 with ImageNet weights, frozen, standardised by the source. All methods of
a pair and seed start from the same source model; the baselines take as many steps as source training and rounds
together. Every method has its default settings; entropy minimisation, MCD and ADR, which ask for sure predictions on
the target, fall into few classes on some pairs. Accuracy is the share of target samples that the last model gets right;
labels of the target are used for nothing else. Figure 6 is the accuracy after each round. Figure 21 shows samples that
`avh` takes in its first selection, labelled rightly, and CBST does not: the least confident of each class, with the
softmax confidence."""

TABLE_3 = Study(
    id="avh-table3",
    title="self-training for domain adaptation: which pseudo-labels to trust",
    about=ABOUT,
    reference="AVH Tables 3 and 4, Figures 6 and 21",
    cells=cells,
    compute=compute,
    judge=judge,
    table=print_table,
    figures=draw,
)
