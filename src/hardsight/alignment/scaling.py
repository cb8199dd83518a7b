"""Scores brought to a common range, for plots: the whole of them, or class by class."""

from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.inputs import as_groups, as_values, rows_of_groups


def scale_linearly(values: Any) -> Float[np.ndarray, "samples"]:
    """(v - smallest) / (largest - smallest), in [0, 1], as AVH is scaled before plotting; constant values become 0.

    >>> scale_linearly([2.0, 3.0, 6.0]).tolist()
    [0.0, 0.25, 1.0]
    """
    array = as_values("values", values)
    if not np.isfinite(array).all():
        raise ValueError(f"values must be finite; {int((~np.isfinite(array)).sum())} of {len(array)} are not")
    if not len(array):
        return array
    low, high = array.min(), array.max()
    if low == high:
        return np.zeros_like(array)
    # Halves first: the difference of two finite numbers may be infinite, that of their halves is not.
    return (array / 2 - low / 2) / (high / 2 - low / 2)


def scale_within_groups(values: Any, groups: Any) -> Float[np.ndarray, "samples"]:
    """`scale_linearly` within each group: how the paper normalises the feature norm by class (Table 1, Fig. 5)."""
    array = as_values("values", values)
    names, codes = as_groups(groups, len(array))
    scaled = np.empty_like(array)
    for rows in rows_of_groups(codes, len(names)):
        scaled[rows] = scale_linearly(array[rows])
    return scaled
