"""Replicates of rank coefficients of very many samples, from resamples of a part of them.

The m out of n bootstrap (Bickel, Götze & van Zwet 1997): the spread of a coefficient of m samples is sqrt(n / m) times
that of n, so draws of m tell it as well, at m's price. Of Pearson's coefficient that is not so where a few values lie
far out: a part that misses them is no smaller picture of the whole.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from hardsight.alignment.coefficients import kendall, pearson, ranks

# More samples than the first are drawn in parts of the second. A product so short is made by one thread: to wake
# another for each of thousands takes longer than they do.
MOST_WHOLE, PART = 2**16, 2**13
# A value that so many share leaves a part too few others: they are drawn whole, however many they are.
_MOST_TIED = 0.95


def drawn_in_parts(method: str, *columns: Float[np.ndarray, "samples"]) -> bool:
    """Whether there are so many samples that a part is enough, and whether all columns vary enough in a part."""
    if method == "pearson" or len(columns[0]) <= MOST_WHOLE:
        return False
    return all(np.unique(one, return_counts=True)[1].max() <= _MOST_TIED * len(one) for one in columns)


def replicates_of_parts(
    scores: Float[np.ndarray, "scores samples"],
    human: Float[np.ndarray, "samples"],
    estimates: Float[np.ndarray, "scores"],
    method: str,
    *,
    resamples: int,
    generator: np.random.Generator,
) -> Float[np.ndarray, "scores resamples"]:
    """Coefficients of `resamples` draws of a part, brought as near to the estimates as those of all samples lie."""
    found = np.empty((len(scores), resamples))
    # Ranks of the human column are made once a draw, for all scores.
    prepare: Callable[[np.ndarray], np.ndarray] = ranks if method == "spearman" else np.asarray
    coefficient = pearson if method == "spearman" else kendall
    for at in range(resamples):
        drawn = generator.integers(0, len(human), PART)
        seen = prepare(human[drawn])
        found[:, at] = [coefficient(prepare(score[drawn]), seen) for score in scores]
    narrower = math.sqrt(PART / len(human))
    return estimates[:, None] + narrower * (found - estimates[:, None])
