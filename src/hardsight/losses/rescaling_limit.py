"""How large beta of gradient rescaling may be before it rules classes out instead of learning them.

Take a network that knows no more of an image than that it shows one of K classes: it gives each of them p = 1/K, and
each comes equally often as the label. GR moves the logits by a_c - p_c sum_j a_j with a = w(p) / (1 - p). Equal
probabilities are a resting place, but a stable one only while a'/a < K there; with w = exp(beta p^lam (1 - p)) that is
beta < `critical_beta(lam, K)`. Above it, a class that is a little less probable than the others is pulled less and
becomes less probable still, whatever the images show. Training starts with all classes as candidates (K = C) and passes
through fewer. Cross-entropy and GCE (q < 1) are stable for every K, MAE is exactly neutral: GR above its limit is past
MAE, whose slowness is known. A learning rate, a divisor or a clipping changes the pace of this, not its direction.
"""

import math

from hardsight.losses.inputs import check_range

# Beyond it the exponential of a float is infinite.
_LARGEST_LOG = 700.0


def critical_beta(lam: int | float, candidates: int) -> float:
    """K^(lam + 1) (K - 2) / ((K - 1) (lam (K - 1) - 1)): above it, equal probabilities of K classes are unstable.

    Infinite where lam <= 1 / (K - 1): the weight then falls with the probability.

    >>> round(critical_beta(1, 10), 1), round(critical_beta(0.5, 10), 1), round(critical_beta(0.5, 100), 1)
    (11.1, 8.0, 20.4)
    """
    check_range(lam, "lam", 0.0)
    check_range(candidates, "candidates", 2.0)
    steepness = lam * (candidates - 1) - 1
    if steepness <= 0 or (lam + 1) * math.log(candidates) > _LARGEST_LOG:
        return math.inf
    return candidates ** (lam + 1) * (candidates - 2) / ((candidates - 1) * steepness)


def largest_beta(lam: int | float, classes: int) -> float:
    """The smallest `critical_beta` of any number of candidates, from three to all classes; infinite for two classes.

    Not of two: between two, ruling one out is the decision itself.

    >>> [round(largest_beta(lam, 10), 1) for lam in (0.3, 0.5, 1, 2)]
    [10.4, 7.7, 4.5, 4.5]
    """
    check_range(lam, "lam", 0.0)
    check_range(classes, "classes", 2.0)
    return min((critical_beta(lam, candidates) for candidates in range(3, classes + 1)), default=math.inf)
