"""Do groups of samples agree with their classes? Homogeneity, completeness and V-measure, for any grouping.

The AMC-Loss paper describes clusterings of the features; its authors' script compares the model's predictions. Both
are `agreement`, of `cluster_features(...)` or of `logits.argmax(1)`.
"""

import warnings
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from hardsight.explain.inputs import as_points, check_features, check_several, class_positions


class Agreement(NamedTuple):
    """Three numbers in [0, 1], larger is better, unchanged by renaming groups or classes."""

    homogeneity: float
    completeness: float
    v_measure: float


def agreement(groups: Any, labels: Any) -> Agreement:
    """Homogeneity (a group holds one class), completeness (a class lies in one group), and their harmonic mean.

    1 - H(class | group) / H(class), 1 - H(group | class) / H(group) (Rosenberg & Hirschberg 2007); computed by
    scikit-learn. `groups` may be clusters or predictions.
    """
    classes, label_positions = class_positions(labels)
    check_several(classes, "homogeneity and completeness")
    _, group_positions = class_positions(groups, len(label_positions), "groups")

    from sklearn.metrics import homogeneity_completeness_v_measure

    found = homogeneity_completeness_v_measure(label_positions.cpu().numpy(), group_positions.cpu().numpy())
    # Rounding may push an entropy's share past its ends.
    return Agreement(*(min(1.0, max(0.0, float(value))) for value in found))


def cluster_features(
    features: Tensor, clusters: int, *, seed: int, metric: str = "angle", restarts: int = 10
) -> Int[Tensor, "samples"]:
    """The k-means cluster of each sample, the best of `restarts` runs by scikit-learn; the same for the same seed.

    With the metric "angle" the samples' directions are clustered, with "euclidean" the features as they are. Fewer
    different samples than clusters give fewer clusters.
    """
    check_features(features)
    points = as_points(features.detach().double(), metric)
    if not 1 <= clusters <= len(features):
        raise ValueError(f"clusters must lie in [1, {len(features)}], the number of samples; got {clusters}")
    if restarts < 1:
        raise ValueError(f"restarts must be 1 or more; got {restarts}")

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(clusters, n_init=restarts, random_state=seed).fit_predict(points.cpu().numpy())
    return torch.from_numpy(found).long().to(features.device)
