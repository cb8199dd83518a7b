"""What features say of samples by themselves: nearest neighbours by angle, near duplicates, outliers, a plane."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angle_between, angles_to_classes, directions, widen

# Beyond so many samples comparing each with every other takes too long: 100,000 x 256 are about a minute on one core.
MOST_EXACT = 100_000
# Cosines of one tile of samples to all others, and numbers of neighbours' features: 2**23 floats are 32 MiB.
_TILE = 2**23
# The index: links and breadth of the graph, and how many of the true neighbours it must find of rows that are compared
# with all, as many as `_TRIED`.
_LINKS, _BREADTH, _RECALL, _TRIED = 24, 80, 0.98, 1000
# Near duplicates are closer than this part of the median angle to the last of a sample's neighbours.
CLOSE = 0.35
# Neighbours that near duplicates, outliers and pages are about, and those whose labels are asked.
NEAREST, _ASKED = 10, 50
# What neighbours weigh beside the heads, and the least probability, chosen on development sets (the study `detection`).
_WEIGHT, _FLOOR = 0.25, 1e-4
# Rows that are compared with all classes at one time.
_ROWS = 2**14
_RADIANS = {"kind": "score", "direction": "larger is harder", "range": "[0, pi]"}
SCORES_OF_FEATURES = {
    "neighbour_disagreement": {"kind": "score", "direction": "larger is harder", "range": "[0, 1]"}
    | {"title": "Neighbours with other labels"},
    "margin_with_neighbours": {"kind": "score", "direction": "larger is easier", "range": "[-9.22, 9.22]"}
    | {"title": "Margin of head and neighbours"},
    "class_angle": _RADIANS | {"title": "Angle to the nearest class"},
    "neighbour_angle": _RADIANS | {"title": "Angle to the tenth neighbour"},
}
# The part of the mean variance in the covariance that features are whitened by, so that few samples suffice.
_SHRINKAGE = 0.1
# An outlier is farther from its neighbours than this share of the samples.
_SHARE = 0.75


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
    try:
        import faiss
    except ImportError:
        raise ImportError(
            f"nearest neighbours of more than {MOST_EXACT:,} samples need faiss, there are {len(units):,}: "
            "pip install faiss-cpu"
        ) from None
    faiss.omp_set_num_threads(torch.get_num_threads())
    points = units.float().cpu().numpy()
    index = faiss.IndexHNSWFlat(points.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _BREADTH
    index.add(points)
    # What a search looks at is doubled until it finds enough of the true neighbours of some rows.
    rows = torch.linspace(0, len(units) - 1, _TRIED).long().unique().to(units.device)
    truth, own = _exactly(units, rows, neighbours, None).cpu().numpy(), points[rows.cpu().numpy()]
    width, hits = neighbours + 1, 0.0
    while hits < _RECALL and width < len(points):
        width = min(2 * width, len(points))
        index.hnsw.efSearch = width
        places = index.search(own, neighbours + 1)[1]
        hits = (truth[:, :, None] == places[:, None, :]).any(2).mean()
    # One more than asked for, the sample itself; of grouped samples some of its own group, too.
    asked = min(len(points), neighbours + 1 if groups is None else 4 * neighbours + 1)
    found = np.empty((len(points), neighbours), np.int64)
    lacking = []
    step = max(1, _TILE // asked)
    for start in range(0, len(points), step):
        tile = np.arange(start, min(start + step, len(points)))
        places = index.search(points[tile], asked)[1]
        wanted = (places != tile[:, None]) & (places >= 0)
        if groups is not None:
            codes = groups.cpu().numpy()
            wanted &= codes[places] != codes[tile, None]
        # Those that are wanted first, in their order.
        first = np.argsort(~wanted, axis=1, kind="stable")[:, :neighbours]
        found[tile] = np.take_along_axis(places, first, 1)
        lacking.append(tile[wanted.sum(1) < neighbours])
    left = torch.from_numpy(np.concatenate(lacking)).to(units.device)
    result = torch.from_numpy(found).to(units.device)
    if len(left):
        result[left] = _exactly(units, left, neighbours, groups)
    return result


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
    within = CLOSE * float(angles[:, -1].median()) if within is None else within
    near = (angles <= within).cpu().numpy()
    first, place = np.nonzero(near)
    second = neighbours.cpu().numpy()[first, place]
    # Rows with the same bits: each with the first of them.
    rows = np.ascontiguousarray(features.cpu().numpy())
    bits = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    _, firsts, which = np.unique(bits, return_index=True, return_inverse=True)
    first, second = np.concatenate([first, np.arange(count)]), np.concatenate([second, firsts[which.reshape(-1)]])
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


@dataclass(frozen=True)
class Surroundings:
    """What features say of samples by themselves: neighbours, duplicates, outliers and a plane to draw them in.

    All arrays are in the order of the features; `scores` are columns for the table; `asked` are the neighbours whose
    labels count, of other groups where there are groups.
    """

    features: Tensor
    neighbours: Tensor
    groups: np.ndarray
    outlier: np.ndarray
    plane: np.ndarray
    scores: dict[str, np.ndarray]
    asked: Tensor


@torch.no_grad()
def surroundings(features: Any, labels: Tensor, groups: Any = None) -> Surroundings:
    """Neighbours by angle around the mean of the features, what follows from them, and two principal components.

    With `groups` the labels are compared with those of neighbours of other groups; near duplicates may be of the same.
    """
    wide = features if isinstance(features, Tensor) else torch.from_numpy(np.array(features))
    wide = wide if wide.dtype == torch.float64 else wide.float()
    wide = wide - wide.mean(0)
    # Of few samples fewer, or most of those asked would be of other classes.
    asked = nearest_in_angle(wide, min(max(NEAREST, min(_ASKED, len(labels) // 20)), len(labels) - 1))
    near = asked[:, :NEAREST]
    angles = angles_to(wide, near)
    if groups is not None:
        codes = torch.from_numpy(np.unique(groups, return_inverse=True)[1].reshape(-1)).to(wide.device)
        asked = nearest_in_angle(wide, asked.shape[1], codes)
    labels = labels.to(wide.device)
    class_angle, outlier = find_outliers(wide, labels, angles)
    scores = {
        "neighbour_disagreement": neighbour_disagreement(labels, asked[:, :NEAREST]).cpu().double().numpy(),
        "class_angle": class_angle,
        "neighbour_angle": angles[:, -1].cpu().double().numpy(),
    }
    copies = near_duplicates(wide, near, angles)
    return Surroundings(wide, near, copies, outlier, plane_of(wide), scores, asked)


@torch.no_grad()
def margin_with_neighbours(around: Surroundings, beliefs: Tensor, labels: Tensor) -> np.ndarray:
    """How much likelier the label is than any other class: the difference of the logarithms.

    Likely by what models believe of the sample, 3/4, and by the labels of its neighbours, 1/4, each of which counts by
    the square of its cosine.
    """
    classes, found = beliefs.shape[1], []
    width = around.asked.shape[1] * around.features.shape[1]
    for rows in torch.arange(len(labels)).split(max(1, _TILE // width)):
        near = around.asked[rows.to(around.asked.device)]
        own = directions(widen(around.features[rows.to(around.features.device)])).unsqueeze(1)
        cosines = (own * directions(widen(around.features[near]))).sum(2).clamp_min(0).cpu()
        weight = cosines.square().double()
        shares = torch.zeros(len(rows), classes, dtype=torch.float64).scatter_add_(1, labels[near.cpu()], weight)
        shares /= weight.sum(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        likely = ((1 - _WEIGHT) * beliefs[rows].double() + _WEIGHT * shares).clamp_min(_FLOOR).log()
        column = labels[rows, None]
        other = likely.scatter(1, column, -torch.inf).amax(1)
        found.append(likely.gather(1, column).squeeze(1) - other)
    return torch.cat(found).numpy()


def plane_of(features: Tensor) -> np.ndarray:
    """The first two principal components of the directions, [samples, 2]; the second is 0 where there is none."""
    units = directions(widen(features))
    units = units - units.mean(0)
    products = (units.T @ units).double()
    vectors = torch.linalg.eigh(products).eigenvectors[:, -2:].flip(1)
    # A principal component has no sign of its own: its largest part is positive.
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    found = (units @ (vectors * largest.sign()).to(units.dtype)).cpu().double().numpy()
    return found if found.shape[1] == 2 else np.pad(found, ((0, 0), (0, 1)))


@torch.no_grad()
def find_outliers(
    features: Float[Tensor, "samples dim"], labels: Int[Tensor, "samples"], angles: Float[Tensor, "samples k"]
) -> tuple[np.ndarray, np.ndarray]:
    """The angle in radians of each sample to its nearest class, and who is an outlier, far from classes and neighbours.

    The angle is to the mean of a class, after the spread within classes has been made equal in all directions (as in
    linear discriminant analysis). What it is to be of no class, the samples themselves say: without the mean of its
    class, what is left of each is such a sample. An outlier is farther from every class than half of these.
    """
    classes, codes = torch.unique(labels, return_inverse=True)
    mean, sums, root = _moments(features, codes, len(classes))
    sums = _whitened(sums, root)
    centres = sums / torch.bincount(codes, minlength=len(classes)).unsqueeze(1)
    nearest, without = [], []
    for rows in _tiles(features):
        own, label = _whitened(directions(widen(features[rows])).double() - mean, root), codes[rows]
        found = angles_to_classes(own.float(), centres.float())
        # Of a small class the sample itself is much of the mean, so it is left out.
        found.scatter_(1, label.unsqueeze(1), angle_between(own, sums[label] - own).float().unsqueeze(1))
        nearest.append(found.amin(1))
        without.append(angles_to_classes((own - centres[label]).float(), centres.float()).amin(1))
    to_class = torch.cat(nearest).cpu().double().numpy()
    # The farthest: an outlier that is there twice is close to its copy.
    to_neighbours = angles[:, -1].cpu().double().numpy()
    far = to_class > np.median(torch.cat(without).cpu().double().numpy())
    return to_class, far & (to_neighbours > np.quantile(to_neighbours, _SHARE))


def _moments(features: Tensor, codes: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean direction, each class's sum of what differs from it, and the Cholesky root of the spread within classes."""
    width = features.shape[1]
    sums = torch.zeros(classes, width, dtype=torch.float64, device=features.device)
    products = torch.zeros(width, width, dtype=torch.float64, device=features.device)
    for rows in _tiles(features):
        units = directions(widen(features[rows])).double()
        sums.index_add_(0, codes[rows], units)
        products += units.T @ units
    counts = torch.bincount(codes, minlength=classes).double().unsqueeze(1)
    spread = (products - (sums / counts).T @ sums) / len(codes)
    # Directions have length one: less than this is rounding, as where all samples of a class are equal.
    variance = spread.diagonal().mean().clamp_min(1e-10)
    spread = (1 - _SHRINKAGE) * spread + _SHRINKAGE * variance * torch.eye(width, device=spread.device)
    mean = sums.sum(0) / len(codes)
    return mean, sums - counts * mean, torch.linalg.cholesky(spread)


def _whitened(rows: Tensor, root: Tensor) -> Tensor:
    solved: Tensor = torch.linalg.solve_triangular(root, rows.T, upper=False)
    return solved.T


def _tiles(features: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.arange(len(features), device=features.device).split(_ROWS))
