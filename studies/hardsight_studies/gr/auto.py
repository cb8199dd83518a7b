"""GR's knobs chosen by themselves, from an estimated noise rate, judged at every rate.

Claim (Wang et al. 2019, Table 3): more noise asks for a larger lambda. `beta = "auto", lam = "auto"` turns that into a
rule (see `losses.automatic`); here it meets cross-entropy, GCE, SL, the fixed settings of the paper and two former
rules, from clean labels to 80 % wrong ones. No paper prints these numbers. Ours: docs/studies/gr-auto.md, made from the
results files.

Every method trains alike: SGD with weight decay 5e-4, the rate divided by ten after 1/2 and 11/15 of a shortened
training, and the norm of the gradient held to 1, without which fixed settings of GR collapsed on small data.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.training import Cell
from hardsight_studies.configured import Tree, train_cells
from hardsight_studies.framework import Options, Study, markdown_table, provenance
from hardsight_studies.gr.choosing import (
    AUTO,
    AUTO_AS_PRINTED,
    AUTO_BOUNDED,
    CHOOSING,
    choices,
    chosen_table,
    method_loss,
    method_title,
)
from hardsight_studies.gr.judged import (
    KINDS,
    cell_of,
    first_of,
    gaps,
    judge_cells,
    kind_of,
    mean_of,
    number_of,
    percent,
    shown_last_and_best,
    under,
)
from hardsight_studies.gr.tables import failures, standing, trained_on
from hardsight_studies.gr.terms import CCE, GR, NOISE, ROBUST
from hardsight_studies.gr.trainings import (
    DIGITS,
    LONG,
    PRINTED,
    RELEASED_DROPS,
    RELEASED_EPSILON,
    RELEASED_TRAINING,
    Protocol,
    gr,
)
from hardsight_studies.wording import percents, slashed, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (0.0, 0.2, 0.4, 0.6, 0.8)
# The best of Tables 2 and 3 at each rate, and the one setting that the paper fixes where the noise is unknown.
PAPER_BEST = {0.0: gr(2, 0), 0.2: gr(12, 0.5), 0.4: gr(16, 1), 0.6: gr(12, 2), 0.8: gr(12, 2)}
FIXED = tuple(dict.fromkeys([*PAPER_BEST.values(), gr(8, 0.5)]))
OTHERS = ("cce", "gce", "sl")
METHODS = (*OTHERS, *FIXED, AUTO_AS_PRINTED, AUTO_BOUNDED, AUTO)
PROTOCOLS = {
    "smoke": dataclasses.replace(DIGITS, epochs=9, drops=RELEASED_DROPS, weight_decay=5e-4),
    # MNIST at a ninth of the pixels, 3,000 images: a small network learns it in minutes, wrong labels and all.
    "cpu": Protocol(
        "mnist", "digits_cnn", epochs=12, drops=RELEASED_DROPS, batch_size=64, lr=0.05, weight_decay=5e-4, shift=1,
        flip=False, limit=3000, shrink=3,
    ),
    "paper": dataclasses.replace(
        PRINTED, model="resnet20", epochs=15, drops=RELEASED_DROPS, weight_decay=5e-4
    ),
}  # fmt: skip
# Ten times as long, with the weight decay that the paper prints: there wrong labels are learnt by heart.
LONG_PROTOCOLS = {
    "cpu": dataclasses.replace(PROTOCOLS["cpu"], epochs=120, weight_decay=PRINTED.weight_decay),
    "paper": dataclasses.replace(PROTOCOLS["paper"], **RELEASED_TRAINING | {"weight_decay": PRINTED.weight_decay}),
}


def cells(preset: str) -> list[Cell]:
    """CCE, auto and the paper's best at every rate, 40 % first; GCE and SL; other settings; former autos; seeds.

    Last, or at any time by `--cells protocol=long`, the first of them in long trainings.
    """
    if preset == "smoke":
        return [cell_of(rate, method, 0) for rate in (0.0, 0.4) for method in ("cce", AUTO, gr(8, 0.5))]
    rates = (0.4, 0.0, 0.2, 0.6, 0.8)
    pairs = [(rate, method) for rate in rates for method in ("cce", AUTO, PAPER_BEST[rate])]
    pairs += [(rate, method) for method in ("gce", "sl") for rate in rates]
    pairs += [(rate, gr(8, 0.5)) for rate in rates]
    bounded = [(rate, AUTO_BOUNDED) for rate in rates]
    longer = pairs + bounded if preset == "cpu" else pairs
    long = [cell_of(rate, method, seed, LONG) for seed in (0, 1, 2) for rate, method in longer]
    pairs += [(rate, method) for method in (*FIXED, AUTO_AS_PRINTED) for rate in rates] + bounded
    if preset == "cpu":
        pairs = [pair for pair in pairs if pair[1] not in FIXED or pair[1] in (PAPER_BEST[pair[0]], gr(8, 0.5))]
    return [cell_of(rate, method, seed) for seed in (0, 1, 2) for rate, method in dict.fromkeys(pairs)] + long


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""

    def configure(cell: Cell) -> Tree:
        protocol = (LONG_PROTOCOLS if "protocol" in cell.settings else PROTOCOLS)[preset]
        method, rate = cell.settings["method"], cell.settings["rate"]
        tree = protocol.tree("cce", rate, cell.settings["seed"])
        return tree | {"loss": method_loss(method, rate, protocol.data, RELEASED_EPSILON), "clip": 1.0}

    train_cells(mine, options, configure)


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by rate and method, and what `auto` estimated and chose."""
    planned = cells(preset)
    return judge_cells(planned, folder, PROTOCOLS[preset]) | {"choices": choices(planned, folder)}


# ---------------------------------------------------------------------------------------------------------------------
# The table.


def table(results: Mapping[str, Any]) -> str:
    """How auto ends beside CCE; accuracies by method and rate, and what auto chose; then the same in long trainings."""
    sections = [_section(under(results, ""), "")]
    longer = under(results, LONG)
    if longer["accuracies"]:
        epochs = LONG_PROTOCOLS[results["preset"]].epochs
        head = (
            f"The same in trainings of {epochs} epochs with weight decay 1e-4, where wrong labels are learnt by heart:"
        )
        sections.append([head, *_section(longer, LONG)])
    parts = [_result(results), provenance(results), trained_on(results), _LEGEND]
    parts += [part for section in sections for part in section]
    return "\n\n".join(part for part in (*parts, failures(results), _CONCLUDE) if part) + "\n"


def _section(results: Mapping[str, Any], protocol: str) -> list[str]:
    """The table of a protocol, what auto chose under it, and how it stands at each rate."""
    of = (cell.settings for cell in cells(results["preset"]) if cell.settings.get("protocol", "") == protocol)
    planned = {(one["rate"], one["method"]) for one in of}
    rates = [rate for rate in RATES if (rate, "cce") in planned]
    methods = [one for one in METHODS if any((rate, one) in planned for rate in rates)]
    rows = [
        [
            method_title(one),
            *(shown_last_and_best(results, kind_of(rate, one)) if (rate, one) in planned else "" for rate in rates),
        ]
        for one in methods
    ]
    heads = [f"{100 * rate:.0f} % noise" for rate in rates]
    chosen = [(f"{100 * rate:.0f} % noise", one, kind_of(rate, one)) for one in CHOOSING for rate in rates]
    return [
        markdown_table(["method", *heads], rows),
        chosen_table(results, chosen),
        *(_verdict(results, rate) for rate in rates),
        _steadiest(results, rates),
    ]


def _result(results: Mapping[str, Any]) -> str:
    """By how much auto ends above or below CCE, in short and in long trainings."""
    said = []
    for protocol in ("", LONG):
        own = under(results, protocol)
        apart = gaps(own, dict.fromkeys(RATES, ("cce", AUTO)))
        if apart:
            epochs = (LONG_PROTOCOLS if protocol else PROTOCOLS)[results["preset"]].epochs
            points, noise = slashed(apart.values()), percents(apart)
            said.append(f"In trainings of {epochs} epochs auto ends {points} points from CCE at {noise} % noise.")
            said.append(_best_on_average(means_over(own, [*apart])))
    return f"**Result.** {' '.join(one for one in said if one)}" if said else ""


def _best_on_average(means: Mapping[str, float]) -> str:
    if len(means) < 2 or AUTO not in means:
        return ""
    best = max(means, key=lambda method: means[method])
    beside = "" if best == AUTO else f", auto {means[AUTO]:.1f}"
    return f"In the mean over these rates {method_title(best)} ends best, at {means[best]:.1f}{beside}."


_LEGEND = """**How to read the tables.** An entry is the test accuracy in percent at the end of training, in brackets at
its best epoch, which is chosen by the test set. – is not measured yet, what is empty is not planned."""
_CONCLUDE = """**What one may conclude.** The best fixed setting is chosen by the test set, which no one can do in
practice: it is a bound, not a competitor. A number without ± is one training, so a difference of a point may be
chance."""


def _verdict(results: Mapping[str, Any], rate: float) -> str:
    """Auto against CCE, the best of GCE and SL, and the best fixed setting, in last accuracy."""
    auto = number_of(results, kind_of(rate, AUTO), "last")
    if auto is None:
        return ""
    against = {
        "CCE": ("cce",),
        "the best of GCE and SL": ("gce", "sl"),
        "the best fixed setting (chosen by the test set)": FIXED,
    }
    said = []
    for title, methods in against.items():
        best = first_of((one, mean_of(results, kind_of(rate, one), "last")) for one in methods)
        if best is not None:
            other = number_of(results, kind_of(rate, best), "last")
            assert other is not None
            name = title if len(methods) == 1 else f"{title}, {method_title(best)}"
            said.append(f"{standing(auto, other)} {name} ({percent(other)})")
    return f"At {100 * rate:.0f} % noise auto ends at {percent(auto)}: {', '.join(said)}." if said else ""


def _steadiest(results: Mapping[str, Any], rates: Sequence[float]) -> str:
    """The mean over all rates, of the methods measured at every one of them."""
    means = means_over(results, rates)
    if len(means) < 2:
        return ""
    order = sorted(means, key=lambda method: -means[method])
    listed = ", ".join(f"{method_title(method)} {means[method]:.1f}" for method in order)
    return f"Mean over the {len(rates)} rates, of the methods measured at all of them: {listed}."


def means_over(results: Mapping[str, Any], rates: Sequence[float]) -> dict[str, float]:
    """The last accuracy in the mean over several rates, of the methods measured at every one of them."""
    means = {}
    for method in METHODS:
        values = [mean_of(results, kind_of(rate, method), "last") for rate in rates]
        known = [value for value in values if value is not None]
        if len(known) == len(rates) > 1:
            means[method] = sum(known) / len(known)
    return means


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """Last accuracy over the noise rate and its distance from CCE's, by method; the estimated over the true rate."""
    drawn = {name: _drawn(under(results, protocol)) for name, protocol in (("rates", ""), ("long", LONG))}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _drawn(results: Mapping[str, Any]) -> "Figure | None":
    from hardsight.report.canvas import FAINT, INK, RED, drawing
    from hardsight_studies.gr.curves import STYLES

    if not results["choices"]:
        return None
    methods = ("cce", AUTO, "gce", "sl", gr(8, 0.5), AUTO_BOUNDED, AUTO_AS_PRINTED)
    cce = {rate: mean_of(results, kind_of(rate, "cce"), "last") for rate in RATES}
    with drawing(11.0, 3.6, panels=3, columns=3) as figure:
        whole, beside, estimated = figure.axes
        for method, style in zip(methods, STYLES, strict=False):
            last = {rate: mean_of(results, kind_of(rate, method), "last") for rate in RATES}
            points = [(100 * rate, value) for rate, value in last.items() if value is not None]
            apart = [
                (100 * rate, value - base)
                for rate, value in last.items()
                if value is not None and (base := cce[rate]) is not None
            ]
            for axes, known in ((whole, points), (beside, apart)):
                if known:
                    axes.plot(*zip(*known, strict=True), label=method_title(method), marker="o", markersize=3, **style)
        # Differences of one point vanish beside the fall at 80 %: a second panel has them alone.
        whole.set_ylabel("last test accuracy (%)")
        beside.set_ylabel("last test accuracy less CCE's (points)")
        whole.legend(fontsize=7)
        estimated.plot([0, 100], [0, 100], color=FAINT)
        for rate in RATES:
            choice = results["choices"].get(kind_of(rate, AUTO))
            for value in choice["rate"]["values"] if choice else ():
                estimated.plot(100 * rate, 100 * value, "o", color=RED, markeredgecolor=INK, markersize=5)
        estimated.set_ylabel("noise rate that auto estimated (%)")
        for axes in (whole, beside, estimated):
            axes.set_xlabel("noise rate (%)")
    return figure


ABOUT = f"""Can gradient rescaling choose its two knobs by itself, without a clean label, and is that worth it?
`loss.options = {{ beta = "auto", lam = "auto" }}` is compared with cross-entropy, with two other losses made for wrong
labels and with settings that a person could have fixed, from no noise to 80 %.

{terms(CCE, GR, ROBUST, NOISE)}

What auto does: its weights are β p^λ (1 − p) with β = 2 + 2λ, divided by the number of samples. λ = 0 is CCE and λ = 1
MAE, the mean absolute error, both members of GR's family (Eq. 7). It starts with λ = 1/2, which the paper fixes where
the noise is unknown, and after up to ten epochs (a third of a short training) estimates the noise rate from the labels
that contradict the network where it is surest. Below 10 % it goes on as CCE. Else λ rises to 1 as soon as ten epochs
are over and the network recognises more than half of the images. The rule was chosen on USPS and scikit-learn's digits
([numbers](../training.md#gradient-rescaling-that-chooses-its-knobs)), not on the images of this page.

Two former rules were judged before. Both train with CCE until the rate is known and then take the paper's best β and λ
for it: "settings as printed" without bounds and without letting go of fitted samples, "settings within bounds" with λ
at most 1/2, β at most the limit above which GR rules classes out ([gr-protocol](gr-protocol.md)), and CCE where
λ/(1 + λ) lies above 1 − noise rate.

How it was trained: all methods alike, by SGD with weight decay 5e-4, the rate divided by ten after 1/2 and 11/15 of the
training, gradients of norm 1 at most. The fixed settings and those within bounds let go of fitted samples as the
authors' code does (epsilon 1e-6)."""

AUTO_KNOBS = Study(
    id="gr-auto",
    title="gradient rescaling that chooses its own knobs",
    about=ABOUT,
    reference="GR Tables 2 and 3 (the rule); no paper has the comparison",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 2, "cpu": 1, "paper": 8},
    figures=figures,
    entries=KINDS.beside("choices"),
)
