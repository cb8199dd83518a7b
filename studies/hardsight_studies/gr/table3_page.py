"""The page of `gr-table3`: its tables and its sentences, all from the results file."""

from collections.abc import Mapping, Sequence
from typing import Any

from hardsight_studies.framework import markdown_table
from hardsight_studies.gr.judged import (
    classes_head,
    first_of,
    gaps,
    kind_of,
    mean_of,
    shown_accuracy,
    shown_classes,
    under,
)
from hardsight_studies.gr.table3_numbers import COLUMNS, PAPER, RATES, best_in_paper, ends, measured, place
from hardsight_studies.gr.table3_trainings import BARE, OTHERS, PROTOCOLS, cells
from hardsight_studies.gr.tables import page, ranks
from hardsight_studies.gr.trainings import LONG, RELEASED, knobs, title_of
from hardsight_studies.wording import above_or_below, listed, percents, slashed

# The other protocols as they are shown, the most telling first.
SHOWN = (LONG, RELEASED, BARE)
LEGEND = """**How to read the tables.** An entry is ours, in brackets what the paper prints, in percent. – is not
measured yet.

- `last`: test accuracy at the end of training, the number that counts. `best`: that of the best epoch, chosen by the
  test set.
- `corrupted`: accuracy on the training images against the given labels, wrong ones included. If it lies above the share
  of right labels, wrong ones are learnt by heart; below that share nothing shows that any is. `intact`: the same
  against the true labels.
- `classes learnt`: those of which more than half of the test images are recognised."""


def table(results: Mapping[str, Any]) -> str:
    """What carries the result; ours beside the paper's and what GR gains, as printed and under other protocols."""
    printed = under(results, "")
    parts = [_AS_PRINTED] if results["preset"] == "paper" else []
    parts += [_beside(printed, _listed(printed)), _other_spreads(printed), *_sentences(printed), _trend(printed)]
    for name in SHOWN:
        theirs = under(results, name)
        if measured(theirs):
            parts += [OTHERS[name].head, _beside(theirs, measured(theirs)), *_sentences(theirs)]
    result = _what_carries(results) or " ".join(_gains(printed))
    return page(results, parts, result=result, legend=LEGEND, conclude=_scope(results))


_AS_PRINTED = "**As printed: 51 epochs** (the schedule that the paper prints, until its rates no longer move anything):"


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
    """By how much the paper's best setting ends above CCE in long trainings and as printed, and what goes with it."""
    long, short = under(results, LONG), under(results, "")
    by_length = {LONG: _gaps(long), "": _gaps(short)}
    rates = [rate for rate in RATES if all(rate in found for found in by_length.values())]
    if not rates:
        return ""
    papers = [PAPER[rate, best_in_paper(rate)][1] - PAPER[rate, "cce"][1] for rate in rates]
    reached = {
        name: [found[rate] >= paper / 2 for rate, paper in zip(rates, papers, strict=True)]
        for name, found in by_length.items()
    }
    carries = all(reached[LONG]) and not any(reached[""])
    settings = listed([*dict.fromkeys(title_of(best_in_paper(rate)) for rate in rates)])
    epochs = {name: (OTHERS[name].protocol if name else PROTOCOLS["paper"]).epochs for name in by_length}
    best, last = ([mean_of(long, kind_of(rate, "cce"), one) or 0 for rate in rates] for one in ("best", "last"))
    beyond = [by_length[LONG][rate] + last[at] - best[at] for at, rate in enumerate(rates)]
    said = [
        "The paper's gain comes out in long trainings and not in those of the printed schedule." if carries else "",
        f"At {percents(rates)} % noise the paper's best settings, {settings}, end "
        f"{slashed(by_length[LONG][rate] for rate in rates)} points from CCE in {epochs[LONG]} epochs, half of them "
        f"at the first learning rate; in the paper {slashed(papers)}.",
        f"In the {epochs['']} epochs in which the printed schedule comes to rest, they end "
        f"{slashed(by_length[''][rate] for rate in rates)} points from it.",
        _memorised(long, short, rates),
        _all_classes(long, short, rates),
        "Against CCE stopped at its best epoch, which only the test set knows, the long trainings of GR are ahead by "
        f"{slashed(beyond)}.",
        _bare(under(results, BARE), rates),
    ]
    return " ".join(one for one in said if one)


def _bare(results: Mapping[str, Any], rates: Sequence[float]) -> str:
    """The gain where images are not cropped and flipped, and how low both losses end there."""
    apart = _gaps(results)
    if any(rate not in apart for rate in rates):
        return ""
    ours = [mean_of(results, kind_of(rate, best_in_paper(rate)), "last") or 0 for rate in rates]
    papers = (PAPER[rate, best_in_paper(rate)][1] for rate in rates)
    known = [mean_of(results, kind_of(rate, "cce"), "noisy") for rate in rates]
    fits = [fit for fit in known if fit is not None]
    which = f" CCE then fits {slashed(fits, '.1f')} % of the wrong labels." if len(fits) == len(rates) else ""
    return (
        f"If images are neither cropped nor flipped, GR ends {slashed(apart[rate] for rate in rates)} points from CCE "
        f"in the short training.{which} But GR ends at {slashed(ours, '.1f')} %; the paper prints "
        f"{slashed(papers, '.1f')} %, with crops and flips."
    )


def _memorised(long: Mapping[str, Any], short: Mapping[str, Any], rates: Sequence[float]) -> str:
    """How many of the wrong labels CCE fits in long and in short trainings."""
    both = [[mean_of(of, kind_of(rate, "cce"), "noisy") for rate in rates] for of in (long, short)]
    fits = [[one for one in found if one is not None] for found in both]
    if any(len(found) < len(rates) for found in fits):
        return ""
    return (
        f"In the long training CCE fits {slashed(fits[0], '.1f')} % of the wrong labels, in the short one "
        f"{slashed(fits[1], '.1f')} %; a blind guess fits 10."
    )


def _all_classes(long: Mapping[str, Any], short: Mapping[str, Any], rates: Sequence[float]) -> str:
    """How many classes the paper's best settings learn in long and in short trainings."""
    kinds = [kind_of(rate, best_in_paper(rate)) for rate in rates]
    counts = [[of.get("classes_learnt", {}).get(kind) for kind in kinds] for of in (long, short)]
    known = [[found for found in row if found is not None] for row in counts]
    if any(len(row) < len(rates) for row in known):
        return ""
    learnt = [slashed((found[0] for found in row), "d") for row in known]
    return f"In the long training GR learns {learnt[0]} of the {known[0][0][1]} classes, in the short one {learnt[1]}."


def _gaps(results: Mapping[str, Any]) -> dict[float, float]:
    """By rate, how far the paper's best setting ends above CCE."""
    return gaps(results, {rate: ("cce", best_in_paper(rate)) for rate in RATES})


def _sentences(results: Mapping[str, Any]) -> list[str]:
    """What GR gains at each rate, and whether there was anything to be saved from."""
    gains = _gains(results)
    return ["\n".join(f"- {one}" for one in gains), _by_heart(results)]


def _gains(results: Mapping[str, Any]) -> list[str]:
    return [one for rate in RATES if ranks(results) and (one := _gain(results, rate))]


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
    rates = percents(rate for rate, _, _ in beyond)
    ours, papers = (slashed(row[which] for row in beyond) for which in (1, 2))
    wrong = [mean_of(results, kind_of(rate, "cce"), "noisy") for rate, _, _ in beyond]
    fitted = slashed((value for value in wrong if value is not None), ".1f")
    of_the_wrong = f" Of the wrong labels themselves it fits {fitted} %; a blind guess fits 10."
    return (
        f"Wrong labels learnt by heart: at {rates} % noise CCE fits the given labels by {ours} points beyond the share "
        f"of them that is right, the paper's by {papers}."
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


def _scope(results: Mapping[str, Any]) -> str:
    """How the trainings differ, and what is not measured."""
    long, printed = OTHERS[LONG].protocol, PROTOCOLS["paper"]
    there = _gaps(under(results, LONG))
    missing = [f"{100 * rate:.0f} %" for rate in RATES if rate not in there]
    gap = f" Long trainings of both losses are not measured yet at {listed(missing)} noise." if missing else ""
    return (
        "The paper does not print how long it trained, so the long training is a guess, taken from code that the "
        f"authors published later. It differs from the printed one in its batches too, {long.batch_size} instead of "
        f"{printed.batch_size} images, and in when the rate falls; length is not told apart from these here "
        "([gr-protocol](gr-protocol.md) changes them one at a time, in short trainings). The settings of GR are the "
        f"paper's, chosen by the test set.{gap}"
    )
