"""How the classes lie on the sphere: angles within and between classes, and the silhouette in angle.

All pairs of samples are looked at, a block of rows at a time in float64: memory grows with samples x classes, never
with samples x samples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.explain.inputs import check_features, check_several, class_positions
from hardsight.geometry import angle_between, angle_of_cosine_, angles_to_classes, directions

# Angles in one block of rows: 2**22 of float64 are 32 MiB.
_BLOCK = 2**22


@dataclass(frozen=True)
class AngleStatistics:
    """Angles in radians by class; `classes` gives the order of the rows. A class of one sample has no pairs: NaN.

    `pair_mean[c, d]` and `pair_deviation[c, d]`: mean and standard deviation over all pairs of two different samples,
    one of class c and one of class d. `to_centre[c]`: mean angle of a class's samples to the direction of their mean
    direction; `between_centres[c, d]`: the angle between two of these.
    """

    classes: Int[Tensor, "classes"]
    counts: Int[Tensor, "classes"]
    pair_mean: Float[Tensor, "classes classes"]
    pair_deviation: Float[Tensor, "classes classes"]
    to_centre: Float[Tensor, "classes"]
    between_centres: Float[Tensor, "classes classes"]

    @property
    def within(self) -> float:
        """Mean angle of two samples of one class, each class counting alike; smaller is more compact."""
        return float(self.pair_mean.diagonal().nanmean())

    @property
    def between(self) -> float:
        """Mean angle of two samples of different classes, each pair of classes alike; larger is more apart."""
        above = torch.ones_like(self.pair_mean, dtype=torch.bool).triu(1)
        return float(self.pair_mean[above].mean())

    @property
    def nearest_centre(self) -> Float[Tensor, "classes"]:
        """Each centre's angle to the nearest other one."""
        apart = self.between_centres.clone()
        return apart.fill_diagonal_(torch.inf).amin(1)


def angle_statistics(features: Tensor, labels: Any) -> AngleStatistics:
    """Intra-class and inter-class angles of the features, over all pairs and to the class centres; see the result."""
    classes, positions, units = _checked(features, labels, "angles between classes")
    members = torch.nn.functional.one_hot(positions, len(classes)).double()
    counts = members.sum(0)
    sums = torch.zeros(len(classes), len(classes), dtype=torch.float64, device=units.device)
    squares = torch.zeros_like(sums)
    for start, angles in _blocks(units):
        mine = members[start : start + len(angles)].T
        sums += mine @ (angles @ members)
        squares += mine @ (angles.square_() @ members)
    pairs = counts[:, None] * counts - counts.diag()
    pairs = torch.where(pairs == 0, torch.nan, pairs)
    mean = sums / pairs
    # Rounding may leave a variance just below zero.
    deviation = (squares / pairs - mean.square()).clamp_min(0).sqrt()
    centres = directions(members.T @ units)
    to_centre = members.T @ angle_between(units, centres[positions]) / counts
    between = angles_to_classes(centres, centres).fill_diagonal_(0.0)
    return AngleStatistics(classes, counts.long(), mean, deviation, to_centre, between)


def angular_silhouette(features: Tensor, labels: Any) -> Float[Tensor, "samples"]:
    """(b - a) / max(a, b) of each sample, in angles: a its mean angle to its own class, b to the nearest other class.

    In [-1, 1]; larger is better, below 0 the sample lies nearer to another class (Rousseeuw 1987). 0 for a class of
    one sample. The mean over samples is the silhouette of the set.
    """
    classes, positions, units = _checked(features, labels, "a silhouette")
    members = torch.nn.functional.one_hot(positions, len(classes)).double()
    counts = members.sum(0)
    found = []
    for start, angles in _blocks(units):
        own = positions[start : start + len(angles), None]
        to_class = angles @ members
        alone = counts[own] == 1
        inside = to_class.gather(1, own) / torch.where(alone, 1.0, counts[own] - 1)
        nearest = (to_class / counts).scatter(1, own, torch.inf).amin(1, keepdim=True)
        larger = torch.maximum(inside, nearest)
        found.append(
            torch.where(alone | (larger == 0), 0.0, (nearest - inside) / torch.where(larger == 0, 1.0, larger))
        )
    return torch.cat(found).squeeze(1)


def _blocks(units: Float[Tensor, "samples dim"]) -> Iterator[tuple[int, Float[Tensor, "rows samples"]]]:
    """Rows of the matrix of all angles, as many as fit a block; a sample's angle to itself is 0."""
    rows = max(1, _BLOCK // len(units))
    for start in range(0, len(units), rows):
        # In float64 the arccos of a product is right to 2e-8 everywhere: no pair needs to be measured again.
        angles = angle_of_cosine_((units[start : start + rows] @ units.T).clamp_(-1.0, 1.0))
        angles.diagonal(start).zero_()
        yield start, angles


def _checked(features: Tensor, labels: Any, purpose: str) -> tuple[Tensor, Tensor, Tensor]:
    check_features(features)
    classes, positions = class_positions(labels, len(features))
    check_several(classes, purpose)
    return classes.to(features.device), positions.to(features.device), directions(features.detach().double())
