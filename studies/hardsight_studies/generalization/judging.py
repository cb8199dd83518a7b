"""From the records of trainings that left a domain out to accuracies, chosen scales, and paired differences."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy import stats

from hardsight.training import Cell
from hardsight_studies.framework import finished_cells, run_details, spread
from hardsight_studies.wording import listed, plural

AVERAGE = "average"


class Outcome(NamedTuple):
    """One finished training: accuracies are percentages."""

    begin: str
    method: str
    scale: float | None
    held_out: str
    seed: int
    test: float
    validation: float


def read_outcomes(cells: Sequence[Cell], folder: Path) -> list[Outcome]:
    """What the finished cells measured."""
    found = []
    for cell in finished_cells(folder, cells):
        of, results = cell.settings, run_details(folder / cell.name)["results"]
        found.append(
            Outcome(
                of["begin"], of["method"], of.get("scale"), of["held_out"], of["seed"],
                100 * results["test_accuracy"], 100 * results["validation_accuracy"],
            )
        )  # fmt: skip
    return found


def with_all_scales(outcomes: Sequence[Outcome], cells: Sequence[Cell]) -> list[Outcome]:
    """Those whose scales are all finished: the best of some of them would be another choice than the planned one."""
    planned = Counter((of["begin"], of["method"], of["held_out"], of["seed"]) for of in (one.settings for one in cells))
    there = Counter((one.begin, one.method, one.held_out, one.seed) for one in outcomes)
    whole = {key for key, count in there.items() if count == planned[key]}
    return [one for one in outcomes if (one.begin, one.method, one.held_out, one.seed) in whole]


def choose_scales(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Of trainings that differ in their scale alone, the one of best validation accuracy, the first of equals."""
    best: dict[tuple[str, str, str, int], Outcome] = {}
    for one in outcomes:
        key = (one.begin, one.method, one.held_out, one.seed)
        if key not in best or one.validation > best[key].validation:
            best[key] = one
    return list(best.values())


def judge_cells(cells: Sequence[Cell], folder: Path, domains: Sequence[str]) -> dict[str, Any]:
    """Accuracy (%) by beginning, method and domain; the same of every scale; AVH loss minus cross-entropy."""
    outcomes = with_all_scales(read_outcomes(cells, folder), cells)
    chosen = choose_scales(outcomes)
    begins = list(dict.fromkeys(one.begin for one in outcomes))
    of_begin = {begin: [one for one in chosen if one.begin == begin] for begin in begins}
    return {
        "accuracy": {begin: _by_method(of_begin[begin], domains) for begin in begins},
        "difference": {
            begin: found for begin in begins if (found := paired_difference(of_begin[begin], domains)) is not None
        },
        "scales": {
            begin: _by_scale([one for one in outcomes if one.begin == begin and one.scale is not None])
            for begin in begins
        },
        "chosen_scales": {
            begin: {
                domain: [one.scale for one in of_begin[begin] if one.held_out == domain and one.scale is not None]
                for domain in domains
            }
            for begin in begins
        },
    }


def cells_behind(found: Mapping[str, Any]) -> int:
    """How many cells the numbers of a beginning rest on: each of the AVH loss was chosen among all scales."""
    scales = len(found["scales"])
    return sum(
        len(one["values"]) * (scales if method == "avh" else 1)
        for method, row in found["accuracy"].items()
        for domain, one in row.items()
        if domain != AVERAGE
    )


def _by_method(outcomes: Sequence[Outcome], domains: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method in dict.fromkeys(one.method for one in outcomes):
        values = {(one.held_out, one.seed): one.test for one in outcomes if one.method == method}
        seeds = sorted({seed for _, seed in values})
        row = {domain: [values[domain, seed] for seed in seeds if (domain, seed) in values] for domain in domains}
        whole = [seed for seed in seeds if all((domain, seed) in values for domain in domains)]
        row[AVERAGE] = [statistics.fmean(values[domain, seed] for domain in domains) for seed in whole]
        found[method] = {domain: spread(numbers) for domain, numbers in row.items() if numbers}
    return found


def _by_scale(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Mean over domains and seeds of the validation and test accuracy of each scale."""
    scales = sorted({one.scale for one in outcomes if one.scale is not None})
    return {
        f"{scale:g}": {
            "validation": round(statistics.fmean(one.validation for one in outcomes if one.scale == scale), 2),
            "test": round(statistics.fmean(one.test for one in outcomes if one.scale == scale), 2),
        }
        for scale in scales
    }


def paired_difference(
    outcomes: Sequence[Outcome],
    domains: Sequence[str],
    methods: tuple[str, str] = ("avh", "cross_entropy"),
    level: float = 0.95,
) -> dict[str, Any] | None:
    """Mean over domains of the first method minus the second, paired by seed, with its t interval.

    The variance of the mean is the sum of the domains' variances over their numbers of seeds, over the squared number
    of domains; its degrees of freedom are Satterthwaite's. None where a domain has no pair; no interval where a domain
    has one pair only.
    """
    by_domain: dict[str, list[float]] = {}
    for domain in domains:
        first, second = (
            {one.seed: one.test for one in outcomes if one.method == method and one.held_out == domain}
            for method in methods
        )
        by_domain[domain] = [first[seed] - second[seed] for seed in sorted(first) if seed in second]
    if not all(by_domain.values()):
        return None
    mean = statistics.fmean(statistics.fmean(values) for values in by_domain.values())
    low, high = _interval(mean, list(by_domain.values()), level)
    return {
        "mean": round(mean, 2),
        "low": None if low is None else round(low, 2),
        "high": None if high is None else round(high, 2),
        "pairs": sum(map(len, by_domain.values())),
        "by_domain": {domain: round(statistics.fmean(values), 2) for domain, values in by_domain.items()},
    }


def _interval(mean: float, groups: Sequence[Sequence[float]], level: float) -> tuple[float | None, float | None]:
    if min(map(len, groups)) < 2:
        return None, None
    parts = [statistics.variance(values) / len(values) / len(groups) ** 2 for values in groups]
    if sum(parts) == 0:
        return mean, mean
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, groups, strict=True))
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(sum(parts))
    return mean - reach, mean + reach


def difference_sentence(found: Mapping[str, Any], begin: str) -> str:
    """The difference of one beginning in words."""
    inside = "" if found["low"] is None else f", 95 % interval {_signed(found['low'])} to {_signed(found['high'])}"
    domains = found["by_domain"]
    parts = listed([f"{name.replace('_', ' ')} {_signed(gap)}" for name, gap in domains.items()])
    return (
        f"`{begin}`: AVH loss minus cross-entropy is {_signed(found['mean'])} points ({found['pairs']} pairs of "
        f"trainings{inside}). It is above zero on {sum(gap > 0 for gap in domains.values())} of "
        f"{plural(len(domains), 'domain')} ({parts})."
    )


def result(differences: Mapping[str, Any], paper_gap: float) -> str:
    """In how many settings the AVH loss ends above cross-entropy, then each of them."""
    if not differences:
        return ""
    above = sum(found["mean"] > 0 for found in differences.values())
    lines = [f"- {difference_sentence(found, begin)}" for begin, found in differences.items()]
    return (
        "**Result.** On a domain that it never saw, a network trained with the AVH loss is more accurate on average "
        f"than one trained with cross-entropy in {above} of "
        f"{plural(len(differences), 'setting')}; the paper's gap is {_signed(paper_gap)} points.\n\n" + "\n".join(lines)
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
