"""AMC-Loss, Figure 7: how test accuracy depends on the balance λ and on the angular margin m_g (CIFAR-10, 3 runs).

Claim: AMC-Loss helps for every λ from 1 to 0.001 with m_g = 0.5, and for margins from 0.5 to 1.5 with λ = 0.1; the best
are λ = 0.1 and m_g = 0.5. The paper prints curves, no numbers. Ours: docs/studies/amc-figure7.md.

λ is the printed one: the authors' script multiplies it by 100, the paper's text does not (see `recipes`). A cell's
`schedule` says which holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, INK, RED, drawing
from hardsight.training import Cell
from hardsight_studies.amc.looking import finished, p_value, shown_p
from hardsight_studies.amc.recipes import (
    FEW,
    MARGIN_RADIANS,
    SCHEDULES,
    TITLES,
    caveat,
    length_name,
    recipe,
    train_at_hand,
)
from hardsight_studies.configured import Tree
from hardsight_studies.framework import Options, Study, markdown_table, provenance, shown, spread
from hardsight_studies.keeping import Entries
from hardsight_studies.wording import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED_BALANCE = 0.1


@dataclass(frozen=True)
class Grid:
    """One preset: the balances at the printed margin, the margins at the printed balance."""

    data: str
    schedules: tuple[str, ...]
    balances: tuple[float, ...]
    margins: tuple[float, ...]
    seeds: tuple[int, ...]
    length: float
    more: Tree
    model: Tree | None = None
    at_once: int = 1

    def settings(self) -> list[tuple[float, float]]:
        """(balance, margin), the baseline (0) first."""
        by_balance = [(balance, MARGIN_RADIANS) for balance in self.balances]
        by_margin = [(PRINTED_BALANCE, margin) for margin in self.margins if margin != MARGIN_RADIANS]
        return [(0.0, MARGIN_RADIANS), *by_balance, *by_margin]


BALANCES, MARGINS = (0.1, 1.0, 0.01, 0.001), (0.5, 1.0, 1.5, 0.75, 1.25)
PRESETS = {
    "smoke": Grid("digits", ("script",), (0.1, 0.001), (0.5, 1.5), (0,), 0.01, {"limit": 512, "batch_size": 64}),
    "cpu": Grid("mnist", ("script",), BALANCES, (0.5, 1.0, 1.5), (0,), 0.03, FEW),
    "paper": Grid("cifar10", ("script", "paper"), BALANCES, MARGINS, (0, 1, 2), 0.1, {}, at_once=9),
}


def cells(preset: str) -> list[Cell]:
    """One cell a schedule, seed and setting."""
    of = PRESETS[preset]
    return [
        _cell(schedule, balance, margin, seed)
        for schedule in of.schedules
        for seed in of.seeds
        for balance, margin in of.settings()
    ]


def _cell(schedule: str, balance: float, margin: float, seed: int) -> Cell:
    return Cell({"schedule": schedule, "balance": balance, "margin": margin, "seed": seed})


def configure(preset: str, cell: Cell) -> Tree:
    """The cell's training; a balance of 0 is cross-entropy alone."""
    of, chosen = PRESETS[preset], cell.settings
    # What the schedule multiplies the printed 0.1 by: 1 in the paper, 100 in the script.
    factor = SCHEDULES[chosen["schedule"]].coefficient / PRINTED_BALANCE
    return recipe(
        of.data,
        "amc" if chosen["balance"] else "cross-entropy",
        chosen["schedule"],
        seed=chosen["seed"],
        length=of.length,
        model=of.model,
        weight=factor * chosen["balance"],
        margin_radians=chosen["margin"],
        **of.more,
    )


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_at_hand(mine, options, lambda cell: configure(preset, cell))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracy over seeds by schedule, balance and margin."""
    of = PRESETS[preset]
    found: dict[str, list[dict[str, Any]]] = {}
    for schedule in of.schedules:
        for balance, margin in of.settings():
            rows = finished(folder, [_cell(schedule, balance, margin, seed) for seed in of.seeds])
            if rows:
                accuracy = spread([float(row["test_accuracy"]) for row in rows])
                found.setdefault(schedule, []).append({"balance": balance, "margin": margin, "accuracy": accuracy})
    return {"data": of.data, "length": of.length, "settings": found}


def _cells_behind(found: Mapping[str, Any]) -> int:
    return sum(len(one["accuracy"]["values"]) for one in found["settings"])


def table(results: Mapping[str, Any]) -> str:
    """What came out, and every setting with its difference from cross-entropy alone."""
    said, parts = [], []
    for schedule, rows in results["settings"].items():
        base = next((row["accuracy"] for row in rows if not row["balance"]), None)
        lines = [
            (
                f"{row['balance']:g}",
                f"{row['margin']:g}" if row["balance"] else "",
                shown(row["accuracy"], 2, 100),
                *_change(row["accuracy"], base),
            )
            for row in sorted(rows, key=lambda row: (row["balance"], row["margin"]))
        ]
        whose = "script, weight 100 λ" if schedule == "script" else "paper, weight λ"
        said.append(f"Schedule of the {whose}: {_sentence(rows, base)}")
        parts.append(f"Schedule of the {whose}:")
        parts.append(markdown_table(("λ", "margin (rad)", "accuracy (%)", "points from cross-entropy", "p"), lines))
    head = (
        f"{provenance(results)} {TITLES[results['data']]}, {length_name(results['length'])}.{caveat(results['preset'])}"
    )
    return "\n\n".join([f"**Result.** {' '.join(said)}", head, _LEGEND, *parts, _LIMITS]) + "\n"


_LEGEND = """**How to read the table.** One row for each setting; λ = 0 is cross-entropy alone. `points from
cross-entropy` is the difference of the mean accuracies; `p` is Student's two-sided p-value of it, empty for a single
run."""
_LIMITS = """**What one may conclude.** The paper prints curves for CIFAR-10, over three runs, without numbers. A
best setting that is picked among several by its test accuracy is flattered by the choice; without a small p it may
be chance."""


def _change(number: Mapping[str, Any], base: Mapping[str, Any] | None) -> tuple[str, str]:
    """Points from cross-entropy alone, and the p-value of that."""
    if base is None or number is base:
        return "", ""
    return f"{100 * (number['mean'] - base['mean']):+.2f}", shown_p(p_value(number["values"], base["values"]))


def _sentence(rows: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> str:
    tried = [row for row in rows if row["balance"]]
    if not tried or base is None:
        return "Cross-entropy alone, or everything beside it, is not measured yet."
    best = max(tried, key=lambda row: row["accuracy"]["mean"])
    above = sum(row["accuracy"]["mean"] > base["mean"] for row in tried)
    points, p = _change(best["accuracy"], base)
    lie = "lies" if above == 1 else "lie"
    return (
        f"{above} of {plural(len(tried), 'setting')} {lie} above cross-entropy alone ({shown(base, 2, 100)}); the best "
        f"is λ = {best['balance']:g}, m_g = {best['margin']:g} with {shown(best['accuracy'], 2, 100)} "
        f"({points} points, {f'p = {p}' if p else 'too few runs to tell'}). The paper chooses λ = 0.1, m_g = 0.5."
    )


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Accuracy against λ and against the margin, and cross-entropy alone as a line: the paper's two panels."""
    drawn = {}
    for schedule, rows in results["settings"].items():
        base = next((row["accuracy"]["mean"] for row in rows if not row["balance"]), None)
        sides = (
            (
                "balance",
                "weight λ as printed",
                [row for row in rows if row["balance"] and row["margin"] == MARGIN_RADIANS],
            ),
            ("margin", "margin m_g in radians", [row for row in rows if row["balance"] == PRINTED_BALANCE]),
        )
        with drawing(7.4, 2.9, 2) as figure:
            for axes, (key, words, mine) in zip(figure.axes, sides, strict=True):
                mine = sorted(mine, key=lambda row: row[key])
                means = [100 * row["accuracy"]["mean"] for row in mine]
                errors = [100 * (row["accuracy"]["sd"] or 0) for row in mine]
                axes.errorbar([row[key] for row in mine], means, errors, fmt="o-", color=BLUE, capsize=3)
                for row in mine:
                    values = [100 * value for value in row["accuracy"]["values"]]
                    axes.plot([row[key]] * len(values), values, ".", color=INK, markersize=3)
                if base is not None:
                    axes.axhline(100 * base, color=RED, linestyle="--", label="cross-entropy alone")
                axes.set_xlabel(words)
                axes.set_ylabel("test accuracy in %")
            # Both panels to one scale: the steeper one is the one that matters.
            limits = [axes.get_ylim() for axes in figure.axes]
            for axes in figure.axes:
                axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
            balances = sorted({row["balance"] for row in sides[0][2]})
            figure.axes[0].set_xscale("log")
            figure.axes[0].set_xticks(balances, [f"{balance:g}" for balance in balances], minor=False)
            figure.axes[0].minorticks_off()
            if base is not None:
                figure.axes[0].legend(fontsize=8)
        drawn[schedule] = figure
    return drawn


ABOUT = """How much do the two settings of AMC-Loss matter: its weight λ and its margin m_g? The paper says that the
loss helps for every λ from 0.001 to 1, and for margins from 0.5 to 1.5.

**How it was made.** AMC-Loss (angular margin contrastive loss) is added to cross-entropy. It pulls the features (the
input of the last layer) of two images of one class together, by angle, and pushes those of two classes apart up to the
margin, an angle in radians. λ varies at a margin of 0.5, and the margin varies at λ = 0.1; everything else is as in
[amc-table1](amc-table1.md). λ is the printed one; the authors' script multiplies it by 100.

**Figure.** Test accuracy against λ and against the margin. Dots are runs, bars standard deviations over them; the
dashed line is cross-entropy alone."""

AMC_FIGURE7 = Study(
    id="amc-figure7",
    title="how sensitive is AMC-Loss to its weight and margin?",
    about=ABOUT,
    reference="AMC Figure 7",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
    at_once={name: of.at_once for name, of in PRESETS.items()},
    entries=Entries(("settings",), lambda cell: cell.settings["schedule"], _cells_behind),
)
