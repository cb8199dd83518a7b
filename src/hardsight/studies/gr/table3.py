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

from hardsight.studies.configured import Hooks, train_cells
from hardsight.studies.framework import Options, Study, markdown_table
from hardsight.studies.gr.curves import learning_curves
from hardsight.studies.gr.judged import (
    KINDS,
    classes_head,
    first_of,
    judge_cells,
    kind_of,
    mean_of,
    shown_accuracy,
    shown_classes,
)
from hardsight.studies.gr.table3_numbers import (
    COLUMNS,
    PAPER,
    RATES,
    SPREADS,
    best_in_paper,
    ends,
    measured,
    place,
    under,
)
from hardsight.studies.gr.table3_trainings import LONG, OTHERS, PROTOCOLS, cell_of, configure
from hardsight.studies.gr.tables import page
from hardsight.studies.gr.trainings import gr, knobs, recalls, title_of
from hardsight.studies.wording import above_or_below
from hardsight.training import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cells(preset: str) -> list[Cell]:
    """CCE against the paper's best GR, 40 % first; then the rest of the table; then the other spreads and seeds.

    Last, or at any time by `--cells protocol=released` and the like, the first of them under the other protocols.
    """
    if preset != "paper":
        rates = (0.4,) if preset == "cpu" else (0.2, 0.4)
        few = ("cce", gr(12, 0.5), gr(16, 1)) if preset == "cpu" else ("cce", gr(12, 0.5))
        return [cell_of(rate, method, 0) for rate in rates for method in few]
    order = (0.4, 0.2, 0.6, 0.8)
    pairs = [(0.4, "cce"), (0.4, gr(16, 1)), (0.4, gr(12, 0.5))]
    pairs += [(rate, method) for rate in order for method in ("cce", best_in_paper(rate))]
    first = dict.fromkeys([*pairs, (0.4, gr(8, 0.5))])
    others = [cell_of(rate, method, 0, protocol) for protocol in OTHERS for rate, method in first]
    pairs += [pair for rate in order for pair in PAPER if pair[0] == rate]
    every = [gr(beta, lam) for lam, betas in SPREADS.items() for beta in betas]
    found = [cell_of(rate, method, 0) for rate, method in dict.fromkeys(pairs)]
    found += [cell_of(rate, method, seed) for seed in (1, 2) for rate, method in dict.fromkeys(pairs)]
    return found + [cell_of(rate, one, 0) for rate in order for one in every if (rate, one) not in PAPER] + others


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(mine, options, functools.partial(configure, preset), Hooks(measure=recalls))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by rate and method."""
    return judge_cells(cells(preset), folder, PROTOCOLS[preset])


def table(results: Mapping[str, Any]) -> str:
    """Ours beside the paper's, and what holds of the paper's two claims; then the same under other protocols."""
    printed = under(results, "")
    parts = [
        _what_carries(results),
        _beside(printed, _listed(printed)),
        _other_spreads(printed),
        _trend(printed),
        *_sentences(printed),
    ]
    for name, other in OTHERS.items():
        theirs = under(results, name)
        if measured(theirs):
            parts += [other.head, _beside(theirs, measured(theirs)), *_sentences(theirs)]
    return page(results, parts, "Accuracies in percent; – is not measured yet.")


def _beside(results: Mapping[str, Any], pairs: Sequence[tuple[float, str]]) -> str:
    """Rates and methods as a table, ours beside the paper's."""
    heads = ["noise", "model", *(f"{name}, ours (paper)" for name in COLUMNS), classes_head(results)]
    rows = []
    for rate, method in pairs:
        printed = PAPER.get((rate, method), (None,) * 4)
        numbers = (shown_accuracy(results, kind_of(rate, method), one) or "–" for one in COLUMNS)
        beside = (f"{one} ({paper})" if paper is not None else one for one, paper in zip(numbers, printed, strict=True))
        rows.append([f"{100 * rate:.0f} %", title_of(method), *beside, shown_classes(results, kind_of(rate, method))])
    return markdown_table(heads, rows)


def _what_carries(results: Mapping[str, Any]) -> str:
    """By how much the paper's best setting ends above CCE, as printed and in trainings three times as long."""
    gaps = {protocol: _gaps(under(results, protocol)) for protocol in ("", LONG)}
    rates = [rate for rate in RATES if all(rate in found for found in gaps.values())]
    if not rates:
        return ""
    short, long = ("/".join(f"{found[rate]:+.1f}" for rate in rates) for found in gaps.values())
    papers = "/".join(f"{PAPER[rate, best_in_paper(rate)][1] - PAPER[rate, 'cce'][1]:+.1f}" for rate in rates)
    noise = "/".join(f"{100 * rate:.0f}" for rate in rates)
    longer = under(results, LONG)
    best, last = ([mean_of(longer, kind_of(rate, "cce"), one) or 0 for rate in rates] for one in ("best", "last"))
    beyond = [gaps[LONG][rate] + last[at] - best[at] for at, rate in enumerate(rates)]
    return (
        f"What carries the result is how long one trains. At {noise} % noise the paper's best setting ends {short} "
        f"points from CCE after the {PROTOCOLS['paper'].epochs} epochs of the printed schedule, and {long} points from "
        f"it after {OTHERS[LONG].protocol.epochs} epochs, half of them at the first learning rate; in the paper "
        f"{papers}. Against CCE stopped at its best epoch, which only the test set knows, it is still "
        f"{'/'.join(f'{one:+.1f}' for one in beyond)}."
    )


def _gaps(results: Mapping[str, Any]) -> dict[float, float]:
    """By rate, the last accuracy of the paper's best setting less that of CCE, in points."""
    ends_at = {
        rate: [mean_of(results, kind_of(rate, method), "last") for method in (best_in_paper(rate), "cce")]
        for rate in RATES
    }
    return {rate: both[0] - both[1] for rate, both in ends_at.items() if both[0] is not None and both[1] is not None}


def _sentences(results: Mapping[str, Any]) -> list[str]:
    """What GR gains at each rate, and whether there was anything to be saved from."""
    return [*(_gain(results, rate) for rate in RATES), _by_heart(results)]


def _listed(results: Mapping[str, Any]) -> list[tuple[float, str]]:
    """What the preset plans of the paper's table, and what else was measured, in the order of the table."""
    return sorted({*measured(results), *(_planned(results) & {*PAPER})}, key=place)


def _planned(results: Mapping[str, Any]) -> set[tuple[float, str]]:
    return {(cell.settings["rate"], cell.settings["method"]) for cell in cells(results["preset"])}


def _other_spreads(results: Mapping[str, Any]) -> str:
    """How many of the spreads that only Figures 7 to 10 show are measured, where the preset plans them."""
    planned = _planned(results) - {*PAPER}
    if not planned:
        return ""
    found = len(planned & {*measured(results)})
    are = "is" if found == 1 else "are"
    return f"Of the {len(planned)} other spreads of the paper's Figures 7 to 10, {found} {are} measured."


def _gain(results: Mapping[str, Any], rate: float) -> str:
    """What GR gains over CCE in last accuracy, ours and the paper's."""
    ours = ends(results, rate)
    if ours is None:
        return ""
    printed = PAPER[rate, best_in_paper(rate)][1] - PAPER[rate, "cce"][1]
    which = "the one GR setting measured"
    if ours.settings > 1:
        which = f"the best of {ours.settings} GR settings measured (chosen by the test set, as in the paper)"
    return (
        f"At {100 * rate:.0f} % noise {which}, {title_of(ours.best)}, ends {above_or_below(ours.gr - ours.cce)} CCE "
        f"({ours.gr:.1f} against {ours.cce:.1f}); the paper's best ends {above_or_below(printed)} it."
    )


def _by_heart(results: Mapping[str, Any]) -> str:
    """How far CCE fits the given labels beyond the share of them that is right, ours and the paper's."""
    fits = {rate: mean_of(results, kind_of(rate, "cce"), "corrupted") for rate in RATES}
    beyond = [
        (rate, fit - 100 * (1 - rate), PAPER[rate, "cce"][2] - 100 * (1 - rate))
        for rate, fit in fits.items()
        if fit is not None
    ]
    if not beyond:
        return ""
    rates = "/".join(f"{100 * rate:.0f}" for rate, _, _ in beyond)
    ours, papers = ("/".join(f"{row[which]:+.1f}" for row in beyond) for which in (1, 2))
    wrong = [mean_of(results, kind_of(rate, "cce"), "noisy") for rate, _, _ in beyond]
    fitted = "/".join(f"{value:.1f}" for value in wrong if value is not None)
    of_the_wrong = f" Of the wrong labels themselves it fits {fitted} %; a blind guess fits 10."
    return (
        f"Wrong labels learnt by heart: at {rates} % noise CCE fits the given labels by {ours} points beyond the share "
        f"of them that is right, the paper's by {papers}. Below 0 nothing shows that a wrong label was learnt."
        f"{of_the_wrong if None not in wrong else ''}"
    )


def _trend(results: Mapping[str, Any]) -> str:
    """Whether more noise asks for a larger lambda, where a rate has more than one focus measured."""
    chosen = {}
    for rate in RATES:
        methods = [one for r, one in measured(results) if r == rate and (knobs(one) or (0, 0))[0] > 0]
        best = first_of((method, mean_of(results, kind_of(rate, method), "last")) for method in methods)
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
    others = {name: under(results, name) for name in OTHERS}
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


ABOUT = """Does it help to emphasise other samples than cross-entropy (CCE) does when labels are wrong, and which? The
paper trains ResNet-56 on CIFAR-10, where each label is moved to another class with probability r (symmetric noise), and
compares CCE with gradient rescaling (GR) at several settings.

How to read the tables: `last` is the test accuracy at the end of training and the number that counts; `best` is the
best epoch's, chosen by the test set, as the paper prints it too. `corrupted` and `intact` are accuracies on the
training images, against the given and against the true labels. λ sets which samples GR emphasises most (those whose
label has the probability λ/(1+λ)), β how strongly; with β = 0 all count alike. CCE emphasises the least probable
labels. A class counts as learnt where more than half of its test images are recognised.

How it was trained: SGD 0.1 divided by ten every 5,000 iterations, momentum 0.9, weight decay 1e-4, batch 128, crops
and flips, as the paper prints. It does not print how long; the first table has 20,000 iterations (51 epochs), after
which the printed rates are too small to move anything. In that time CCE learns no wrong label by heart, so GR has
nothing to save it from. The other tables ask when it does: without crops and flips; and in trainings three times as
long, as the authors' code has them on CIFAR-100 (30,000 iterations of batch 256, the rate divided by ten after 1/2 and
11/15), with that code's weight decay and with the printed one. In all of them fitted samples are let go as in the
authors' code, which adds 1e-6 to the 2(1 − p) that GR divides by (`gr-protocol` says why)."""

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
