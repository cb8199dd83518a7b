"""GR, Figure 1: a sample's weight over its label's probability, for CCE, MAE, GCE and GR.

Paper: λ moves the largest weight towards easier examples, β raises it; at fixed β a larger λ lowers the spread.
Ours: exact, by automatic differentiation of the losses; results/gr-figure1-*.json.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.losses.emphasis import emphasis_spread
from hardsight.report.canvas import drawing
from hardsight.training import Cell
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.framework import Options, Study, markdown_table, provenance, run_details
from hardsight_studies.gr.curves import STYLES
from hardsight_studies.gr.emphasis import (
    gradient_weights,
    probabilities,
    supervision,
    title_of_supervision,
    write_exact,
)
from hardsight_studies.keeping import Entries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "a": ("cce", "mae", "gce-0.7", "gr-2-0", "gr-8-0.5", "gr-12-1"),
    "b": ("gr-4-0.5", "gr-8-0.5", "gr-12-0.5", "gr-8-2", "gr-16-2", "gr-24-2"),
    "c": ("gr-8-0", "gr-8-0.5", "gr-8-1", "gr-8-2"),
}
TITLES = {"a": "The supervisions", "b": "Fixed λ, changing β", "c": "β = 8, changing λ"}
_POINTS = {"smoke": 20, "cpu": 200, "paper": 200}
_SPREAD_POINTS = 10_000


def cells(preset: str) -> list[Cell]:
    """One a panel."""
    return [Cell({"panel": panel, "seed": 0}) for panel in PANELS]


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """The curves of each panel."""
    grid, fine = probabilities(_POINTS[preset]), probabilities(_SPREAD_POINTS)
    for cell, folder in mine:
        curves: dict[str, Any] = {"probability": [round(value, 5) for value in grid.tolist()]}
        for name in PANELS[cell.settings["panel"]]:
            weights = gradient_weights(supervision(name), grid).tolist()
            spread = float(emphasis_spread(gradient_weights(supervision(name), fine)))
            curves[name] = {"weight": [float(f"{value:.5g}") for value in weights], "spread": spread}
        write_exact(cell, folder, curves)


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """The curves of the panels that are there."""
    places = {panel: folder / cell.name for panel, cell in zip(PANELS, cells(preset), strict=True)}
    return {
        "panels": {
            panel: run_details(place)["results"] for panel, place in places.items() if status_of(place) == FINISHED
        }
    }


def table(results: Mapping[str, Any]) -> str:
    """Largest weight, where, and spread, of every curve; whether the spread falls with λ at fixed β."""
    panels = results["panels"]
    parts = [_result(panels), provenance(results), _LEGEND]
    for panel, curves in panels.items():
        rows = []
        for name in PANELS[panel]:
            at, weight = _peak(curves, name)
            rows.append([title_of_supervision(name), f"{weight:.3g} at p = {at:.2f}", f"{curves[name]['spread']:.3g}"])
        parts.append(
            f"({panel}) {TITLES[panel]}:\n\n{markdown_table(['supervision', 'largest weight', 'spread'], rows)}"
        )
    return "\n\n".join(part for part in (*parts, _SCOPE) if part) + "\n"


_LEGEND = """**How to read the tables.** A row is a curve of the figure, "supervision" is the loss. `largest weight`:
its highest point, and the probability p of the label where it lies. `spread`: the variance of the weights over
evenly spread probabilities."""
_SCOPE = """**What one may conclude.** The curves are exact: nothing is trained and no seed enters. They say which
samples a loss emphasises, not whether that helps; [gr-table3](gr-table3.md) asks that."""


def _peak(curves: Mapping[str, Any], name: str) -> tuple[float, float]:
    """The probability at which a curve is highest, and its weight there."""
    weights, at = curves[name]["weight"], curves["probability"]
    best = max(range(len(weights)), key=lambda place: weights[place])
    return at[best], weights[best]


def _result(panels: Mapping[str, Any]) -> str:
    """Whether λ moves the largest weight and lowers the spread at fixed β, and β raises it at fixed λ."""
    said = []
    if "c" in panels:
        peaks = [_peak(panels["c"], name)[0] for name in PANELS["c"]]
        moves = "moves up" if peaks == sorted(peaks) else "does not move steadily"
        said.append(
            f"At β = 8 the largest weight {moves} with λ, to p = {', '.join(f'{one:.2f}' for one in peaks)} (paper: "
            "towards easier samples)."
        )
    if "b" in panels:
        # The first three curves have λ = 0.5, the others λ = 2.
        heights = [[_peak(panels["b"], name)[1] for name in half] for half in (PANELS["b"][:3], PANELS["b"][3:])]
        raises = "raises" if all(one == sorted(one) for one in heights) else "does not always raise"
        half, two = (", ".join(f"{one:.3g}" for one in part) for part in heights)
        said.append(
            f"At fixed λ a larger β {raises} the largest weight: {half} for λ = 0.5 and {two} for λ = 2 (paper: it "
            "raises it)."
        )
    if "c" in panels:
        spreads = [panels["c"][name]["spread"] for name in PANELS["c"]]
        falls = "falls" if spreads == sorted(spreads, reverse=True) else "does not fall steadily"
        listed = ", ".join(f"{one:.3g}" for one in spreads)
        said.append(f"At β = 8 the spread {falls} with λ: {listed} (paper: it drops).")
    return f"**Result.** {' '.join(said)}" if said else ""


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """The three panels; the heights differ by orders, so the weights are on a logarithmic axis."""
    panels = results["panels"]
    with drawing(9.6, 4.2, panels=len(panels), columns=3) as figure:
        for axes, (panel, curves) in zip(figure.axes, panels.items(), strict=True):
            for name, style in zip(PANELS[panel], STYLES, strict=False):
                axes.plot(
                    curves["probability"], curves[name]["weight"], label=title_of_supervision(name), linewidth=1.4,
                    **style,
                )  # fmt: skip
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylim(bottom=0.05)
            axes.set_title(f"({panel}) {TITLES[panel]}")
            axes.set_xlabel("probability of the label")
            axes.set_ylabel("weight")
            # Below the axes: in print the curves need the whole panel.
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return {"weights": figure}


ABOUT = """A loss decides how hard each sample pulls on the network. How does that depend on how probable the network
finds the sample's label, and what do the two settings of gradient rescaling (GR), β and λ, change?

**Terms.** The weight of a sample is the length (L1 norm) of its gradient at the logits; p is the probability that the
network gives to its label. Under CCE, cross-entropy, the weight is 2(1 − p): samples with improbable labels pull
hardest, and a fitted one is let go. Under GR it is exp(β p^λ (1 − p)): largest at p = λ/(1 + λ), higher with β, and 1
for a sample that is fitted. MAE is the mean absolute error, GCE generalised cross-entropy, between MAE and CCE.

**How it was made.** The losses themselves are differentiated, with ten classes and the other nine equally probable.
Nothing is trained.

**Figure.** The weight over the probability of the label: (a) for different losses, (b) for fixed λ and changing β,
(c) for fixed β and changing λ. The axis of the weights is logarithmic."""

FIGURE1 = Study(
    id="gr-figure1",
    title="a sample's weight over its label's probability",
    about=ABOUT,
    reference="GR Figure 1",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
    entries=Entries(("panels",), lambda cell: cell.settings["panel"]),
)
