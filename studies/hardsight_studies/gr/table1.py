"""GR, Table 1: emphasis focus and spread of each supervision, computed from its gradients.

Paper: the focus (the label's probability with the largest weight) is 0 for CCE, 0.5 for MAE, 0 to 0.5 for GCE, 0 to 1
for GR; the spread is adjustable for GR alone. Ours: exact, by automatic differentiation; results/gr-table1-*.json.

The weight of a sample is the L1 norm of its gradient at the logits. Focus: where a fine grid of probabilities has its
largest weight. Spread: the variance of the weights over evenly spread probabilities. That a spread is adjustable at a
fixed focus is computed too: from several settings with the same focus.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.losses.emphasis import emphasis_focus, emphasis_spread
from hardsight.training import Cell
from hardsight_studies.framework import Options, Study, finished_cells, markdown_table, provenance, run_details
from hardsight_studies.gr.emphasis import (
    gradient_weights,
    probabilities,
    supervision,
    title_of_supervision,
    write_exact,
)
from hardsight_studies.gr.trainings import knobs
from hardsight_studies.keeping import Entries

SETTINGS = {
    "CCE": ("cce",),
    "MAE": ("mae",),
    "GCE": ("gce-0.1", "gce-0.7", "gce-1"),
    "GR": (
        "gr-0-0",
        "gr-2-0",
        "gr-8-0",
        "gr-4-0.5",
        "gr-8-0.5",
        "gr-16-0.5",
        "gr-8-1",
        "gr-16-1",
        "gr-8-2",
        "gr-24-2",
        "gr-24-9",
    ),
}
PAPER = {"CCE": ("0", "no"), "MAE": ("0.5", "no"), "GCE": ("0–0.5", "no"), "GR": ("0–1", "yes")}
_POINTS = {"smoke": 1000, "cpu": 100_000, "paper": 100_000}


def cells(preset: str) -> list[Cell]:
    """One a supervision and setting."""
    return [Cell({"supervision": one, "seed": 0}) for settings in SETTINGS.values() for one in settings]


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Differentiate each loss over a grid of probabilities."""
    grid = probabilities(_POINTS[preset])
    for cell, folder in mine:
        weights = gradient_weights(supervision(cell.settings["supervision"]), grid)
        flat = bool(weights.max() - weights.min() < 1e-9)
        write_exact(
            cell,
            folder,
            {
                # Equal weights have no focus.
                "focus": None if flat else float(grid[weights.argmax()]),
                "spread": float(emphasis_spread(weights)),
                "largest": float(weights.max()),
                "resolution": 0.5 / len(grid),
            },
        )


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """What each setting was measured to be, and the focus λ/(1+λ) that the paper's formula gives."""
    found = {}
    for cell in finished_cells(folder, cells(preset)):
        found[cell.settings["supervision"]] = run_details(folder / cell.name)["results"]
    return {"supervisions": found}


def table(results: Mapping[str, Any]) -> str:
    """Every setting, then what each supervision can do, beside the paper's table."""
    measured = results["supervisions"]
    rows = [
        [
            title_of_supervision(name),
            _number(one["focus"]),
            _expected(name),
            f"{one['spread']:.4g}",
            f"{one['largest']:.4g}",
        ]
        for name, one in measured.items()
    ]
    heads = ["supervision", "focus, computed", "focus, λ/(1+λ)", "spread (variance of the weights)", "largest weight"]
    can = [[kind, *_abilities(kind, measured), *PAPER[kind]] for kind in PAPER if _of(kind, measured)]
    abilities = markdown_table(
        ["supervision", "focuses computed", "spreads at one focus", "focus, paper", "adjustable spread, paper"], can
    )
    parts = [
        _result(measured),
        provenance(results),
        _LEGEND,
        markdown_table(heads, rows),
        _ABILITIES,
        abilities,
        _SCOPE,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_LEGEND = """**How to read the table.** One row for each loss ("supervision") and setting.

- `focus, computed`: the probability of the label at which a sample has the largest weight, found on the grid. Where all
  weights are equal there is none.
- `focus, λ/(1+λ)`: the same by the paper's formula.
- `spread (variance of the weights)`: how much the weights differ, over evenly spread probabilities.
- `largest weight`: the weight at the focus."""
_ABILITIES = """**What each loss can do.** `focuses computed`: from the smallest to the largest of its settings.
`spreads at one focus`: the spreads that settings with the same focus have; `one` if there is but one. The last two
columns are the paper's."""
_SCOPE = """**What one may conclude.** The numbers are exact: nothing is trained and no seed enters. They say which
samples each loss emphasises, not whether that helps; [gr-table3](gr-table3.md) asks that."""


def _of(kind: str, measured: Mapping[str, Any]) -> list[str]:
    return [name for name in SETTINGS[kind] if name in measured]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _closed_form(name: str) -> float | None:
    """λ/(1+λ): GR's own, CCE with λ = 0, MAE with 1, GCE with q."""
    both = knobs(name)
    if both is not None:
        return None if both[0] == 0 else emphasis_focus(*both)
    lam = {"cce": 0.0, "mae": 1.0}.get(name)
    lam = float(name.split("-")[1]) if lam is None else lam
    return emphasis_focus(2.0, lam)


def _expected(name: str) -> str:
    return _number(_closed_form(name))


def _abilities(kind: str, measured: Mapping[str, Any]) -> tuple[str, str]:
    """The range of its focuses, and the range of spreads that it has at one and the same focus."""
    names = _of(kind, measured)
    focuses = [measured[name]["focus"] for name in names if measured[name]["focus"] is not None]
    by_focus: dict[float, list[float]] = {}
    for name in names:
        if measured[name]["focus"] is not None:
            by_focus.setdefault(round(measured[name]["focus"], 3), []).append(measured[name]["spread"])
    several = {focus: spreads for focus, spreads in by_focus.items() if len(spreads) > 1}
    ends = f"{min(focuses):.2f}" if max(focuses) - min(focuses) < 0.01 else f"{min(focuses):.2f} to {max(focuses):.2f}"
    shown = "; ".join(f"{min(one):.3g} to {max(one):.3g} at {focus:.2f}" for focus, one in several.items())
    return ends, shown or "one"


def _result(measured: Mapping[str, Any]) -> str:
    """How far the computed focuses are from the closed form, and which losses can change their spread alone."""
    misses = [
        abs(one["focus"] - expected)
        for name, one in measured.items()
        if one["focus"] is not None and (expected := _closed_form(name)) is not None
    ]
    if not misses:
        return ""
    resolution = max(one["resolution"] for one in measured.values())
    found = {kind: _abilities(kind, measured) for kind in PAPER if _of(kind, measured)}
    ranges = ", ".join(f"{ends} for {kind} ({PAPER[kind][0]})" for kind, (ends, _) in found.items())
    adjustable = [kind for kind, (_, spreads) in found.items() if spreads != "one"]
    theirs = [kind for kind in found if PAPER[kind][1] == "yes"]
    return (
        f"**Result.** The computed focus is λ/(1+λ) within {max(misses):.1e} for all {len(misses)} settings; the grid "
        f"resolves {resolution:.1e}. By loss it is {ranges}; in brackets what the paper prints. More than one spread "
        f"at the same focus: {', '.join(adjustable) or 'none'}; in the paper: {', '.join(theirs) or 'none'}."
    )


ABOUT = """A loss decides how hard each sample pulls on the network. Which samples does each loss emphasise, and can
that be chosen? The paper says: cross-entropy (CCE) the least probable labels, the mean absolute error (MAE) those that
are half believed, generalised cross-entropy (GCE) something between, and only gradient rescaling (GR) lets one choose
both where the emphasis lies and how strong it is.

**Terms.**

- **Weight** of a sample: the length (L1 norm) of its gradient at the logits.
- **Focus**: the probability of the label at which the weight is largest.
- **Spread**: the variance of the weights over evenly spread probabilities.
- **GR**: sets the weight to exp(β p^λ (1 − p)), where p is the probability of the label. λ sets the focus, λ/(1 + λ),
  and β the spread. The formula of the focus holds for CCE (λ = 0), GCE (λ = q) and MAE (λ = 1) too.

**How it was made.** The library differentiates each loss at the logits, over a fine grid of probabilities of the
label, with ten classes and the other nine equally probable. Nothing is trained, and no formula of the paper is used."""

TABLE1 = Study(
    id="gr-table1",
    title="which examples each supervision emphasises, and how much",
    about=ABOUT,
    reference="GR Table 1",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    entries=Entries(("supervisions",), lambda cell: cell.settings["supervision"]),
)
