"""Does a model know how often it is right?"""

from typing import Any

import numpy as np

from hardsight.alignment.groups import bin_of
from hardsight.alignment.inputs import as_values


def expected_calibration_error(probability: Any, right: Any, bins: int = 15) -> float:
    """Mean distance of accuracy from confidence over equal bins of confidence, weighted by their samples.

    In [0, 1], 0 is calibrated (Guo et al. 2017, with their 15 bins). `probability`: of the predicted class.
    """
    probability, right = as_values("probability", probability), as_values("right", right)
    if len(probability) == 0 or len(probability) != len(right):
        raise ValueError(
            f"probability and right must be of one length, at least 1; got {len(probability)} and {len(right)}"
        )
    outside = probability[~((probability >= 0) & (probability <= 1))]
    if len(outside):
        raise ValueError(f"probability must lie in [0, 1]; {len(outside)} values do not, first {outside[0]:g}")
    place = bin_of(probability, np.linspace(0, 1, bins + 1).tolist())
    gaps = [abs(right[place == at].mean() - probability[place == at].mean()) * (place == at).sum() for at in set(place)]
    return float(sum(gaps) / len(right))
