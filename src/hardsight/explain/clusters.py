"""How features are arranged: groups against classes, angles within and between classes, neighbours, views to draw.

The AMC-Loss paper describes clusterings of the features; its authors' script compares the model's predictions. Both
are `agreement`, of `cluster_features(...)` or of `logits.argmax(1)`. Angles between all pairs of samples are taken a
block of rows at a time in float64: memory grows with samples x classes, never with samples x samples.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from hardsight.geometry import angle_of_cosine_, directions, widen
from hardsight.names import check_name
from hardsight.validation import check_features, check_integers, check_labels

METRICS = ("angle", "euclidean")


class Agreement(NamedTuple):
    """Three numbers in [0, 1], larger is better, unchanged by renaming groups or classes."""

    homogeneity: float
    completeness: float
    v_measure: float


def agreement(groups: Any, labels: Any) -> Agreement:
    """Homogeneity (a group holds one class), completeness (a class is in one group), and their harmonic mean.

    1 - H(class | group) / H(class), 1 - H(group | class) / H(group) (Rosenberg & Hirschberg 2007); computed by
    scikit-learn. `groups` may be clusters or predictions.
    """
    _, of_labels = _class_positions("labels", labels, least=2)
    _, of_groups = _class_positions("groups", groups, len(of_labels))

    from sklearn.metrics import homogeneity_completeness_v_measure

    found = homogeneity_completeness_v_measure(of_labels.cpu().numpy(), of_groups.cpu().numpy())
    # Rounding may push an entropy's share past its ends.
    return Agreement(*(min(1.0, max(0.0, float(value))) for value in found))


def cluster_features(
    features: Tensor, clusters: int, *, seed: int, metric: str = "angle", restarts: int = 10
) -> Int[Tensor, "samples"]:
    """The k-means cluster of each sample, the best of `restarts` runs by scikit-learn; the same for the same seed.

    With the metric "angle" the samples' directions are clustered, with "euclidean" the features as they are. Fewer
    different samples than clusters give fewer clusters.
    """
    points = _as_points(features, metric, double=True)
    if not 1 <= clusters <= len(features):
        raise ValueError(f"clusters must lie in [1, {len(features)}], the number of samples; got {clusters}")

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(clusters, n_init=restarts, random_state=seed).fit_predict(points.numpy())
    return torch.from_numpy(found).long().to(features.device)


# Angles in one block of rows: 2**22 of float64 are 32 MiB.
_BLOCK = 2**22
# Samples whose neighbours are found at a time.
_SAMPLES = 1024


class AngleStatistics(NamedTuple):
    """Angles in radians by class; `classes` gives the order of the rows. A class of one sample has no pairs: NaN.

    `pair_mean[c, d]` and `pair_deviation[c, d]`: mean and standard deviation over all pairs of two different samples,
    one of class c and one of class d.
    """

    classes: Int[Tensor, "classes"]
    pair_mean: Float[Tensor, "classes classes"]
    pair_deviation: Float[Tensor, "classes classes"]

    @property
    def within(self) -> float:
        """Mean angle of two samples of one class, each class counting alike; smaller is more compact."""
        return float(self.pair_mean.diagonal().nanmean())

    @property
    def between(self) -> float:
        """Mean angle of two samples of different classes, each pair of classes alike; larger is more apart."""
        above = torch.ones_like(self.pair_mean, dtype=torch.bool).triu(1)
        return float(self.pair_mean[above].mean())


def angle_statistics(features: Tensor, labels: Any) -> AngleStatistics:
    """Intra-class and inter-class angles of the features, over all pairs."""
    classes, _, units, members = _checked_classes(features, labels)
    counts = members.sum(0)
    sums = torch.zeros(len(classes), len(classes), dtype=torch.float64, device=units.device)
    squares = torch.zeros_like(sums)
    for start, angles in _blocks(units):
        mine = members[start : start + len(angles)].T
        sums += mine @ (angles @ members)
        squares += mine @ (angles.square_() @ members)
    # Without pairs, 0 / 0 is NaN.
    pairs = counts[:, None] * counts - counts.diag()
    mean = sums / pairs
    # Rounding may leave a variance just below zero.
    return AngleStatistics(classes, mean, (squares / pairs - mean.square()).clamp_min(0).sqrt())


def angular_silhouette(features: Tensor, labels: Any) -> Float[Tensor, "samples"]:
    """(b - a) / max(a, b) of each sample, in angles: a its mean angle to its own class, b to the nearest other class.

    In [-1, 1]; larger is better, below 0 the sample lies nearer to another class (Rousseeuw 1987). 0 for a class of
    one sample. The mean over samples is the silhouette of the set.
    """
    _, positions, units, members = _checked_classes(features, labels)
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


def _checked_classes(features: Tensor, labels: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The classes, each sample's position among them, its direction, and its class as one of zeros and ones."""
    check_features(features)
    classes, positions = (one.to(features.device) for one in _class_positions("labels", labels, len(features), least=2))
    members = torch.nn.functional.one_hot(positions, len(classes)).double()
    return classes, positions, directions(features.detach().double()), members


def _class_positions(
    name: str, values: Any, samples: int | None = None, least: int = 1
) -> tuple[Tensor, Int[Tensor, "n"]]:
    """The classes that occur, in order, and each sample's position among them; any integers will do."""
    try:
        values = torch.as_tensor(values)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be integers, in a tensor or a list; got {values!r:.60}") from None
    check_integers(name, values)
    if values.ndim != 1 or len(values) != (samples or len(values)):
        expected = "" if samples is None else f" of the {samples} samples"
        raise ValueError(f"{name} must be one class for each{expected}; got shape {list(values.shape)}")
    classes, positions = values.unique(return_inverse=True)
    if len(classes) < least:
        raise ValueError(f"{name} must hold at least {least} classes; got {classes.tolist()}")
    return classes, positions


def on_sphere(features: Tensor) -> Float[Tensor, "samples dim"]:
    """Features of 2 or 3 dimensions, or class weights, as points of the unit circle or sphere; zero stays at 0."""
    check_features(features)
    if features.shape[1] not in (2, 3):
        raise ValueError(
            f"features must have 2 or 3 dimensions to lie on a circle or a sphere; got {features.shape[1]}: use t_sne"
        )
    return directions(widen(features.detach()))


def t_sne(
    features: Tensor, *, seed: int, dimensions: int = 2, perplexity: float = 30.0, metric: str = "angle"
) -> Float[Tensor, "samples dimensions"]:
    """scikit-learn's t-SNE of the features (van der Maaten & Hinton 2008); the same for the same seed.

    With the metric "angle" neighbours are found among the directions (by chords, which grow with the angle), with
    "euclidean" among the features as they are.
    """
    points = _as_points(features, metric).numpy()
    if not 0 < perplexity < len(features):
        raise ValueError(
            f"perplexity must lie in (0, {len(features)}), below the number of samples; got {perplexity!r}"
        )

    from sklearn.manifold import TSNE

    # PCA, the library's usual start, gives at most as many directions as there are features, and is scaled by the
    # deviation of the first: of points that are all one it is NaN, on which the library crashes.
    start = "pca" if dimensions <= min(points.shape) and np.ptp(points, axis=0).any() else "random"
    method = "barnes_hut" if dimensions < 4 else "exact"
    view = TSNE(dimensions, perplexity=perplexity, init=start, method=method, random_state=seed).fit_transform(points)
    return torch.from_numpy(view).to(features.device, torch.float32)


def _as_points(features: Tensor, metric: str, double: bool = False) -> Float[Tensor, "samples dim"]:
    """What distances are measured between: the features' directions, or the features themselves, largest entry 1."""
    check_name("metric", metric, METRICS)
    check_features(features)
    features = widen(features.detach().cpu())
    features = features.double() if double else features
    if metric == "angle":
        return directions(features)
    # Neither clusters nor neighbours depend on scale: no square overflows or vanishes. A power of two is exact.
    return torch.ldexp(features.double(), -torch.frexp(features.abs().max()).exponent).to(features.dtype)


@torch.no_grad()
def recall_at_k(
    features: Float[Tensor, "samples dim"], labels: Integer[Tensor, "samples"], k: Sequence[int] = (1,)
) -> dict[int, float]:
    """The share of samples with one of their own class among the k others at the smallest angles.

    Samples that are alone in their class count as not found. Unchanged by rotating the features or rescaling any.

    >>> recall_at_k(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), torch.tensor([0, 0, 1]))[1]
    0.6666666666666666
    """
    check_features(features)
    check_labels(labels, len(features), int(labels.max()) + 1 if len(labels) else 1)
    if not len(k) or min(k) < 1 or max(k) >= len(features):
        raise ValueError(f"k must be numbers from 1 to {len(features) - 1}, the other samples; got {list(k)}")
    unit = directions(widen(features))
    found = torch.zeros(len(k), dtype=torch.int64)
    for start in range(0, len(unit), _SAMPLES):
        rows = torch.arange(start, min(start + _SAMPLES, len(unit)), device=unit.device)
        cosines = unit[rows] @ unit.T
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        nearest = labels.to(unit.device)[cosines.topk(max(k)).indices]
        same = nearest == labels.to(unit.device)[rows, None]
        found += torch.tensor([int(same[:, :one].any(1).sum()) for one in k])
    return {one: float(count) / len(unit) for one, count in zip(k, found, strict=True)}
