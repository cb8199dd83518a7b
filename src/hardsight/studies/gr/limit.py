"""How large beta may be before GR rules classes out instead of learning them: derived, and set beside measurements.

Take a network that knows no more of an image than that it shows one of K classes: it gives each of them p = 1/K, and
each comes equally often as the label. GR moves the logits by a_c - p_c sum_j a_j with a = w(p) / (1 - p). Equal
probabilities are a resting place, but a stable one only while a'/a < K there; with w = exp(beta p^lam (1 - p)) that is
beta < `critical_beta(lam, K)`. Above it, a class that is a little less probable than the others is pulled less and
becomes less probable still, whatever the images show. Training starts with all classes as candidates (K = C) and passes
through fewer. Cross-entropy and GCE (q < 1) are stable for every K, MAE is exactly neutral: GR above its limit is past
MAE, whose slowness is known. A learning rate, a divisor or a clipping changes the pace of this, not its direction.
"""

import math
from collections.abc import Mapping
from typing import Any

from hardsight.alignment import correlate
from hardsight.studies.framework import markdown_table
from hardsight.studies.gr.emphasis import CLASSES
from hardsight.studies.gr.trainings import knobs, mean_of, shown_accuracy, shown_classes, title_of

# Fewer settings than this have no order worth a number.
_ENOUGH = 4


def critical_beta(lam: int | float, candidates: int) -> float:
    """K^(lam + 1) (K - 2) / ((K - 1) (lam (K - 1) - 1)): above it, equal probabilities of K classes are unstable.

    Infinite where lam <= 1 / (K - 1): the weight then falls with the probability.

    >>> round(critical_beta(1, 10), 1), round(critical_beta(0.5, 10), 1), round(critical_beta(0.5, 100), 1)
    (11.1, 8.0, 20.4)
    """
    steepness = lam * (candidates - 1) - 1
    if steepness <= 0:
        return math.inf
    return candidates ** (lam + 1) * (candidates - 2) / ((candidates - 1) * steepness)


def largest_beta(lam: int | float, classes: int) -> float:
    """The smallest `critical_beta` of any number of candidates, from three to all classes.

    Not of two: between two, ruling one out is the decision itself.

    >>> [round(largest_beta(lam, 10), 1) for lam in (0.3, 0.5, 1, 2)]
    [10.4, 7.7, 4.5, 4.5]
    """
    return min(critical_beta(lam, candidates) for candidates in range(3, classes + 1))


def _shares(method: str) -> tuple[float, float]:
    """Beta over its limit at the start, and over its smallest limit, of a GR method's name, for ten classes."""
    both = knobs(method)
    assert both is not None
    beta, lam = both
    return beta / critical_beta(lam, CLASSES), beta / largest_beta(lam, CLASSES)


def limits(results: Mapping[str, Any], methods: Mapping[str, str]) -> str:
    """Settings by how far beta lies above its limit, with what they ended at and how many classes they learnt.

    `methods`: the kind of cell of each GR method that is planned.
    """
    order = sorted(methods, key=lambda method: _shares(method)[1])
    rows = [
        [
            title_of(method),
            *(f"{share:.2f}" for share in _shares(method)),
            shown_accuracy(results, methods[method], "last") or "–",
            shown_classes(results, methods[method]),
        ]
        for method in order
    ]
    heads = ["setting", "β over its limit at the start", "over its smallest limit", "last test", "classes learnt"]
    parts = [markdown_table(heads, rows), _order(results, methods)]
    return "\n\n".join(part for part in parts if part)


def _order(results: Mapping[str, Any], methods: Mapping[str, str]) -> str:
    """Whether the settings farther above their limit end lower."""
    found = {method: mean_of(results, key, "last") for method, key in methods.items()}
    ends = {method: value for method, value in found.items() if value is not None}
    if len(ends) < _ENOUGH:
        return ""
    shares = [_shares(method)[1] for method in ends]
    order = correlate(shares, [*ends.values()], method="spearman")
    return (
        f"Rank correlation over these {len(ends)} settings of β over its smallest limit with the last accuracy: "
        f"{order.coefficient:+.2f}."
    )
