"""The page of `gr-protocol`: its table and its sentences, all from the results file."""

from collections.abc import Iterator, Mapping
from typing import Any

from hardsight_studies.framework import markdown_table
from hardsight_studies.gr import collapse
from hardsight_studies.gr.changes import (
    ANCHOR,
    ANCHORS,
    BASES,
    FACTORS,
    METHODS,
    OF_GR_ALONE,
    PRINTED_AS_IT_IS,
    RATE,
    RELEASED_ANCHOR,
    RIGHT_LABELS,
    SETTINGS,
    TITLES,
    cells,
    changed,
    key,
)
from hardsight_studies.gr.judged import mean_of, number_of, several_seeds, shown_accuracy, shown_classes
from hardsight_studies.gr.limit import DERIVED, limits
from hardsight_studies.gr.table3_numbers import COLUMNS
from hardsight_studies.gr.table3_numbers import PAPER as TABLE3
from hardsight_studies.gr.tables import page, points_apart
from hardsight_studies.gr.trainings import gr, title_of
from hardsight_studies.wording import listed, plural

MILD, STRONG = gr(8, 0.5), gr(16, 1)
# The paper's accuracies at this rate, of ResNet-56 (Table 3; GR (8, 0.5) is not in it).
PAPER = {method: dict(zip(COLUMNS, TABLE3[RATE, method], strict=True)) for method in ("cce", STRONG)}
PAPER_GAP = PAPER[STRONG]["last"] - PAPER["cce"]["last"]
PAPER_ANCHOR = {"resnet20": 91.8}
# Of ten classes.
BLIND = 10.0


def table(results: Mapping[str, Any]) -> str:
    """The answer; every change; then what moves each loss, what is learnt by heart, what is ruled out, GR's limit."""
    planned = {(cell.settings["change"], cell.settings["method"]) for cell in cells(results["preset"])}
    heads = ["change", *(f"{title_of(method)}: last (best; fit; classes)" for method in METHODS)]
    rows = [
        [title, *(_shown(results, change, method) if (change, method) in planned else "" for method in METHODS)]
        for change, title in TITLES.items()
        if change not in ANCHORS and any((change, method) in planned for method in METHODS)
    ]
    settings = [method for method in (*METHODS[1:], *SETTINGS) if (PRINTED_AS_IT_IS, method) in planned]
    # A small preset stands folded under the large one: it need not say the reasons again.
    reasons = results["preset"] == "paper"
    parts = [
        markdown_table(heads, rows),
        _moves(results),
        _headed("The anchor: right labels.", [_anchor(results)]),
        _headed("Wrong labels learnt by heart.", [_by_heart(results)]),
        _headed("Classes ruled out.", [collapse.finding(results, STRONG), _without_noise(results)]),
        reasons * f"{_STARVED} {collapse.pulls(METHODS)}",
        _headed("Logits that grow for ever.", [reasons * _FITTED, collapse.grown(results, MILD, TITLES)]),
        reasons * DERIVED,
        limits(results, {method: key(PRINTED_AS_IT_IS, method) for method in settings}),
    ]
    return page(results, parts, result=_result(results), legend=_legend(results), conclude=_scope(results))


def _headed(head: str, sentences: list[str]) -> str:
    """A paragraph that opens with its subject; empty where nothing is said of it."""
    said = " ".join(one for one in sentences if one)
    return f"**{head}** {said}" if said else ""


_STARVED = """Why: the weight exp(β p^λ (1 − p)) is largest for a label that the network half believes. The classes that
move first draw the training to themselves, and each step for them takes probability and weight from the others. CCE
pulls hardest on what is not learnt."""
_FITTED = """Under GR a fitted sample keeps the weight exp(0) = 1, and the division by 2(1 − p) makes it push its
logit up for ever. Then every probability is nearly 0 or 1, and no weight tells samples apart. The authors' code adds
1e-6 to 2(1 − p), which lets go of the sample; the paper's Eq. 6 does not show it. The other studies do as the code
does; here it is one of the changes."""


def compared_with_cce(results: Mapping[str, Any], method: str) -> dict[str, tuple[float, int]]:
    """By change, how far above CCE a method ends, in points, and the sign of what counts as a difference.

    CCE's own training where only GR knows the change.
    """
    found: dict[str, tuple[float, int]] = {}
    for change in (PRINTED_AS_IT_IS, *FACTORS):
        ours = number_of(results, key(change, method), "last")
        cce = number_of(results, key(OF_GR_ALONE.get(change, change), "cce"), "last")
        if cce is not None and ours is not None:
            found[change] = points_apart(ours, cce)
    return found


def _result(results: Mapping[str, Any]) -> str:
    """Whether any change brings the paper's gain; how often GR is ahead at all; where that comes from."""
    gaps = {change: points for change, (points, _) in compared_with_cce(results, STRONG).items()}
    if not gaps:
        return ""
    brought = [change for change, points in gaps.items() if points >= PAPER_GAP / 2]
    lengths = {changed(BASES[results["preset"]], change).epochs for change in gaps}
    epochs = " to ".join(str(one) for one in sorted({min(lengths), max(lengths)}))
    measured = f"{plural(len(gaps), 'protocol')} measured here, of {epochs} epochs,"
    said = [f"None of the {measured} brings the paper's result. {_LONGER}"]
    if brought:
        titles = "; ".join(f"{TITLES[change]} ({gaps[change]:+.1f})" for change in brought)
        said = [f"Of the {measured} at least half of the paper's gain comes with: {titles}. {_LONGER}"]
    nearest = max(gaps, key=lambda change: gaps[change])
    said.append(
        f"In the paper {title_of(STRONG)} ends {PAPER_GAP:.1f} points above CCE. "
        f"{_counted(results, STRONG, 'Here it')}, at best {gaps[nearest]:+.1f} ({TITLES[nearest]})."
    )
    mild = _counted(results, MILD, f"The milder {title_of(MILD)}")
    said += [f"{mild}." if mild else "", _why(results)]
    return " ".join(one for one in said if one)


_LONGER = """It comes out in trainings of 154 epochs, half of them at the first learning rate:
[gr-table3](gr-table3.md) and, with a hundred classes, [gr-table5](gr-table5.md)."""


def _counted(results: Mapping[str, Any], method: str, named: str) -> str:
    """Under how many changes a GR setting ends above CCE, level with it and below it."""
    found = compared_with_cce(results, method)
    if not found:
        return ""
    sides = [side for _, side in found.values()]
    others = {"level with it": sides.count(0), "below it": sides.count(-1)}
    counted = "".join(f", {word} in {count}" for word, count in others.items() if count)
    return f"{named} ends above CCE in {sides.count(1)} of {plural(len(sides), 'protocol')}{counted}"


def _why(results: Mapping[str, Any]) -> str:
    """In how many protocols there is something to be saved from, and in how many GR learns all classes."""
    fits = _fits_of_wrong(results)
    counts = [results.get("classes_learnt", {}).get(key(change, STRONG)) for change in (PRINTED_AS_IT_IS, *FACTORS)]
    known = [found[0] == found[1] for found in counts if found is not None]
    said = []
    if fits:
        learnt = [TITLES[change] for change, fit in fits.items() if fit > BLIND]
        where = f" ({'; '.join(learnt)})" if learnt else ""
        said.append(
            f"CCE learns wrong labels by heart in {len(learnt)} of {plural(len(fits), 'protocol')}{where}; elsewhere "
            "there is little to save it from."
        )
    if known:
        said.append(f"{title_of(STRONG)} learns all classes in {sum(known)} of {plural(len(known), 'protocol')}.")
    return " ".join(said)


def _fits_of_wrong(results: Mapping[str, Any]) -> dict[str, float]:
    """By change, the share of the wrong labels that CCE fits, in percent, where it is measured."""
    found = {change: mean_of(results, key(change, "cce"), "noisy") for change in (PRINTED_AS_IT_IS, *FACTORS)}
    return {change: fit for change, fit in found.items() if fit is not None}


def _legend(results: Mapping[str, Any]) -> str:
    """How to read the table."""
    first = ", of the first seed" if several_seeds(results) else ""
    uncounted = len(results["accuracies"]) - len(results.get("classes_learnt", {}))
    counted = f" {plural(uncounted, 'training')} came before classes were counted." if uncounted else ""
    model, epochs = (results["protocol"][one] for one in ("model", "epochs"))
    return f"""**How to read the table.** One row for each change of the printed protocol, one column for each loss.
Network {model}, {epochs} epochs, {100 * RATE:.0f} % noise. All numbers are percents. – is not measured yet; what is
empty is not planned.

- `change`: what differs from the training that the paper prints. "The authors' code" is what they published later for
  CIFAR-100; N is the number of samples in a batch.
- `last`: test accuracy at the end of training, the number that counts. `best`: that of the best epoch, chosen by the
  test set.
- `fit`: accuracy on the training images against the given labels, wrong ones included.
- `classes`: how many classes are learnt{first}.{counted}

Two numbers are level where they differ by less than half a point, or by less than the standard error over seeds."""


def _shown(results: Mapping[str, Any], change: str, method: str) -> str:
    last, best, fit = (shown_accuracy(results, key(change, method), one) for one in ("last", "best", "corrupted"))
    parts = (best, fit, shown_classes(results, key(change, method)))
    return f"{last} ({'; '.join(part for part in parts if part)})" if best != "failed" and last else last or "–"


def _anchor(results: Mapping[str, Any]) -> str:
    ours = mean_of(results, key(ANCHOR, "cce"), "last")
    if ours is None:
        return ""
    said = f"CCE on right labels ends at {ours:.1f}"
    printed = PAPER_ANCHOR.get(results["protocol"]["model"]) if results["preset"] == "paper" else None
    if printed is None:
        return f"{said}."
    short = printed - ours
    verdict = (
        f" It is {short:.1f} points short: what is printed is not all of the paper's training." if short >= 1 else ""
    )
    theirs = mean_of(results, key(RELEASED_ANCHOR, "cce"), "last")
    beside = f" As the authors' code trains on CIFAR-100, in 154 epochs, it ends at {theirs:.1f}." if theirs else ""
    return f"{said} after the printed schedule (paper: {printed}).{verdict}{beside}"


def _moves(results: Mapping[str, Any]) -> str:
    lines = [f"- {line}" for method in METHODS if (line := _moved(results, method))]
    return "\n".join(["**What moves each loss most**, in points of its last test accuracy:\n", *lines]) if lines else ""


def _moved(results: Mapping[str, Any], method: str) -> str:
    """The changes with the largest effect on a method's last accuracy."""
    base = mean_of(results, key(PRINTED_AS_IT_IS, method), "last")
    if base is None:
        return ""
    effects = {
        change: value - base
        for change in FACTORS
        if (value := mean_of(results, key(change, method), "last")) is not None
    }
    if not effects:
        return ""
    ranked = sorted(effects, key=lambda change: -abs(effects[change]))[:3]
    changes = "; ".join(f"{TITLES[change]} {effects[change]:+.1f}" for change in ranked)
    return f"{title_of(method)}, {base:.1f} as printed: {changes}."


def _by_heart(results: Mapping[str, Any]) -> str:
    """Under which changes CCE fits more wrong labels than a blind guess, and what becomes of every method there."""
    known = _fits_of_wrong(results)
    if not known:
        return ""
    learnt = [change for change, fit in known.items() if fit > BLIND]
    rest, theirs = {change: fit for change, fit in known.items() if fit <= BLIND}, PAPER["cce"]
    told = [f"With {TITLES[change]}, of these {listed([*_fitted(results, change)])}." for change in learnt]
    if rest:
        counted = f"{'other ' if learnt else ''}{plural(len(rest), 'protocol')}"
        most = max(rest, key=lambda change: rest[change])
        told.append(f"In the {counted} measured CCE fits at most {rest[most]:.1f} % ({TITLES[most]}).")
    return (
        f"A blind guess fits {BLIND:.0f} % of the wrong labels. {' '.join(told)} The paper's CCE fits "
        f"{theirs['corrupted']} % of all given labels, wrong ones included."
    )


def _fitted(results: Mapping[str, Any], change: str) -> Iterator[str]:
    """How many of the wrong labels each method fits."""
    for method in METHODS:
        wrong = mean_of(results, key(change, method), "noisy")
        if wrong is not None:
            yield f"{title_of(method)} fits {wrong:.1f} %"


def _without_noise(results: Mapping[str, Any]) -> str:
    """Whether the noise has a part in the collapse."""
    kind = key(RIGHT_LABELS, STRONG)
    ours = mean_of(results, kind, "last")
    if ours is None:
        return ""
    learnt = shown_classes(results, kind)
    counted = f", with {learnt} classes learnt" if learnt else ""
    return f"On right labels, as printed else, it ends at {ours:.1f}{counted}."


def _scope(results: Mapping[str, Any]) -> str:
    """How far the numbers reach, and what is not measured."""
    missing = [
        TITLES[change]
        for change in FACTORS
        if not any(number_of(results, key(change, method), "last") for method in METHODS)
    ]
    planned = f" Not measured yet: {'; '.join(missing)}." if missing else ""
    return (
        "The paper trains ResNet-56; this study is smaller and shorter, to find what matters. A change that does "
        f"little in {results['protocol']['epochs']} epochs may do more in a longer training, and few changes are "
        f"measured together.{planned}"
    )
