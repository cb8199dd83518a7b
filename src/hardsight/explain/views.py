"""Features where they can be looked at: on the unit circle or sphere, or in the plane by t-SNE and UMAP.

Coordinates only; whoever draws chooses how.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.explain.inputs import as_points, check_features
from hardsight.geometry import directions, widen


class OnSphere(NamedTuple):
    """Directions as points of the unit circle or sphere, and as angles in radians.

    `azimuth` lies in [-pi, pi], counted from the first axis towards the second; `elevation`, on the sphere, in
    [-pi/2, pi/2], above the plane of the two. A zero feature has no direction: it stays at the origin, its angles 0.
    """

    points: Float[Tensor, "samples dim"]
    azimuth: Float[Tensor, "samples"]
    elevation: Float[Tensor, "samples"] | None


def on_sphere(features: Tensor) -> OnSphere:
    """Features of 2 or 3 dimensions, or class weights, on the unit circle or sphere."""
    check_features(features)
    if features.shape[1] not in (2, 3):
        raise ValueError(
            f"features must have 2 or 3 dimensions to lie on a circle or a sphere; got {features.shape[1]}: "
            "use t_sne or umap"
        )
    points = directions(widen(features.detach()))
    x, y, *rest = points.unbind(1)
    elevation = torch.atan2(rest[0], torch.hypot(x, y)) if rest else None
    return OnSphere(points, torch.atan2(y, x), elevation)


def t_sne(
    features: Tensor, *, seed: int, dimensions: int = 2, perplexity: float = 30.0, metric: str = "angle"
) -> Float[Tensor, "samples dimensions"]:
    """scikit-learn's t-SNE of the features (van der Maaten & Hinton 2008); the same for the same seed.

    With the metric "angle" neighbours are found among the directions (by chords, which grow with the angle), with
    "euclidean" among the features as they are.
    """
    points = _points(features, metric)
    _check_dimensions(dimensions)
    if len(features) < 2:
        raise ValueError("features must be at least 2 samples for a view of their neighbours; got 1")
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


def umap(
    features: Tensor,
    *,
    seed: int,
    dimensions: int = 2,
    neighbours: int = 15,
    min_distance: float = 0.1,
    metric: str = "angle",
) -> Float[Tensor, "samples dimensions"]:
    """umap-learn's UMAP of the features (McInnes et al. 2018); the same for the same seed. `metric` as in `t_sne`."""
    points = _points(features, metric)
    _check_dimensions(dimensions)
    if not 2 <= neighbours < len(features):
        raise ValueError(f"neighbours must lie in [2, {len(features)}), below the number of samples; got {neighbours}")
    try:
        from umap import UMAP
    except ImportError:
        raise ImportError("umap needs umap-learn: pip install umap-learn") from None
    # One thread, which a seed asks for: the library warns where it has to choose it itself.
    view = UMAP(
        n_components=dimensions, n_neighbors=neighbours, min_dist=min_distance, random_state=seed, n_jobs=1
    ).fit_transform(points)
    return torch.from_numpy(view).to(features.device, torch.float32)


def _check_dimensions(dimensions: int) -> None:
    if dimensions < 1:
        raise ValueError(f"dimensions must be 1 or more; got {dimensions!r}")


def _points(features: Tensor, metric: str) -> Float[np.ndarray, "samples dim"]:
    check_features(features)
    return as_points(widen(features.detach()), metric).cpu().numpy()
