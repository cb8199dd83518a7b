"""GR, Table 3 in numbers: what the paper prints, and ours by rate and method from the study's results."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hardsight_studies.gr.judged import kind_of, mean_of
from hardsight_studies.gr.trainings import gr, knobs

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


def best_in_paper(rate: float) -> str:
    """The GR setting with the best last accuracy in the paper."""
    return max((gr_ for r, gr_ in PAPER if r == rate and gr_ != "cce"), key=lambda name: PAPER[rate, name][1])


def measured(results: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Rates and methods that were measured or failed, in the order of the table."""
    names = {*results["accuracies"], *(name.rsplit(",seed=", 1)[0] for name in results["failed"])}
    parts = (name.removeprefix("rate=").split(",method=") for name in names)
    return sorted(((float(rate), method) for rate, method in parts), key=place)


def place(pair: tuple[float, str]) -> tuple[float, float, float]:
    """Where a rate and a method stand in the table."""
    return (pair[0], *_focus(pair[1]))


def _focus(method: str) -> tuple[float, float]:
    """CCE first, then all alike, then by focus and spread."""
    both = knobs(method)
    if both is None:
        return (-2.0, 0.0)
    return (-1.0, 0.0) if both[0] == 0 else (both[1], both[0])


class Ends(NamedTuple):
    """Last accuracies at one rate, in percent: of CCE, and of the best of the GR settings that were measured."""

    cce: float
    gr: float
    best: str
    settings: int


def ends(results: Mapping[str, Any], rate: float) -> Ends | None:
    """Where trainings end at a rate of noise; None where CCE or GR is not measured."""
    methods = [method for one, method in measured(results) if one == rate and method != "cce"]
    found = {method: mean_of(results, kind_of(rate, method), "last") for method in methods}
    last = {method: value for method, value in found.items() if value is not None}
    cce = mean_of(results, kind_of(rate, "cce"), "last")
    if not last or cce is None:
        return None
    best = max(last, key=lambda method: last[method])
    return Ends(cce, last[best], best, len(last))
