"""AVH, Table 3 (with Table 4, Figures 6 and 21): self-training on a domain without labels, AVH against others.

Paper: VisDA-17, mean of class accuracies 81.5 (CBST+AVH), 78.1 (CRST), 76.4 (CBST), 51.6 (their source model), all from
one ResNet-101 with ImageNet weights. Ours, 17 pairs of other domains, 5 seeds: all three gain on the source model, and
CBST+AVH ends behind CBST; the study's page has the numbers. VisDA-17 is not measured yet.

Pairs: MNIST and USPS, both ways, LeNet on pixels; the twelve of Office-Caltech10 and PACS from photos, a two-layer
network on features of a frozen EfficientNet-Lite0; VisDA-17 in the same way. All that self-train start, for a pair and
seed, from the same source model; baselines start anew and take as many steps in all. Portions as in CBST's public code:
0.20, +0.05 a round, 0.50. The target's labels are used for measuring alone; the accuracy is that of the last model, not
of the best.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardsight.training import Cell
from hardsight_studies.adaptation.judging import judge_cells
from hardsight_studies.adaptation.pairs import Pair
from hardsight_studies.adaptation.printed import draw, print_table
from hardsight_studies.adaptation.runs import BASELINES, CORE, SELECTING, Family, compute_cell
from hardsight_studies.framework import Options, Study

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


ABOUT = """How well does a classifier adapt to a new domain without labels, and does it help to trust its predictions by
angle instead of by softmax probability? The paper on angular visual hardness (AVH) finds that its rule, which selects
by angle, is the best of three.

**How it was made.** One domain, the source, has labels; the other, the target, has none. Self-training goes in rounds:
the model gives a label of its own (a *pseudo-label*) to the target samples that it is surest of, and is trained on both
domains; each round takes more samples. The methods differ in what "surest" means:

- `source`: the model trained on the source alone, from which self-training starts.
- `cbst` (class-balanced self-training): the largest softmax probability, with a threshold for each class.
- `crst` (confidence-regularised self-training): as `cbst`, with soft labels (LRENT) and a term in the loss that keeps
  predictions from becoming too sure (MRKLD). `crst-lrent` and `crst-mrkld` have one of the two.
- `avh`: the paper's rule (Eq. 4). The softmax gives the label, and the angle to the weights of that class decides
  whether it is kept. `avh-slides` takes the angle for both. `avh-inclusive` also keeps a sample exactly at the
  threshold, as `cbst` does.
- `confidence`: the largest softmax probability, with one threshold for all classes. `argmax`: every prediction is kept.
- `mmd`, `dann`, `entropy`, `mcd`, `adr`: methods that adapt without pseudo-labels. Entropy minimisation, MCD and ADR
  ask for sure predictions on the target and can collapse into few classes.

*AVH* (angular visual hardness) of a sample is the angle between its features (the input of the last layer) and the
weights of its class, divided by the sum of the angles to all classes.

Digits (MNIST and USPS): a LeNet on 28 x 28 pixels. Office-Caltech10, PACS from photos, and VisDA-17 where it is
available: two layers on the features of an EfficientNet-Lite0 with ImageNet weights, which stay fixed. For a pair and
seed, all self-training starts from the same source model. The methods without pseudo-labels start anew and take as many
steps as source training and rounds together. Every method has its default settings. Accuracy is that of the last model;
labels of the target are used for nothing else.

**Figures.** First the accuracy on the target after each round (the paper's Figure 6). Then samples that `avh` takes
in its first selection, with the right label, and `cbst` does not (Figure 21): the least confident of each class,
with the softmax confidence."""

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
