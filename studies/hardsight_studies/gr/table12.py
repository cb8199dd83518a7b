"""GR, Table 12: the two knobs on CIFAR-100: which λ, with the best of five β, at each rate of noise.

Paper (ResNet-44, best λ and β): 20 % (0.3, 6) 64.1, 40 % (0.4, 6) 60.0, 60 % (0.5, 8) 49.9: more noise, larger knobs,
but less so than with ten classes. Ours: not measured yet.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight.training import Cell
from hardsight_studies.configured import train_cells
from hardsight_studies.framework import Options, Study, markdown_table
from hardsight_studies.gr.judged import KINDS, cell_of, first_of, judge_cells, kinds_of, mean_of, shown_last_and_best
from hardsight_studies.gr.table5 import PROTOCOLS
from hardsight_studies.gr.tables import page, ranks
from hardsight_studies.gr.terms import CCE, GR, HOW_LONG, LENGTH, LET_GO, NOISE, OPTIMISER
from hardsight_studies.gr.trainings import gr
from hardsight_studies.wording import listed, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (0.2, 0.4, 0.6)
LAMBDAS, BETAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (2, 4, 6, 8, 10)
# The β that the paper chose for each λ, and the accuracies at each rate.
PAPER_BETA = dict(zip(LAMBDAS, (4, 4, 6, 6, 8, 8), strict=True))
PAPER = {
    0.2: dict(zip(LAMBDAS, (61.3, 63.3, 64.1, 63.6, 62.6, 62.5), strict=True)),
    0.4: dict(zip(LAMBDAS, (55.5, 58.2, 59.1, 60.0, 59.3, 58.5), strict=True)),
    0.6: dict(zip(LAMBDAS, (44.9, 47.5, 49.7, 49.9, 49.9, 47.3), strict=True)),
}


def cells(preset: str) -> list[Cell]:
    """The pairs that the paper chose, 40 % first; then the whole grid; then two more seeds of the chosen pairs."""
    if preset != "paper":
        return [_cell(0.4, beta, lam) for lam in (0.1, 0.5) for beta in (2, 8)]
    order = (0.4, 0.2, 0.6)
    chosen = [(rate, PAPER_BETA[lam], lam) for rate in order for lam in LAMBDAS]
    every = [(rate, beta, lam) for rate in order for lam in LAMBDAS for beta in BETAS]
    found = [_cell(*one) for one in dict.fromkeys([*chosen, *every])]
    return found + [_cell(*one, seed) for seed in (1, 2) for one in chosen]


def _cell(rate: float, beta: int, lam: float, seed: int = 0) -> Cell:
    return cell_of(rate, gr(beta, lam), seed)


def _key(rate: float, beta: int, lam: float) -> str:
    return f"rate={rate},method={gr(beta, lam)}"


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(mine, options, lambda cell: PROTOCOLS[preset].tree(**cell.settings))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by rate and knobs."""
    return judge_cells(cells(preset), folder, PROTOCOLS[preset])


def table(results: Mapping[str, Any]) -> str:
    """Last and best accuracy over the grid, by rate, and the best pair of each."""
    parts = []
    for rate in RATES:
        rows = [_row(results, rate, lam) for lam in LAMBDAS]
        if any(any(row[1:-1]) for row in rows):
            heads = ["λ", *(f"β = {beta}" for beta in BETAS), "paper (β)"]
            parts.append(f"{100 * rate:.0f} % noise, test accuracy:\n\n{markdown_table(heads, rows)}")
    best = [one for rate in RATES if (one := _best(results, rate))]
    return page(results, parts, result=" ".join(best), legend=_LEGEND, conclude=_SCOPE)


_LEGEND = """**How to read the table.** One row for each λ, one column for each β. An entry is the test accuracy in
percent: ours at the end of training, in brackets ours at its best epoch, chosen by the test set. `paper (β)`: what
the paper prints for this λ, the mean of five seeds, and the β that it chose by the test set. – is not measured yet;
what is empty is not planned."""
_SCOPE = "The best pair is chosen by the test set, as in the paper."


def _row(results: Mapping[str, Any], rate: float, lam: float) -> list[str]:
    kinds = kinds_of(cells(results["preset"]))
    keys = [_key(rate, beta, lam) for beta in BETAS]
    numbers = (shown_last_and_best(results, key) if key in kinds else "" for key in keys)
    return [f"{lam:g}", *numbers, f"{PAPER[rate][lam]} ({PAPER_BETA[lam]})"]


def _best(results: Mapping[str, Any], rate: float) -> str:
    pairs = {f"λ = {lam:g}, β = {beta}": _key(rate, beta, lam) for lam in LAMBDAS for beta in BETAS}
    measured = {name: value for name, key in pairs.items() if (value := mean_of(results, key, "last")) is not None}
    best = first_of(measured.items())
    if best is None or not ranks(results):
        return ""
    highest = max(PAPER[rate].values())
    theirs = listed([f"λ = {lam:g}, β = {PAPER_BETA[lam]}" for lam in LAMBDAS if PAPER[rate][lam] == highest])
    return (
        f"At {100 * rate:.0f} % noise the best of {len(measured)} of {len(pairs)} pairs measured is {best} "
        f"({measured[best]:.1f}); in the paper {theirs} ({highest})."
    )


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """Last accuracy over λ, a line each β, a panel each rate that is measured; the paper's beside."""
    there = [rate for rate in RATES if any(key.startswith(f"rate={rate},") for key in results["accuracies"])]
    if not there:
        return {}
    styles = zip(BETAS, (INK, BLUE, GREEN, RED, PURPLE), "osD^v", strict=True)
    looks: dict[int, dict[str, Any]] = {
        beta: {"color": colour, "marker": marker, "markersize": 4.0} for beta, colour, marker in styles
    }
    with drawing(3.2 * len(there) + 1.4, 3.0, panels=len(there), columns=3) as figure:
        for axes, rate in zip(figure.axes, there, strict=True):
            for beta in BETAS:
                points = [(lam, mean_of(results, _key(rate, beta, lam), "last")) for lam in LAMBDAS]
                known = [(lam, value) for lam, value in points if value is not None]
                if known:
                    axes.plot(*zip(*known, strict=True), label=f"β = {beta}", linewidth=1.2, **looks[beta])
            if results["preset"] == "paper":
                axes.plot(*zip(*PAPER[rate].items(), strict=True), "x:", color=INK, label="paper, its best β")
            axes.set_title(f"{100 * rate:.0f} % noise")
            axes.set_xlabel("λ")
            axes.set_ylabel("Last test accuracy (%)")
        # One legend beside the panels, of all of them: lines fill them, and not every rate has every β yet.
        found = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
        named = {name: handle for pairs in found for handle, name in pairs}
        axes.legend(named.values(), named, fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return {"grid": figure}


ABOUT = f"""Gradient rescaling (GR) has two settings: λ says which samples pull hardest on the network, β how much
harder than the rest. Which of them are best, and do they depend on how many labels are wrong? The paper says for
CIFAR-100: more noise asks for larger ones, though less so than with ten classes.

{terms(CCE, GR, NOISE)}

**How it is made.** ResNet-44 on CIFAR-100 with 20, 40 and 60 % symmetric noise, as in [gr-table5](gr-table5.md):
{OPTIMISER} {HOW_LONG} {LET_GO} The paper prints, for each λ, the best of β = 2, 4, 6, 8 and 10; here the whole grid is
planned.

{LENGTH}

**Figure.** Test accuracy at the end of training over λ, a line for each β."""

TABLE12 = Study(
    id="gr-table12",
    title="how GR's two knobs act with a hundred classes",
    about=ABOUT,
    reference="GR Table 12",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 2, "cpu": 1, "paper": 4},
    figures=figures,
    entries=KINDS,
)
