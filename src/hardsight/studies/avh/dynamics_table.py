"""The training dynamics in words and numbers: a row a network, then each observation of the paper as a sentence."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardsight.alignment.coefficients import COEFFICIENTS
from hardsight.studies.avh.people import TITLES
from hardsight.studies.framework import markdown_table, provenance, shown
from hardsight.studies.wording import listed, plural, training_images


def dynamics_table(results: Mapping[str, Any]) -> str:
    """The paper's observations, measured; when AVH settles, and what norm and accuracy do then."""
    networks = [Measured(name, one) for name, one in results["networks"].items()]
    asked = [one for one in networks if one.asked]
    said = [norm_grows(networks), plateau_first(networks), tells_apart(asked) if asked else ""]
    said += [better_is_lower(networks), two_phases(networks)]
    parts = ["**Result.** The paper makes these observations about training; this is what became of each here."]
    parts += ["\n".join(f"- {one}" for one in said if one)]
    parts += [f"{provenance(results)} {_trained_on(results['settings'])}", _LEGEND, _phases_table(networks)]
    parts += [_GROUPS_LEGEND, _groups_table(asked)] if asked else []
    return "\n\n".join([*parts, _limits(networks)]) + "\n"


_LEGEND = """**How to read the table.** One row for each network, over all test images. Times are epochs.

- `AVH settled at`, `accuracy settled at`: the first epoch from which the curve stays within a tenth of its whole range
  of its last value (it has reached its *plateau*).
- `AVH's knot`: where the two pieces meet of the broken line that fits AVH's curve best.
- `best accuracy at`, `best accuracy`, `accuracy when AVH settled`: accuracy on the test images.
- `norm growth`: how much the mean norm changes from the first epoch to the last; `norm growth after AVH settled`: from
  that epoch to the last.
- `mean AVH at the end`: after the last epoch."""
_GROUPS_LEGEND = """**Easy and hard images for people.** The images are put into five bins by human selection frequency.

- `epochs with the bins in order of AVH`, `of norm`: the share of epochs after which the means of the five bins stand in
  people's order.
- `norm of the easiest bin over the hardest`: by how much the mean norm of the easiest bin exceeds that of the hardest
  after the last epoch.
- `ρ of ...`: Spearman's ρ between human selection frequency and a score, after the first and the last epoch. AVH's
  is turned, so that positive is agreement for all three."""


def _trained_on(settings: Mapping[str, Any]) -> str:
    """On which images, where all networks do not see the same at how many pixels, and how many of them are degraded."""
    data = settings["data"]
    small = [one for one in settings["networks"] if one["shrink"] > 1]
    fewer = f" ({listed([TITLES.get(one['name'], one['name']) for one in small])}: fewer pixels)" if small else ""
    return (
        f"Trained on {training_images(data.get('limit'))} of `{data['name']}`{fewer}; {settings['degraded']:,} test "
        "images are degraded."
    )


# Seeds of one network differ by as much in accuracy (`avh-table1`): by up to 1.2 points, of ResNet-56 by 2.5.
CLOSE = 0.01
# A large AVH is hard, a large confidence or norm easy, and a large frequency of people easy.
_TURN = {"avh": -1, "confidence": 1, "norm": 1}


class Measured:
    """One network's measures: `one["plateau"]` is the mean over seeds, NaN where there is none; `row` names both."""

    def __init__(self, name: str, found: Mapping[str, Any]) -> None:
        self.title = TITLES.get(name, name)
        self.row = f"{self.title} ({plural(found['seeds'], 'seed')})"
        self.seeds = found["seeds"]
        self.epochs, self.shortcuts, self.numbers = found["epochs"], found["shortcuts"], found["measures"]
        self.rho = found["rho"]

    def __getitem__(self, key: str) -> float:
        number = self.numbers.get(key)
        return math.nan if number is None else number["mean"]

    @property
    def asked(self) -> bool:
        """Whether people were asked about its images."""
        return "avh_rho_last" in self.numbers

    def agreement(self, score: str) -> list[float]:
        """The rank correlation of a score with people after each epoch, AVH's turned: positive is agreement."""
        return [_TURN[score] * value for value in self.rho[score] if value is not None]

    def span(self, score: str) -> str:
        """The lowest and highest of them."""
        found = self.agreement(score)
        return f"{min(found):+.3f} to {max(found):+.3f}".replace("-", "−") if found else "unknown"


def _phases_table(networks: Sequence[Measured]) -> str:
    heads = (
        "network", "epochs", "AVH settled at", "AVH's knot", "accuracy settled at", "best accuracy at", "best accuracy",
        "accuracy when AVH settled", "norm growth", "norm growth after AVH settled", "mean AVH at the end",
    )  # fmt: skip
    times = ("plateau", "knot", "accuracy_settled", "best_time")
    rows = []
    for one in networks:
        of = one.numbers
        cells = [one.row, str(one.epochs), *(_epoch(of[key]) for key in times)]
        cells += [shown(of["best_accuracy"]), shown(of["accuracy_at_plateau"])]
        cells += [_percent(of["norm_growth"]), _percent(of["norm_growth_after"]), _avh(of["avh_last"])]
        rows.append(cells)
    return markdown_table(heads, rows)


def _groups_table(networks: Sequence[Measured]) -> str:
    """How the bins of human frequency stand to each other."""
    heads = (
        "network", "epochs with the bins in order of AVH", "of norm", "norm of the easiest bin over the hardest",
        "ρ of AVH (turned), first epoch", "last", "ρ of confidence, first epoch", "last", "ρ of norm, first epoch",
        "last",
    )  # fmt: skip
    rows = []
    for one in networks:
        of = one.numbers
        shares = [_percent(of[key]) for key in ("human_avh_ordered", "human_norm_ordered", "human_norm_gap")]
        rho = [(of[f"{score}_rho_{when}"], turn) for score, turn in _TURN.items() for when in ("first", "last")]
        turned = [number and {**number, "mean": turn * number["mean"]} for number, turn in rho]
        rows.append([one.row, *shares, *map(shown, turned)])
    return markdown_table(heads, rows)


def _limits(networks: Sequence[Measured]) -> str:
    """How many seeds and epochs stand behind the numbers."""
    fewest, longest = min(one.seeds for one in networks), max(one.epochs for one in networks)
    seeds = f"Each network has {fewest} seeds or more."
    once = "Each network is trained once, so another seed may change an epoch or an order."
    return (
        "**What one may conclude.** The paper observes this on ImageNet, over 90 epochs; here the images are smaller, "
        f"and a training has at most {plural(longest, 'epoch')}. {once if fewest == 1 else seeds} When a curve has "
        "settled depends on the rule that says so, and on the schedule, whose learning rate falls after each third of "
        "the epochs."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Each observation begins with what became of it here.


def norm_grows(networks: Sequence[Measured]) -> str:
    """Observation 1."""
    grown = sum(one["norm_growth"] > 0 for one in networks)
    texts = [f"{one.title} {one['norm_growth']:+.0%} (up in {one['norm_rises']:.0%} of the steps)" for one in networks]
    sentence = (
        f"**Observation 1** (the norm keeps growing during training): it grows in {grown} of "
        f"{plural(len(networks), 'network')}. From the first to the last epoch the mean norm changes by "
        f"{listed(texts)}."
    )
    gaps = [
        f"{one.title} {one['human_norm_gap']:+.0%}{' (shortcuts)' if one.shortcuts else ''}"
        for one in networks
        if math.isfinite(one["human_norm_gap"])
    ]
    if not gaps:
        return sentence
    return (
        f"{sentence} The paper finds that the norms of easy and hard images come together in networks with shortcuts "
        "and stay apart in others. Here, at the end, the mean norm of the images that are easiest for people exceeds "
        f"that of the hardest by {listed(gaps)}."
    )


def plateau_first(networks: Sequence[Measured]) -> str:
    """Observation 2."""
    texts = []
    for one in networks:
        gain = 100 * (one["best_accuracy"] - one["accuracy_at_plateau"])
        best = f"best accuracy at {one['best_time']:.0f}, {gain:.1f} points higher"
        texts.append(f"{one.title} at epoch {one['plateau']:.0f} of {one.epochs} ({best})")
    early = sum(one["plateau"] < one["best_time"] for one in networks)
    sooner = sum(one["plateau"] < one["accuracy_settled"] for one in networks)
    return (
        "**Observation 2** (AVH reaches a plateau early, while accuracy still improves): AVH settles before the best "
        f"accuracy in {early} of {plural(len(networks), 'network')}. By the same rule accuracy itself "
        f"settles later than AVH in {sooner}. AVH settles for {listed(texts)}."
    )


def tells_apart(networks: Sequence[Measured]) -> str:
    """Observation 3."""
    texts = [
        f"{one.title} {one.span('avh')} (confidence {one.span('confidence')}, norm {one.span('norm')})"
        for one in networks
    ]
    ordered = [f"{one.title} {one['human_avh_ordered']:.0%}" for one in networks]
    always = sum(min(one.agreement("avh"), default=-1.0) > 0 for one in networks)
    ahead = sum(-one["avh_rho_mean"] > one["confidence_rho_mean"] for one in networks)
    return (
        "**Observation 3** (AVH follows people throughout training). This is about Spearman's ρ with human selection "
        f"frequency, turned so that positive is agreement. AVH's is positive after every epoch in {always} of "
        f"{plural(len(networks), 'network')}, and ahead of confidence's on average in {ahead}. Over the epochs it lies "
        f"at {listed(texts, '; ')}. Five bins of images stand in people's order by mean AVH in this share of the "
        f"epochs: {listed(ordered)}."
    )


def better_is_lower(networks: Sequence[Measured]) -> str:
    """Observation 4."""
    ranked = sorted(networks, key=lambda one: -one["last_accuracy"])
    order = [f"{one.title} ({one['last_accuracy']:.3f}, AVH {one['avh_last']:.3g})" for one in ranked]
    sentence = f"**Observation 4** (better networks have lower mean AVH): by accuracy, best first, {listed(order)}."
    if len(networks) < 3:
        return f"{sentence} {plural(len(networks), 'network')} cannot test an order."
    accuracy, last, mean = (
        np.array([one[name] for one in ranked]) for name in ("last_accuracy", "avh_last", "avh_mean")
    )
    at_end, over = (COEFFICIENTS["spearman"](accuracy, values) for values in (last, mean))
    return (
        f"{sentence} The rank correlation of accuracy with mean AVH over the {len(networks)} networks is {at_end:+.2f} "
        f"at the end and {over:+.2f} for AVH averaged over training: {_order(ranked)}."
    )


def _order(ranked: Sequence[Measured]) -> str:
    """Whether AVH rises from the best network to the worst, asked of those that their accuracies tell apart."""
    pairs = list(itertools.combinations(ranked, 2))
    apart = [pair for pair in pairs if _apart(*pair)]
    close = ", ".join(f"{better.title} and {worse.title}" for better, worse in pairs if not _apart(better, worse))
    undecided = close and f"; {close} are less than a point apart, and another seed may change places"
    if not apart:
        return "no two networks are a point apart in accuracy, and another seed may order them otherwise"
    if not all(better["avh_last"] < worse["avh_last"] for better, worse in apart):
        return f"it does not hold as a strict order{undecided}"
    if undecided:
        return f"it holds in the {plural(len(apart), 'pair')} of networks a point or more apart in accuracy{undecided}"
    return f"it holds, as one order in {math.factorial(len(ranked)):,} does by chance"


def _apart(better: Measured, worse: Measured) -> bool:
    return better["last_accuracy"] - worse["last_accuracy"] >= CLOSE


def two_phases(networks: Sequence[Measured]) -> str:
    """The conjecture: first the angles, then the norm."""
    keys = ("avh_rate_before", "avh_rate_after", "norm_rate_before", "norm_rate_after")
    known = [one for one in networks if all(math.isfinite(one[key]) for key in keys)]
    if not known:
        return ""
    texts, held = [], 0
    for one in known:
        turning, later, growing, after = (100 * one[key] for key in keys)
        held += abs(later) < abs(turning) and after > max(growing, 0)
        texts.append(f"{one.title} AVH {turning:+.1f} % then {later:+.1f} %, norm {growing:+.1f} % then {after:+.1f} %")
    return (
        "**Conjecture of two phases** (first the angles turn while the norm hardly grows, then the angles stand still "
        f"and the norm grows fast): AVH slows down and the norm speeds up in {held} of "
        f"{plural(len(known), 'network')}. Change per epoch, before AVH has settled and after: {listed(texts, '; ')}."
    )


def _epoch(number: Mapping[str, Any] | None) -> str:
    if number is None:
        return ""
    return f"{number['mean']:.1f} ± {number['sd']:.1f}" if number["sd"] is not None else f"{number['mean']:.0f}"


def _avh(number: Mapping[str, Any]) -> str:
    """Three significant digits: of a hundred classes it is about 0.01."""
    return f"{number['mean']:.3g}" + (f" ± {number['sd']:.2g}" if number["sd"] is not None else "")


def _percent(number: Mapping[str, Any] | None) -> str:
    if number is None:
        return ""
    return f"{100 * number['mean']:.0f}" + (f" ± {100 * number['sd']:.0f}" if number["sd"] is not None else "") + " %"
