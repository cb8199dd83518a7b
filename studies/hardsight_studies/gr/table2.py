"""GR, Table 2: on clean labels GR loses nothing to CCE, and treating all examples alike loses little.

Paper (CCE / GR with λ = 0, β = 2 / GR with β = 0): CIFAR-10 ResNet-20 91.8/91.8/91.0, ResNet-56 92.4/92.5/91.9;
CIFAR-100 ResNet-44 68.1/68.4/66.4. Ours: not measured yet at full size.

The two networks on CIFAR-10 are the anchors of everything else: a protocol that misses them explains no other table.
Figures 4 and 5, the spreads of λ = 0, come last.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.training import Cell
from hardsight_studies.configured import train_cells
from hardsight_studies.framework import Options, Study
from hardsight_studies.gr.curves import learning_curves
from hardsight_studies.gr.judged import KINDS, judge_cells, mean_of
from hardsight_studies.gr.tables import LEGEND, accuracy_table, page, ranks
from hardsight_studies.gr.terms import CCE, GR, HOW_LONG, LENGTH, LET_GO, OPTIMISER
from hardsight_studies.gr.trainings import DIGITS, PRINTED, TINY, Protocol, gr, title_of
from hardsight_studies.wording import terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("cce", gr(2, 0), gr(0, 0))
# Data, network: CCE, GR with focus 0, all alike.
PAPER = {
    ("cifar10", "resnet20"): (91.8, 91.8, 91.0),
    ("cifar10", "resnet56"): (92.4, 92.5, 91.9),
    ("cifar100", "resnet44"): (68.1, 68.4, 66.4),
}
SPREADS = (0.5, 1, 2, 4)
BASES = {"smoke": DIGITS, "cpu": TINY, "paper": PRINTED}


def cells(preset: str) -> list[Cell]:
    """The anchors, the table, more seeds of it, then the other spreads of Figures 4 and 5."""
    base = BASES[preset]
    if preset != "paper":
        return [_cell(base.data, base.model, method) for method in METHODS]
    ten = [("cifar10", "resnet20"), ("cifar10", "resnet56")]
    table_ = [(*pair, method) for pair in PAPER for method in METHODS]
    order = [*((*pair, "cce") for pair in ten), *table_]
    spreads = [(*pair, gr(beta, 0)) for pair in ten for beta in SPREADS]
    found = [_cell(*one) for one in dict.fromkeys(order)] + [_cell(*one, seed) for seed in (1, 2) for one in table_]
    return found + [_cell(*one) for one in spreads if one not in table_]


def _cell(data: str, model: str, method: str, seed: int = 0) -> Cell:
    return Cell({"data": data, "model": model, "method": method, "seed": seed})


def _key(data: str, model: str, method: str) -> str:
    return f"data={data},model={model},method={method}"


def _protocol(preset: str, cell: Cell) -> Protocol:
    return dataclasses.replace(BASES[preset], data=cell.settings["data"], model=cell.settings["model"])


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(
        mine,
        options,
        lambda cell: _protocol(preset, cell).tree(cell.settings["method"], 0.0, cell.settings["seed"]),
    )


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by data, network and method."""
    return judge_cells(cells(preset), folder, BASES[preset])


def _pairs(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    protocol = results["protocol"]
    return list(PAPER) if results["preset"] == "paper" else [(protocol["data"], protocol["model"])]


def table(results: Mapping[str, Any]) -> str:
    """Ours beside the paper's, and what treating all alike costs."""
    layout = {}
    for data, model in _pairs(results):
        printed = PAPER.get((data, model), ("",) * 3)
        entries = zip(METHODS, printed, strict=True)
        layout[f"{data}, {model}"] = {
            title_of(method): (_key(data, model, method), str(number)) for method, number in entries
        }
    costs = _costs(results) if ranks(results) else []
    parts = [accuracy_table(results, "data, network", layout), *costs]
    return page(results, parts, result=" ".join(costs), legend=f"{LEGEND}\n\n{_COLUMNS}")


_COLUMNS = """- `GR (β = 2, λ = 0)`: pulls hardest on samples whose label is improbable, as CCE does.
- `GR (β = 0, λ = 0)`: every sample pulls alike, however well it is fitted."""


def _costs(results: Mapping[str, Any]) -> list[str]:
    found = []
    for data, model in _pairs(results):
        cce, hard, alike = (mean_of(results, _key(data, model, method), "last") for method in METHODS)
        if cce is None:
            continue
        parts = [
            f"{name} {value - cce:+.1f}"
            for name, value in ((title_of(METHODS[1]), hard), (title_of(METHODS[2]), alike))
            if value is not None
        ]
        if parts:
            found.append(f"On {data} with {model}, against CCE's {cce:.1f}, in points: {', '.join(parts)}.")
    return found


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """Figures 4 and 5: learning curves on clean labels, CCE and the spreads of λ = 0."""
    rows = {
        f"{data}, {model}": [
            (title_of(one), _key(data, model, one)) for one in ("cce", *(gr(beta, 0) for beta in (0, *SPREADS)))
        ]
        for data, model in _pairs(results)
    }
    return learning_curves(results, rows)


ABOUT = f"""What does gradient rescaling (GR) cost where all labels are right and there is nothing to be saved from? The
paper says: nothing, if it dwells on hard samples as cross-entropy (CCE) does; and little, if all samples count alike.

{terms(CCE, GR)}

**How it is made.** Right labels, and the training that the paper prints: {OPTIMISER} {HOW_LONG} {LET_GO}

{LENGTH}

**Figure.** Accuracy after every epoch on the training images (left) and the test images (right)."""

TABLE2 = Study(
    id="gr-table2",
    title="what GR costs where all labels are right",
    about=ABOUT,
    reference="GR Table 2, Figures 4 and 5",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 3, "cpu": 1, "paper": 4},
    figures=figures,
    entries=KINDS,
)
