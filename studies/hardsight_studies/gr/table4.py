"""GR, Table 4: GR against what others do about label noise, on CIFAR-10 with GoogLeNet V1.

Paper (GR with β = 8, λ = 0.5, at 0/20/40/80 % noise): 0.85/0.83/0.79/0.57; the next best, GCE: 0.83/0.81/0.78/0.50;
CCE: 0.81/0.76/0.73/0.42. Ours: not measured yet.

Forgetting is CCE with dropout searched in 0.2 to 0.9. MentorNet DD needs a network trained on other data, and is left
out. Each competitor has the library's defaults, its authors' where they print any; all have weight decay and
GoogLeNet's own dropout of 40 %.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.training import Cell
from hardsight_studies.configured import Tree, train_cells
from hardsight_studies.framework import Options, Study
from hardsight_studies.gr.judged import KINDS, cell_of, first_of, judge_cells, kind_of, mean_of
from hardsight_studies.gr.tables import LEGEND, accuracy_table, page, ranking
from hardsight_studies.gr.terms import CCE, GCE, HOW_LONG, LENGTH, LET_GO, NOISE, OPTIMISER
from hardsight_studies.gr.terms import GR as GR_TERM
from hardsight_studies.gr.trainings import DIGITS, PRINTED, TINY, gr
from hardsight_studies.wording import terms

RATES = (0.0, 0.2, 0.4, 0.8)
GR = gr(8, 0.5)
FORGETTING = {0.2: "forgetting-0.2", 0.5: "forgetting-0.5", 0.8: "forgetting-0.8"}
COLUMNS = {
    "cce": "FullModel (CCE)",
    "forgetting": "Forgetting",
    "self-paced": "Self-paced",
    "focal": "Focal loss",
    "boot-soft": "Reed soft",
    "mentornet-pd": "MentorNet PD",
    "gce": "GCE",
    GR: "GR (8, 0.5)",
}
PAPER: dict[tuple[float, str], int] = {
    (0.0, "cce"): 81, (0.0, "gce"): 83, (0.0, GR): 85,
    (0.2, "cce"): 76, (0.2, "forgetting"): 76, (0.2, "self-paced"): 80, (0.2, "focal"): 77, (0.2, "boot-soft"): 78,
    (0.2, "mentornet-pd"): 79, (0.2, "gce"): 81, (0.2, GR): 83,
    (0.4, "cce"): 73, (0.4, "forgetting"): 71, (0.4, "self-paced"): 74, (0.4, "focal"): 74, (0.4, "boot-soft"): 73,
    (0.4, "mentornet-pd"): 74, (0.4, "gce"): 78, (0.4, GR): 79,
    (0.8, "cce"): 42, (0.8, "forgetting"): 44, (0.8, "self-paced"): 33, (0.8, "focal"): 40, (0.8, "boot-soft"): 39,
    (0.8, "mentornet-pd"): 44, (0.8, "gce"): 50, (0.8, GR): 57,
}  # fmt: skip
PAPER_MENTORNET_DD = {0.2: 79, 0.4: 76, 0.8: 46}
PROTOCOLS = {
    "smoke": DIGITS,
    "cpu": TINY,
    "paper": dataclasses.replace(PRINTED, model="googlenet"),
}


def cells(preset: str) -> list[Cell]:
    """At 40 % GR, CCE and GCE, then the same at the other rates, then the other competitors; then two more seeds."""
    if preset != "paper":
        few = ("cce", "gce", GR) if preset == "cpu" else ("cce", "self-paced", "mentornet-pd", GR)
        return [cell_of(0.4, method) for method in few]
    order = (0.4, 0.8, 0.2, 0.0)
    first = [(rate, method) for rate in order for method in (GR, "cce", "gce")]
    others = [method for method in (*COLUMNS, *FORGETTING.values()) if method != "forgetting"]
    every = [(rate, method) for rate in order for method in others if rate > 0]
    return [cell_of(*pair, seed) for seed in range(3) for pair in dict.fromkeys([*first, *every])]


def configure(preset: str, cell: Cell) -> Tree:
    """The configuration of a cell; forgetting is CCE with another dropout."""
    rate, method, seed = cell.settings.values()
    protocol = PROTOCOLS[preset]
    if method.startswith("forgetting"):
        return dataclasses.replace(protocol, dropout=float(method.split("-")[1])).tree("cce", rate, seed)
    return protocol.tree(method, rate, seed)


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(mine, options, lambda cell: configure(preset, cell))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by rate and method."""
    return judge_cells(cells(preset), folder, PROTOCOLS[preset])


def _chosen(results: Mapping[str, Any], rate: float, method: str) -> str:
    """The kind of cell behind a column: of forgetting, the dropout that ends best."""
    if method != "forgetting":
        return kind_of(rate, method)
    best = first_of((one, mean_of(results, kind_of(rate, one), "last")) for one in FORGETTING.values())
    return kind_of(rate, best or FORGETTING[0.5])


def table(results: Mapping[str, Any]) -> str:
    """Ours beside the paper's, and who ends best."""
    layout = {
        f"{100 * rate:.0f} %": {
            title: (_chosen(results, rate, method), f"{PAPER[rate, method]:g}" if (rate, method) in PAPER else "")
            for method, title in COLUMNS.items()
        }
        for rate in RATES
    }
    sentences = [
        ranking(
            results,
            f"At {100 * rate:.0f} % noise",
            {title: _chosen(results, rate, method) for method, title in COLUMNS.items()},
            {title: PAPER[rate, method] for method, title in COLUMNS.items() if (rate, method) in PAPER},
        )
        for rate in RATES
    ]
    left_out = ", ".join(f"{number} at {100 * rate:.0f} %" for rate, number in PAPER_MENTORNET_DD.items())
    left = f"The paper also prints MentorNet DD, which is left out here: {left_out}."
    return page(
        results,
        [accuracy_table(results, "noise", layout), left],
        result=" ".join(one for one in sentences if one),
        legend=f"{LEGEND} The paper prints whole percents.\n\n{_COLUMNS}",
    )


_COLUMNS = f"""- `FullModel (CCE)`: cross-entropy, as the paper's table calls it.
- `Forgetting`: CCE with the dropout that ends best of 0.2, 0.5 and 0.8, chosen by the test set, which flatters it.
- `Self-paced`: counts only samples with a small loss at first, and lets harder ones in later.
- `Focal loss`: dwells on hard samples even more than CCE.
- `Reed soft`: replaces a part of the given label by the probabilities that the network predicts.
- `MentorNet PD`: weighs samples by their loss, by a rule fixed beforehand.
{GCE}
- `GR (8, 0.5)`: gradient rescaling with β = 8, λ = 0.5, which the paper fixes for all rates here."""


ABOUT = f"""When labels are wrong, is gradient rescaling (GR) better than other losses made for that? The paper compares
it on CIFAR-10 with cross-entropy (CCE) and six other methods, with 0 to 80 % wrong labels, and finds it best at every
rate.

{terms(CCE, GR_TERM, NOISE)}

**How it is made.** GoogLeNet V1 (with batch normalization, a stem for images of 32 x 32 pixels and 40 % dropout) on
CIFAR-10. {OPTIMISER} {HOW_LONG} {LET_GO} Every other method is a loss of this library with its defaults, its authors'
where they print any. MentorNet DD is left out: its curriculum is learnt on other data.

{LENGTH}"""

TABLE4 = Study(
    id="gr-table4",
    title="GR against other answers to label noise, ten classes",
    about=ABOUT,
    reference="GR Table 4",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 2, "cpu": 1, "paper": 3},
    entries=KINDS,
)
