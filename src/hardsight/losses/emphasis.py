"""Which samples a supervision emphasises: weight curves (GR, Figure 1), emphasis focus and emphasis spread."""

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.losses.inputs import check_floating, check_range
from hardsight.losses.rescaling import Transform, check_rescaling, log_weight

_GRID = 4097


def weight_curve(
    probability: Float[Tensor, "*shape"], beta: float = 6.0, lam: float = 0.5, transform: Transform = "exp"
) -> Float[Tensor, "*shape"]:
    """GR's weight g(beta p^lam (1 - p)) of a sample whose label has probability p.

    Identity transform: (2, 0) is the curve of CCE, 2(1-p); (4, 1) that of MAE, 4p(1-p); (2, q) that of GCE,
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
    from scipy.optimize import minimize_scalar  # here, because importing it takes longer than the rest of this room

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
