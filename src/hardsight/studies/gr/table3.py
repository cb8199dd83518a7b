"""GR, Table 3: which examples to emphasise when a fifth to four fifths of CIFAR-10's labels are wrong.

Paper (ResNet-56, last test accuracy at 20/40/60/80 % symmetric noise): CCE 76.8/60.9/37.2/16.1, the best GR
87.8/83.3/72.5/32.8; more noise asks for a larger lambda. Ours (one seed): CCE 86.2/78.9/66.9/24.4, the paper's best GR
82.7/34.9/63.6/33.1, and GR (12, 0.5) 81.9 at 40 %. CCE fits fewer labels than are right and has nothing to be saved
from; the paper's has learnt wrong labels by heart. Without crops and flips ours does too, and GR gains what the paper
says: at 20/40 % CCE ends at 61.0/45.7 after 75.1/72.1, GR (12, 0.5) at 80.6/63.1, GR (16, 1) at 61.3 at 40 %.

CCE and GR with five emphasis focuses, for each the paper's best of four spreads; the other spreads (its Figures 7 to
10) come last. The protocol is Section 4.1's as printed; what it leaves open, and which part of it carries the result,
is the study `gr-protocol`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.studies.configured import Hooks, Tree, train_cells
from hardsight.studies.framework import Options, Study, markdown_table
from hardsight.studies.gr.curves import learning_curves
from hardsight.studies.gr.tables import page
from hardsight.studies.gr.trainings import (
    DIGITS,
    PRINTED,
    TINY,
    classes_head,
    first_of,
    gr,
    judge_cells,
    knobs,
    mean_of,
    recalls,
    shown_accuracy,
    shown_classes,
    title_of,
)
from hardsight.studies.wording import above_or_below
from hardsight.training import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (0.2, 0.4, 0.6, 0.8)
COLUMNS = ("best", "last", "corrupted", "intact")
# Rate, method: best and final test accuracy, accuracy on the corrupted and on the intact training labels.
PAPER: dict[tuple[float, str], tuple[float, float, float, float]] = {
    (0.2, "cce"): (86.5, 76.8, 95.7, 80.6),
    (0.2, gr(0, 0)): (83.5, 58.1, 50.6, 60.2),
    (0.2, gr(2, 0)): (84.9, 76.4, 85.3, 80.5),
    (0.2, gr(12, 0.5)): (89.4, 87.8, 81.5, 95.0),
    (0.2, gr(16, 1)): (87.3, 86.7, 78.4, 93.8),
    (0.2, gr(24, 2)): (85.8, 85.5, 76.0, 91.4),
    (0.4, "cce"): (82.8, 60.9, 83.0, 64.4),
    (0.4, gr(0, 0)): (71.8, 44.9, 31.3, 45.8),
    (0.4, gr(1, 0)): (78.4, 65.6, 63.3, 66.6),
    (0.4, gr(12, 0.5)): (85.1, 79.9, 67.7, 85.7),
    (0.4, gr(16, 1)): (84.7, 83.3, 60.3, 88.9),
    (0.4, gr(20, 2)): (52.7, 52.7, 35.4, 53.6),
    (0.6, "cce"): (69.5, 37.2, 84.1, 40.5),
    (0.6, gr(0, 0)): (69.9, 57.9, 40.1, 58.6),
    (0.6, gr(0.5, 0)): (72.3, 53.9, 42.1, 55.1),
    (0.6, gr(12, 0.5)): (77.5, 58.5, 55.5, 62.6),
    (0.6, gr(12, 1)): (71.9, 70.0, 41.0, 73.9),
    (0.6, gr(12, 2)): (80.2, 72.5, 44.9, 75.4),
    (0.8, "cce"): (36.1, 16.1, 54.3, 18.4),
    (0.8, gr(0, 0)): (44.4, 28.2, 20.6, 28.8),
    (0.8, gr(0.5, 0)): (46.2, 21.3, 27.8, 23.1),
    (0.8, gr(8, 0.5)): (51.6, 22.4, 46.1, 24.4),
    (0.8, gr(8, 1)): (35.5, 31.5, 19.8, 32.3),
    (0.8, gr(12, 2)): (33.0, 32.8, 14.2, 32.6),
}
# Figures 7 to 10: the spreads that were tried for each lambda.
SPREADS: dict[int | float, tuple[int | float, ...]] = {
    0: (0.5, 1, 2, 4),
    0.5: (4, 8, 12, 16),
    1: (8, 12, 16, 20),
    2: (12, 16, 20, 24),
}
PROTOCOLS = {"smoke": DIGITS, "cpu": TINY, "paper": PRINTED}
# Not the paper's: where wrong labels can be learnt by heart (`gr-protocol`), at the table's own size.
BARE, BARE_PROTOCOL = "no-augmentation", dataclasses.replace(PRINTED, shift=0, flip=False)


def best_in_paper(rate: float) -> str:
    """The GR setting with the best last accuracy in the paper."""
    return max((gr_ for r, gr_ in PAPER if r == rate and gr_ != "cce"), key=lambda name: PAPER[rate, name][1])


def cells(preset: str) -> list[Cell]:
    """CCE against the paper's best GR, 40 % first; then the rest of the table; then the other spreads and seeds.

    Last, or at any time by `--cells protocol=no-augmentation`, the first of them without crops and flips.
    """
    if preset != "paper":
        rates = (0.4,) if preset == "cpu" else (0.2, 0.4)
        few = ("cce", gr(12, 0.5), gr(16, 1)) if preset == "cpu" else ("cce", gr(12, 0.5))
        return [_cell(rate, method, 0) for rate in rates for method in few]
    order = (0.4, 0.2, 0.6, 0.8)
    pairs = [(0.4, "cce"), (0.4, gr(16, 1)), (0.4, gr(12, 0.5))]
    pairs += [(rate, method) for rate in order for method in ("cce", best_in_paper(rate))]
    bare = [_cell(rate, method, 0, BARE) for rate, method in dict.fromkeys([*pairs, (0.4, gr(8, 0.5))])]
    pairs += [pair for rate in order for pair in PAPER if pair[0] == rate]
    every = [gr(beta, lam) for lam, betas in SPREADS.items() for beta in betas]
    found = [_cell(rate, method, 0) for rate, method in dict.fromkeys(pairs)]
    found += [_cell(rate, method, seed) for seed in (1, 2) for rate, method in dict.fromkeys(pairs)]
    return found + [_cell(rate, one, 0) for rate in order for one in every if (rate, one) not in PAPER] + bare


def _cell(rate: float, method: str, seed: int, protocol: str = "") -> Cell:
    named = {"protocol": protocol} if protocol else {}
    return Cell({"rate": rate, "method": method, **named, "seed": seed})


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""

    def configure(cell: Cell) -> Tree:
        return (BARE_PROTOCOL if "protocol" in cell.settings else PROTOCOLS[preset]).tree_of(cell)

    train_cells(mine, options, configure, Hooks(measure=recalls))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by rate and method."""
    return judge_cells(cells(preset), folder, PROTOCOLS[preset])


def _key(rate: float, method: str) -> str:
    return f"rate={rate},method={method}"


def _measured(results: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Rates and methods that were measured or failed, in the order of the table."""
    names = {*results["accuracies"], *(name.rsplit(",seed=", 1)[0] for name in results["failed"])}
    pairs = [(float(rate), method) for rate, method in (_parts(name) for name in names)]
    return sorted(pairs, key=_place)


def _parts(key: str) -> tuple[str, str]:
    rate, method = key.removeprefix("rate=").split(",method=")
    return rate, method


def _focus(method: str) -> tuple[float, float]:
    """CCE first, then all alike, then by focus and spread."""
    both = knobs(method)
    if both is None:
        return (-2.0, 0.0)
    return (-1.0, 0.0) if both[0] == 0 else (both[1], both[0])


def table(results: Mapping[str, Any]) -> str:
    """Ours beside the paper's, and what holds of the paper's two claims; then the same without crops and flips."""
    printed, bare = under(results, ""), under(results, BARE)
    parts = [_beside(printed, _listed(printed)), _other_spreads(printed), _trend(printed), *_sentences(printed)]
    if _measured(bare):
        parts += [_BARE_HEAD, _beside(bare, _measured(bare)), *_sentences(bare)]
    return page(results, parts, "Accuracies in percent; – is not measured yet.")


_BARE_HEAD = "Without crops and flips, where wrong labels can be learnt by heart (the paper's numbers are with them):"


def under(results: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """The results of the cells of one protocol, under the names that they have as printed."""
    mark = f",protocol={protocol}" if protocol else ""

    def kept(of: Mapping[str, Any]) -> dict[str, Any]:
        mine = (name for name in of if (mark in name if mark else ",protocol=" not in name))
        return {name.replace(mark, ""): of[name] for name in mine}

    parts = ("accuracies", "curves", "classes_learnt", "failed")
    return {**results, **{part: kept(results.get(part, {})) for part in parts}}


def _beside(results: Mapping[str, Any], pairs: Sequence[tuple[float, str]]) -> str:
    """Rates and methods as a table, ours beside the paper's."""
    heads = ["noise", "model", *(f"{name}, ours (paper)" for name in COLUMNS), classes_head(results)]
    rows = []
    for rate, method in pairs:
        printed = PAPER.get((rate, method), (None,) * 4)
        numbers = (shown_accuracy(results, _key(rate, method), one) or "–" for one in COLUMNS)
        beside = (f"{one} ({paper})" if paper is not None else one for one, paper in zip(numbers, printed, strict=True))
        rows.append([f"{100 * rate:.0f} %", title_of(method), *beside, shown_classes(results, _key(rate, method))])
    return markdown_table(heads, rows)


def _sentences(results: Mapping[str, Any]) -> list[str]:
    """What GR gains at each rate, and whether there was anything to be saved from."""
    return [*(_gain(results, rate) for rate in RATES), _by_heart(results)]


def _listed(results: Mapping[str, Any]) -> list[tuple[float, str]]:
    """What the preset plans of the paper's table, and what else was measured, in the order of the table."""
    planned = {(cell.settings["rate"], cell.settings["method"]) for cell in cells(results["preset"])}
    return sorted({*_measured(results), *(planned & {*PAPER})}, key=_place)


def _place(pair: tuple[float, str]) -> tuple[float, float, float]:
    return (pair[0], *_focus(pair[1]))


def _other_spreads(results: Mapping[str, Any]) -> str:
    """How many of the spreads that only Figures 7 to 10 show are measured, where the preset plans them."""
    planned = {(cell.settings["rate"], cell.settings["method"]) for cell in cells(results["preset"])} - {*PAPER}
    if not planned:
        return ""
    found = len(planned & {*_measured(results)})
    are = "is" if found == 1 else "are"
    return f"Of the {len(planned)} other spreads of the paper's Figures 7 to 10, {found} {are} measured."


def _gain(results: Mapping[str, Any], rate: float) -> str:
    """What GR gains over CCE in last accuracy, ours and the paper's."""
    methods = [method for one, method in _measured(results) if one == rate and method != "cce"]
    found = {method: mean_of(results, _key(rate, method), "last") for method in methods}
    ends = {method: value for method, value in found.items() if value is not None}
    cce = mean_of(results, _key(rate, "cce"), "last")
    if not ends or cce is None:
        return ""
    best, ours = max(ends.items(), key=lambda item: item[1])
    printed = PAPER[rate, best_in_paper(rate)][1] - PAPER[rate, "cce"][1]
    which = "the one GR setting measured"
    if len(ends) > 1:
        which = f"the best of {len(ends)} GR settings measured (chosen by the test set, as in the paper)"
    return (
        f"At {100 * rate:.0f} % noise {which}, {title_of(best)}, ends {above_or_below(ours - cce)} CCE "
        f"({ours:.1f} against {cce:.1f}); the paper's best ends {above_or_below(printed)} it."
    )


def _by_heart(results: Mapping[str, Any]) -> str:
    """How far CCE fits the given labels beyond the share of them that is right, ours and the paper's."""
    fits = {rate: mean_of(results, _key(rate, "cce"), "corrupted") for rate in RATES}
    beyond = [
        (rate, fit - 100 * (1 - rate), PAPER[rate, "cce"][2] - 100 * (1 - rate)) for rate, fit in fits.items() if fit
    ]
    if not beyond:
        return ""
    rates = "/".join(f"{100 * rate:.0f}" for rate, _, _ in beyond)
    ours, papers = ("/".join(f"{row[which]:+.1f}" for row in beyond) for which in (1, 2))
    wrong = [mean_of(results, _key(rate, "cce"), "noisy") for rate, _, _ in beyond]
    fitted = "/".join(f"{value:.1f}" for value in wrong if value is not None)
    measured = (
        f" Of the wrong labels themselves it fits {fitted} %; a blind guess fits 10." if None not in wrong else ""
    )
    return (
        f"Wrong labels learnt by heart: at {rates} % noise CCE fits the given labels by {ours} points beyond the share "
        f"of them that is right, the paper's by {papers}. Below 0 nothing shows that a wrong label was learnt."
        f"{measured}"
    )


def _trend(results: Mapping[str, Any]) -> str:
    """Whether more noise asks for a larger lambda, where a rate has more than one focus measured."""
    chosen = {}
    for rate in RATES:
        methods = [one for r, one in _measured(results) if r == rate and (knobs(one) or (0, 0))[0] > 0]
        best = first_of((method, mean_of(results, _key(rate, method), "last")) for method in methods)
        both = None if best is None else knobs(best)
        if both is not None and len({(knobs(one) or (0, 0))[1] for one in methods}) > 1:
            chosen[rate] = both[1]
    if len(chosen) < 2:
        return ""
    values = list(chosen.values())
    verdict = "never falls" if values == sorted(values) else "does not rise steadily"
    listed = ", ".join(f"{lam:g} at {100 * rate:.0f} %" for rate, lam in chosen.items())
    printed = ", ".join(f"{(knobs(best_in_paper(rate)) or (0, 0))[1]:g}" for rate in chosen)
    return f"The lambda with the best last accuracy {verdict} with the noise: {listed} (paper: {printed})."


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """Figures 2 and 6: CCE and the five focuses; Figures 7 to 10: the spreads of each focus, by rate."""
    bare, results = under(results, BARE), under(results, "")
    methods = {rate: [method for one, method in PAPER if one == rate] for rate in RATES}
    rows = {f"{100 * rate:.0f} % noise": _lines(rate, methods[rate]) for rate in RATES}
    last = {_key(*pair): numbers[COLUMNS.index("last")] for pair, numbers in PAPER.items()}
    drawn = {"curves": learning_curves(results, rows, printed=last)}
    without = {f"{title}, no augmentation": lines for title, lines in rows.items()}
    drawn["no-augmentation"] = learning_curves(bare, without, printed=last)
    for rate in RATES:
        spreads = {
            f"{100 * rate:.0f} % noise, λ = {lam:g}": _lines(rate, [gr(beta, lam) for beta in betas])
            for lam, betas in SPREADS.items()
        }
        several = {
            title: lines for title, lines in spreads.items() if sum(key in results["curves"] for _, key in lines) > 1
        }
        drawn[f"spreads{100 * rate:.0f}"] = learning_curves(results, several)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _lines(rate: float, methods: Sequence[str]) -> list[tuple[str, str]]:
    return [(title_of(method), _key(rate, method)) for method in methods]


ABOUT = """CIFAR-10 with symmetric label noise (each label with probability r to another class), ResNet-56, SGD 0.1
divided by ten every 5,000 iterations, momentum 0.9, weight decay 1e-4, batch 128, crop and flip. The paper does not
print how long it trains; here 20,000 iterations, after which the printed rates are too small to move anything. `last`
is the headline; `best` is chosen by the test set, as in the paper. `corrupted` and `intact` are the accuracies on the
training images against the given and against the true labels. CCE weighs hard examples most (focus 0), β = 0 all
alike, and λ moves the focus of GR to λ/(1+λ). Fitted samples are let go as in the authors' code, which adds 1e-6 to
the 2(1 − p) that GR divides by (`gr-protocol` says why). A class counts as learnt where more than half of its test
images are recognised. As printed, CCE learns no wrong label by heart; without crops and flips it can, and the last
table asks what GR saves there."""

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
)
