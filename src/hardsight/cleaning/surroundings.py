"""What features say of samples by themselves: neighbours, near duplicates, outliers, and a plane to draw them in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.cleaning.neighbours import angles_to, near_duplicates, nearest_in_angle, neighbour_disagreement
from hardsight.geometry import angle_between, angles_to_classes, directions, widen

# Neighbours that near duplicates, outliers and pages are about, and those whose labels are asked.
NEAREST, _ASKED = 10, 50
# What neighbours weigh beside the heads, and the least probability, chosen on development sets (the study `detection`).
_WEIGHT, _FLOOR = 0.25, 1e-4
# Rows that are compared with all classes, and numbers of neighbours' features that are held, at one time.
_ROWS, _NUMBERS = 2**14, 2**23
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


@dataclass(frozen=True)
class Surroundings:
    """What features say of samples by themselves: neighbours, duplicates, outliers and a plane to draw them in.

    All arrays are in the order of the features; `scores` are described columns for the table; `asked` are the
    neighbours whose labels count, of other groups where there are groups.
    """

    features: Tensor
    neighbours: Tensor
    groups: np.ndarray
    outlier: np.ndarray
    plane: np.ndarray
    scores: dict[pa.Field, np.ndarray]
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
    described = {
        pa.field(name, pa.float64(), metadata=SCORES_OF_FEATURES[name]): values for name, values in scores.items()
    }
    copies = near_duplicates(wide, near, angles)
    return Surroundings(wide, near, copies, outlier, plane_of(wide), described, asked)


@torch.no_grad()
def margin_with_neighbours(around: Surroundings, beliefs: Tensor, labels: Tensor) -> tuple[pa.Field, np.ndarray]:
    """How much likelier the label is than any other class: the difference of the logarithms, as a column.

    Likely by what models believe of the sample, 3/4, and by the labels of its neighbours, 1/4, each of which counts by
    the square of its cosine.
    """
    classes, found = beliefs.shape[1], []
    width = around.asked.shape[1] * around.features.shape[1]
    for rows in torch.arange(len(labels)).split(max(1, _NUMBERS // width)):
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
    name = "margin_with_neighbours"
    return pa.field(name, pa.float64(), metadata=SCORES_OF_FEATURES[name]), torch.cat(found).numpy()


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
    rows: tuple[Tensor, ...] = torch.arange(len(features), device=features.device).split(_ROWS)
    return rows
