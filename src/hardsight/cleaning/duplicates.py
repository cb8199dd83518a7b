"""Near duplicates: groups of samples whose features point in almost the same direction."""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

# Near duplicates are closer than this part of the median angle to the last of a sample's neighbours.
CLOSE = 0.35
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Rows looked at in one go.
_ROWS = 2**14


def near_duplicates(
    features: Float[Tensor, "samples dim"],
    neighbours: Int[Tensor, "samples k"],
    angles: Float[Tensor, "samples k"],
    within: float | None = None,
) -> np.ndarray:
    """The number of each sample's group of near duplicates, from 0 in the order of the samples; -1 where it has none.

    Near duplicates are at most `within` radians apart, or by a chain of such. Left out, it is 0.35 times the median of
    the angles to the last neighbour, whatever the scale of the encoder's angles. Equal rows are always one group, also
    where there are more of them than neighbours.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(neighbours)
    if within is None:
        within = CLOSE * float(angles[:, -1].median())
    near = (angles <= within).cpu().numpy()
    first, place = np.nonzero(near)
    second = neighbours.cpu().numpy()[first, place]
    equal = _first_equal(features)
    first, second = np.concatenate([first, np.arange(count)]), np.concatenate([second, equal])
    edges = coo_array((np.ones(len(first), bool), (first, second)), shape=(count, count))
    component = connected_components(edges, directed=False)[1]
    sizes = np.bincount(component)
    several = sizes[component] > 1
    groups = np.full(count, -1, np.int32)
    # Components are numbered by their first sample already; those of one sample are no group.
    groups[several] = np.unique(component[several], return_inverse=True)[1]
    return groups


def in_mixed_group(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Which samples are in a group whose members have several values; a value of -1 is none."""
    known = (groups >= 0) & (values >= 0)
    if not known.any():
        return np.zeros(len(groups), bool)
    pairs = np.unique(np.stack([groups[known], values[known]]), axis=1)
    mixed = np.bincount(pairs[0], minlength=int(groups.max()) + 1) > 1
    found: np.ndarray = (groups >= 0) & mixed[groups]
    return found


def _first_equal(features: Tensor) -> np.ndarray:
    """For each row the place of the first row with the same bits."""
    rows = np.ascontiguousarray(features.cpu().numpy())
    words = rows.view(f"u{rows.itemsize}")
    hashes = np.zeros(len(rows), np.uint64)
    for start in range(0, len(rows), _ROWS):
        block, mixed = words[start : start + _ROWS], hashes[start : start + _ROWS]
        for column in block.T:
            mixed ^= column
            mixed *= _MULTIPLIER
            mixed ^= mixed >> np.uint64(29)
    _, firsts, which = np.unique(hashes, return_index=True, return_inverse=True)
    first: np.ndarray = firsts[which.reshape(-1)]
    later = np.flatnonzero(first != np.arange(len(first)))
    for part in np.array_split(later, max(1, len(later) // _ROWS)):
        # Two rows may share a hash.
        differ = part[(words[part] != words[first[part]]).any(1)]
        first[differ] = differ
    return first
