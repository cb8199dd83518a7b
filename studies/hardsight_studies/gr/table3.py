"""GR, Table 3: which examples to emphasise when a fifth to four fifths of CIFAR-10's labels are wrong.

Paper (ResNet-56, last test accuracy at 20/40/60/80 % symmetric noise): CCE 76.8/60.9/37.2/16.1, the best GR
87.8/83.3/72.5/32.8; more noise asks for a larger lambda. Ours (one seed): with the printed optimiser and the length of
the authors' later code, 154 epochs, CCE 77.8/66.4/46.5 and the same GR 89.3/83.8/80.2 at 20/40/60 %. In the 51 epochs
after which the printed schedule has stopped moving, CCE 86.2/78.9/66.9/24.4 and GR 82.7/34.9/63.6/33.1: there CCE has
learnt no wrong label by heart and has nothing to be saved from, and GR has not learnt all classes yet. Without crops
and flips CCE memorises in 51 epochs too: at 20/40 % it ends at 61.0/45.7, GR (12, 0.5) at 80.6/63.1.

CCE and GR with five emphasis focuses, for each the paper's best of four spreads; the other spreads (its Figures 7 to
10) come last. The protocol is Section 4.1's as printed; what it leaves open, and which part of it carries the result,
is the study `gr-protocol`.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.training import Cell
from hardsight_studies.configured import Hooks, train_cells
from hardsight_studies.framework import Options, Study
from hardsight_studies.gr.curves import learning_curves
from hardsight_studies.gr.judged import KINDS, judge_cells, kind_of, under
from hardsight_studies.gr.table3_numbers import COLUMNS, PAPER, RATES, SPREADS
from hardsight_studies.gr.table3_page import SHOWN, table
from hardsight_studies.gr.table3_trainings import OTHERS, PROTOCOLS, cells, configure
from hardsight_studies.gr.terms import BY_HEART, CCE, GR, HOW_LONG, LET_GO, NOISE, OPTIMISER
from hardsight_studies.gr.trainings import gr, recalls, title_of
from hardsight_studies.wording import terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(mine, options, functools.partial(configure, preset), Hooks(measure=recalls))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by rate and method."""
    return judge_cells(cells(preset), folder, PROTOCOLS[preset])


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """Figures 2 and 6: CCE and the five focuses; Figures 7 to 10: the spreads of each focus, by rate."""
    others = {name: under(results, name) for name in SHOWN}
    results = under(results, "")
    methods = {rate: [method for one, method in PAPER if one == rate] for rate in RATES}
    rows = {f"{100 * rate:.0f} % noise": _lines(rate, methods[rate]) for rate in RATES}
    last = {kind_of(*pair): numbers[COLUMNS.index("last")] for pair, numbers in PAPER.items()}
    drawn = learning_curves(results, rows, last)
    for name, theirs in others.items():
        titled = {f"{title}, {OTHERS[name].title}": lines for title, lines in rows.items()}
        drawn |= learning_curves(theirs, titled, last, name)
    for rate in RATES:
        spreads = {
            f"{100 * rate:.0f} % noise, λ = {lam:g}": _lines(rate, [gr(beta, lam) for beta in betas])
            for lam, betas in SPREADS.items()
        }
        several = {
            title: lines for title, lines in spreads.items() if sum(name in results["curves"] for _, name in lines) > 1
        }
        drawn |= learning_curves(results, several, name=f"spreads{100 * rate:.0f}")
    return drawn


def _lines(rate: float, methods: Sequence[str]) -> list[tuple[str, str]]:
    return [(title_of(method), kind_of(rate, method)) for method in methods]


ABOUT = f"""When labels are wrong, does it help to let other samples pull on the network than cross-entropy (CCE) does,
and which? CCE pulls hardest on samples whose label looks improbable, wrong labels among them. Gradient rescaling (GR)
can pull hardest on samples that the network half believes or believes; β and λ set how strongly and which. The paper
trains both on CIFAR-10 with 20 to 80 % wrong labels.

{terms(CCE, GR, NOISE, BY_HEART)}

**How it was made.** ResNet-56 on CIFAR-10. The first table trains as the paper prints: {OPTIMISER} {HOW_LONG} {LET_GO}

The other tables ask what brings the paper's result: trainings of 154 epochs, as long as the authors' later code for
CIFAR-100 has them, with the printed weight decay and with that of the code; and the printed ones without crops and
flips, where wrong labels are easily learnt by heart.

**Figures.** Accuracy after every epoch on the test images (right) and on the training images with their given labels
(left), a row of panels for each rate of noise. A cross is where the paper's training ends. `curves` is as printed;
`long`, `released` and `no-augmentation` are the other trainings."""

TABLE3 = Study(
    id="gr-table3",
    title="which examples to emphasise at each rate of label noise",
    about=ABOUT,
    reference="GR Table 3, Figures 2 and 6 to 10",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 2, "cpu": 1, "paper": 4},
    figures=figures,
    entries=KINDS,
)
