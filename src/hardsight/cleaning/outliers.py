"""Outliers: samples that are far, by angle, from every class and from their neighbours."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angle_between, angles_to_classes, directions, widen

# Rows whose angles to all classes are in memory at one time.
_ROWS = 2**14
# The part of the mean variance in the covariance that features are whitened by, so that few samples suffice.
_SHRINKAGE = 0.1
# An outlier is farther from its neighbours than this share of the samples.
_SHARE = 0.75


@dataclass(frozen=True)
class Outliers:
    """Two angles of each sample in radians, larger is farther, and who is an outlier.

    `class_angle` is the smallest angle to the mean of a class, after the spread within classes has been made equal in
    all directions (as in linear discriminant analysis); `neighbour_angle` that to the farthest of the neighbours.
    """

    class_angle: np.ndarray
    neighbour_angle: np.ndarray
    found: np.ndarray


@torch.no_grad()
def find_outliers(
    features: Float[Tensor, "samples dim"], labels: Int[Tensor, "samples"], angles: Float[Tensor, "samples k"]
) -> Outliers:
    """Outliers among samples, from centred features and the angles to their nearest neighbours (`angles_to`).

    What it is to be of no class, the samples themselves say: without the mean of its class, what is left of each is
    such a sample. An outlier is farther from every class than half of these.
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
    return Outliers(to_class, to_neighbours, far & (to_neighbours > np.quantile(to_neighbours, _SHARE)))


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
