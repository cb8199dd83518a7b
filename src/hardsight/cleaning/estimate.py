"""How many samples are of the harder of two humps of a score, and whether there are two humps at all."""

from dataclasses import dataclass

import numpy as np
import torch

from hardsight.dynamics import small_loss_mixture

# Ashman's D: two normal components are told apart above it (Ashman, Bird & Zepf 1994).
SEPARATED = 2.0
# A flat hump cut in half has a D of 3.5, so a valley must lie between: a stretch that by chance would hold as few
# samples, beside as many on either side, less often than this. Many stretches are tried: of sets drawn from one flat
# hump, 1 to 4 in 100 have such a valley (20 to 20,000 samples).
_CHANCE = 0.005
# The way from one component's mean to the other's in steps, and how many of them a place on a side is wide.
_STEPS, _WIDE = 16, 4
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
    """Whether a stretch between the components' means is emptier than a place on either side of it.

    Of one hump none is, whatever its shape: at equal density, a sample of a place and a stretch lies in the place with
    the probability of the place's share of both widths.
    """
    from scipy.special import bdtrc

    ordered = np.sort(values)
    low, high = np.average(values, weights=1 - upper), np.average(values, weights=upper)
    places, reach = np.linspace(low, high, _STEPS + 1), (high - low) / _STEPS * _WIDE / 2
    starts = np.searchsorted(ordered, places - reach, "left")
    ends = np.searchsorted(ordered, places + reach, "right")
    counts = ends - starts
    # The fullest place up to each from the left, and from it on to the right.
    before, after = np.maximum.accumulate(counts), np.maximum.accumulate(counts[::-1])[::-1]
    # Every stretch from one place to the same or another one that leaves room for a place on both sides.
    first, last = np.triu_indices(_STEPS + 1 - 2 * _WIDE)
    first, last = first + _WIDE, last + _WIDE
    inside = ends[last] - starts[first]
    sides = np.minimum(before[first - _WIDE], after[last + _WIDE])
    share = _WIDE / (_WIDE + last - first + _WIDE)
    # As many on the side, or more, of all in the two.
    chances = np.where(sides > 0, bdtrc(np.maximum(sides - 1, 0), sides + inside, share), 1.0)
    return bool(chances.min() < _CHANCE)


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
