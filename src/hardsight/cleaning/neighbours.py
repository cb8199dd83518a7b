"""Nearest neighbours by angle, exactly or by an index that finds nearly all of them; and near duplicates."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angle_between, directions, widen

# Beyond so many samples comparing each with every other takes too long: 100,000 x 256 are about a minute on one core.
MOST_EXACT = 100_000
# Cosines of one tile of samples to all others: 2**23 floats are 32 MiB.
_TILE = 2**23
# The index: links and breadth of the graph, and how many of the true neighbours it must find of rows that are compared
# with all, as many as `_TRIED`.
_LINKS, _BREADTH, _RECALL, _TRIED = 24, 80, 0.98, 1000
# Near duplicates are closer than this part of the median angle to the last of a sample's neighbours.
CLOSE = 0.35


def nearest_in_angle(
    features: Float[Tensor, "samples dim"], neighbours: int, groups: Int[Tensor, "samples"] | None = None
) -> Int[Tensor, "samples neighbours"]:
    """Row numbers of each sample's nearest others in feature angle, nearest first; a sample is not its own neighbour.

    With `groups` neighbours are of other groups, as long as there are any. Up to 100,000 samples by matrix products of
    tiles, exactly: samples x samples never exists at once. Of more by faiss (`pip install faiss-cpu`),
    whose search is widened until it finds 98 % of the true neighbours of 1,000 rows.
    """
    count = len(features)
    if not 1 <= neighbours < count:
        raise ValueError(f"neighbours must lie in [1, {count - 1}], the other samples; got {neighbours!r}")
    # Cosines of float32 tell angles of 1e-3 apart, not of 1e-4: float64 stays what it is.
    units = directions(widen(features.detach()))
    if count > MOST_EXACT:
        return _by_index(units, neighbours, groups)
    return _exactly(units, torch.arange(count, device=units.device), neighbours, groups)


def angles_to(
    features: Float[Tensor, "samples dim"], neighbours: Int[Tensor, "samples k"]
) -> Float[Tensor, "samples k"]:
    """The angle in radians from each sample to these others, exact also where it is close to 0."""
    count, width = neighbours.shape
    found = []
    for rows in torch.arange(count, device=features.device).split(max(1, _TILE // (features.shape[1] * width))):
        own = widen(features[rows]).unsqueeze(1)
        found.append(angle_between(own, widen(features[neighbours[rows]])))
    return torch.cat(found)


def neighbour_disagreement(
    labels: Int[Tensor, "samples"], neighbours: Int[Tensor, "samples k"]
) -> Float[Tensor, "samples"]:
    """Share of a sample's neighbours that carry another label; in [0, 1], larger is more suspicious.

    Deep k-nearest neighbours (Bahri, Jiang & Gupta 2020), in angle.
    """
    return (labels[neighbours] != labels.unsqueeze(1)).float().mean(1)


def _exactly(units: Tensor, rows: Tensor, neighbours: int, groups: Tensor | None) -> Tensor:
    """The neighbours of some rows among all."""
    # Once for all tiles: small results between tiles keep the allocator from using a tile's memory again.
    length = max(1, _TILE // len(units))
    found = torch.empty(len(rows), neighbours, dtype=torch.long, device=units.device)
    room = units.new_empty(min(length, len(rows)), len(units))
    for tile, out in zip(rows.split(length), found.split(length), strict=True):
        cosines = torch.mm(units[tile], units.T, out=room[: len(tile)])
        if groups is not None:
            # Below every cosine, but before the sample itself.
            cosines.masked_fill_(groups[tile, None] == groups, -2.0)
        cosines[torch.arange(len(tile), device=units.device), tile] = -torch.inf
        out.copy_(cosines.topk(neighbours, dim=1).indices)
    return found


def _by_index(units: Tensor, neighbours: int, groups: Tensor | None) -> Tensor:
    faiss = _faiss(len(units))
    points = units.float().cpu().numpy()
    index = faiss.IndexHNSWFlat(points.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _BREADTH
    index.add(points)
    _widen_search(index, units, points, neighbours)
    # One more than asked for, the sample itself; of grouped samples some of its own group, too.
    asked = min(len(points), neighbours + 1 if groups is None else 4 * neighbours + 1)
    found = np.empty((len(points), neighbours), np.int64)
    lacking = []
    step = max(1, _TILE // asked)
    for start in range(0, len(points), step):
        rows = np.arange(start, min(start + step, len(points)))
        places = index.search(points[rows], asked)[1]
        wanted = (places != rows[:, None]) & (places >= 0)
        if groups is not None:
            codes = groups.cpu().numpy()
            wanted &= codes[places] != codes[rows, None]
        # Those that are wanted first, in their order.
        first = np.argsort(~wanted, axis=1, kind="stable")[:, :neighbours]
        found[rows] = np.take_along_axis(places, first, 1)
        lacking.append(rows[wanted.sum(1) < neighbours])
    left = torch.from_numpy(np.concatenate(lacking)).to(units.device)
    result = torch.from_numpy(found).to(units.device)
    if len(left):
        result[left] = _exactly(units, left, neighbours, groups)
    return result


def _widen_search(index: Any, units: Tensor, points: np.ndarray, neighbours: int) -> None:
    """Double what a search looks at until it finds enough of the true neighbours of some rows."""
    rows = torch.linspace(0, len(units) - 1, _TRIED).long().unique().to(units.device)
    truth = _exactly(units, rows, neighbours, None).cpu().numpy()
    own = rows.cpu().numpy()
    width, hits = neighbours + 1, 0.0
    while hits < _RECALL and width < len(points):
        width = min(2 * width, len(points))
        index.hnsw.efSearch = width
        places = index.search(points[own], neighbours + 1)[1]
        hits = (truth[:, :, None] == places[:, None, :]).any(2).mean()


def _faiss(samples: int) -> Any:
    try:
        import faiss
    except ImportError:
        raise ImportError(
            f"nearest neighbours of more than {MOST_EXACT:,} samples need faiss, there are {samples:,}: "
            "pip install faiss-cpu"
        ) from None
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


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
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    _, firsts, which = np.unique(whole, return_index=True, return_inverse=True)
    first: np.ndarray = firsts[which.reshape(-1)]
    return first
