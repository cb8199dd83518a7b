"""The training dynamics in words and numbers: a row a network, then each observation of the paper as a sentence."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardsight.alignment.correlation import COEFFICIENTS
from hardsight_studies.avh.people import TITLES
from hardsight_studies.framework import markdown_table, provenance, shown
from hardsight_studies.wording import listed, plural, training_images


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
    parts += [_DETAILS_LEGEND, _details_table(networks, people=bool(asked))]
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
# Change per epoch, before AVH has settled and after.
_RATES = ("avh_rate_before", "avh_rate_after", "norm_rate_before", "norm_rate_after")
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
        found = self.agreement(score) if score in self.rho else []
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


def _details_table(networks: Sequence[Measured], *, people: bool) -> str:
    """What the observations rest on beside the other tables."""
    spans = {"avh": "ρ of AVH", "confidence": "ρ of confidence", "norm": "ρ of norm"} if people else {}
    heads = [
        "network",
        "norm rises in",
        *spans.values(),
        "AVH per epoch, before",
        "after",
        "norm per epoch, before",
        "after",
    ]
    rows = [
        [
            one.row,
            f"{one['norm_rises']:.0%}",
            *(one.span(score) if one.asked else "" for score in spans),
            *(_rate(one[key]) for key in _RATES),
        ]
        for one in networks
    ]
    return markdown_table(heads, rows)


def _rate(value: float) -> str:
    return f"{100 * value:+.1f} %" if math.isfinite(value) else ""


_DETAILS_LEGEND = """**What else the observations rest on.** `norm rises in` is the share of the steps from epoch to
epoch in which the mean norm grows. The columns `ρ`, where they are shown, hold the lowest and the highest ρ of a
score with people over the epochs. `per epoch` is the mean change of AVH or norm per epoch, before AVH has settled
and after."""


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
    said = (
        "**Observation 1** (the norm keeps growing during training): it grows in "
        f"{grown} of {plural(len(networks), 'network')}."
    )
    gaps = {
        kind: [
            one["human_norm_gap"] for one in networks if one.shortcuts is has and math.isfinite(one["human_norm_gap"])
        ]
        for kind, has in (("with shortcuts", True), ("without", False))
    }
    texts = [f"{_span(found)} {kind}" for kind, found in gaps.items() if found]
    if not texts:
        return said
    return (
        f"{said} The paper finds that the norms of easy and hard images come together in networks with shortcuts and "
        "stay apart in others. Here, at the end, the images that are easiest for people have a larger norm than the "
        f"hardest by {listed(texts)}."
    )


def _span(values: Sequence[float]) -> str:
    """`21 to 25 %`."""
    low, high = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def plateau_first(networks: Sequence[Measured]) -> str:
    """Observation 2."""
    gains = [100 * (one["best_accuracy"] - one["accuracy_at_plateau"]) for one in networks]
    early = sum(one["plateau"] < one["best_time"] for one in networks)
    sooner = sum(one["plateau"] < one["accuracy_settled"] for one in networks)
    gained = f"{min(gains):.1f} to {max(gains):.1f}" if len(gains) > 1 else f"{gains[0]:.1f}"
    return (
        "**Observation 2** (AVH reaches a plateau early, while accuracy still improves): AVH settles before the best "
        f"accuracy in {early} of {plural(len(networks), 'network')}, and the best accuracy is {gained} points above "
        f"that when AVH settled. By the same rule accuracy itself settles later than AVH in {sooner} of them."
    )


def tells_apart(networks: Sequence[Measured]) -> str:
    """Observation 3."""
    always = sum(min(one.agreement("avh"), default=-1.0) > 0 for one in networks)
    ahead = sum(-one["avh_rho_mean"] > one["confidence_rho_mean"] for one in networks)
    return (
        "**Observation 3** (AVH follows people throughout training): its Spearman's ρ with human selection frequency, "
        f"turned so that positive is agreement, is positive after every epoch in {always} of "
        f"{plural(len(networks), 'network')}. On average over the epochs it leads confidence in {ahead} of them."
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
    known = [one for one in networks if all(math.isfinite(one[key]) for key in _RATES)]
    if not known:
        return ""
    held = 0
    for one in known:
        turning, later, growing, after = (one[key] for key in _RATES)
        held += abs(later) < abs(turning) and after > max(growing, 0)
    return (
        "**Conjecture of two phases** (first the angles turn while the norm hardly grows, then the angles stand still "
        f"and the norm grows fast): AVH slows down and the norm speeds up in {held} of "
        f"{plural(len(known), 'network')}."
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
