"""Which samples gradient rescaling emphasises: weight curves (GR, Figure 1), focus, spread, and the largest beta.

Above `largest_beta` it rules classes out instead of learning them. Take a network that knows no more of an image than
that it shows one of K classes: it gives each of them p = 1/K, and each comes equally often as the label. GR moves the
logits by a_c - p_c sum_j a_j with a = w(p) / (1 - p). Equal probabilities are a fixed point, but a stable one only
while a'/a < K there; with w = exp(beta p^lam (1 - p)) that is beta < `critical_beta(lam, K)`. Above it, a class that is
a little less probable than the others is pulled less and becomes less probable still, whatever the images show.
Training starts with all classes as candidates (K = C) and passes through fewer. Cross-entropy and GCE (q < 1) are
stable for every K, MAE is exactly neutral: GR above its limit is past MAE, whose slowness is known. A learning rate, a
divisor or a clipping changes the pace of this, not its direction.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.losses.inputs import check_floating, check_range
from hardsight.losses.rescaled_rows import Transform, check_rescaling, log_weight

_GRID = 4097


def weight_curve(
    probability: Float[Tensor, "*shape"], beta: float = 6.0, lam: float = 0.5, transform: Transform = "exp"
) -> Float[Tensor, "*shape"]:
    """GR's weight g(beta p^lam (1 - p)) of a sample whose label has probability p.

    Identity transform: (2, 0) is the curve of CE, 2(1-p); (4, 1) that of MAE, 4p(1-p); (2, q) that of GCE,
    2 p^q (1-p), for which the paper's Eq. 7 prints beta = 1.
    """
    check_rescaling(beta, lam, transform)
    check_floating(probability, "probability")
    return log_weight(probability.log(), torch.log1p(-probability), beta, lam, transform).exp()


def emphasis_focus(beta: float = 6.0, lam: float = 0.5, transform: Transform = "exp") -> float:
    """The probability with the largest weight, in [0, 1]: lam / (1 + lam), or found numerically for a callable.

    Any increasing transform has the closed form's focus; a callable need not be increasing. Where several
    probabilities share the largest weight, the smallest.
    """
    check_rescaling(beta, lam, transform)
    check_range(beta, "beta", 0.0, open_low=True)
    if isinstance(transform, str):
        return lam / (1 + lam)
    from scipy.optimize import minimize_scalar  # here, because importing it takes longer than the rest of this package

    def negative_weight(probability: float) -> float:
        return -float(weight_curve(torch.tensor(probability, dtype=torch.float64), beta, lam, transform))

    grid = torch.linspace(0, 1, _GRID, dtype=torch.float64)
    weights = weight_curve(grid, beta, lam, transform)
    best = int(weights.argmax())
    low, high = grid[max(0, best - 1)].item(), grid[min(_GRID - 1, best + 1)].item()
    found = minimize_scalar(negative_weight, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    # The bounded search never visits its ends, where a monotone curve has its maximum.
    return float(found.x) if -found.fun > weights[best] else float(grid[best])


def emphasis_spread(weights: Float[Tensor, "samples"]) -> Float[Tensor, ""]:
    """Variance of the weights over the samples (divided by their number); 0 when all are treated alike."""
    return weights.var(correction=0)


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
    found: float = candidates ** (lam + 1) * (candidates - 2) / ((candidates - 1) * steepness)
    return found


def largest_beta(lam: int | float, classes: int) -> float:
    """The smallest `critical_beta` of any number of candidates, from three to all classes; infinite for two classes.

    Not of two: between two, ruling one out is the decision itself.

    >>> [round(largest_beta(lam, 10), 1) for lam in (0.3, 0.5, 1, 2)]
    [10.4, 7.7, 4.5, 4.5]
    """
    check_range(lam, "lam", 0.0)
    check_range(classes, "classes", 2.0)
    return min((critical_beta(lam, candidates) for candidates in range(3, classes + 1)), default=math.inf)
