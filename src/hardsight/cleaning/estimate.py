"""How many samples are of the harder of two humps of a score, and whether there are two humps at all."""

from dataclasses import dataclass

import numpy as np
import torch

from hardsight.dynamics import small_loss_mixture

# Ashman's D: two normal components are told apart above it (Ashman, Bird & Zepf 1994).
SEPARATED = 2.0
# By how many standard errors both humps must rise above the emptiest place between them. A flat hump cut in half has a
# D of 3.5; asked for more than this, humps that overlap are not seen any more.
_RISES = 1.5
# Fewer different values than this are always in heaps: a score of 0 and 1 says nothing about two humps.
_FEWEST = 4


@dataclass(frozen=True)
class TwoHumps:
    """A mixture of two normals fitted to a hardness score; `upper` is each sample's probability of the harder one.

    `separation` is Ashman's D, the distance of the means over the root of the mean variance. `count` is how many
    samples are more probably of the harder hump, and 0 where the humps are not separated or no valley lies between
    them: a mixture always finds two components, and one hump, skewed or flat, must not be cut in two.
    """

    upper: np.ndarray
    separation: float
    count: int


def fit_two_humps(hardness: np.ndarray) -> TwoHumps:
    """`small_loss_mixture` of any hardness score, and how far its components are apart.

    Samples whose score is missing or infinite have `upper` NaN.
    """
    values = np.where(np.isfinite(hardness), hardness, np.nan)
    upper = small_loss_mixture(torch.from_numpy(values)).numpy()
    known = ~np.isnan(upper)
    separation = _separation(values[known], upper[known])
    apart = separation > SEPARATED and _has_valley(values[known], upper[known])
    return TwoHumps(upper, separation, int((upper[known] > 0.5).sum()) if apart else 0)


def _has_valley(values: np.ndarray, upper: np.ndarray) -> bool:
    """Whether fewer values lie somewhere between the components' means than towards either of them."""
    ordered = np.sort(values)
    low, high = np.average(values, weights=1 - upper), np.average(values, weights=upper)
    # Overlapping windows of a quarter of the way.
    places, reach = np.linspace(low, high, 17), (high - low) / 8
    counts = np.searchsorted(ordered, places + reach, "right") - np.searchsorted(ordered, places - reach, "left")
    emptiest = counts.argmin()
    least, side = counts[emptiest], min(counts[: emptiest + 1].max(), counts[emptiest:].max())
    return bool(side > least and side - least >= _RISES * np.sqrt(side + least))


def _separation(values: np.ndarray, upper: np.ndarray) -> float:
    shares = np.stack([1 - upper, upper])
    masses = shares.sum(1)
    if masses.min() <= 0 or len(np.unique(values)) < _FEWEST:
        return 0.0
    # Scaled, because the square of a large score may overflow and that of a small one vanish.
    values = (values - values.min()) / (values.max() - values.min())
    means = shares @ values / masses
    variances = (shares * (values - means[:, None]) ** 2).sum(1) / masses
    spread = np.sqrt(variances.mean())
    return float((means[1] - means[0]) / spread) if spread > 0 else np.inf
