"""What the network looks at, and how its features are arranged: activation maps, cluster quality, embedding views.

`activation_maps` holds Grad-CAM and finds its layers, `attention` turns maps into numbers; `clusters` measures how the
classes lie in feature space and gives coordinates to draw.
"""

from hardsight.explain.activation_maps import grad_cam, last_spatial_layer, tokens_to_maps
from hardsight.explain.attention import Curve, box_masks, deletion_curve, energy_inside, insertion_curve, pointing_game
from hardsight.explain.clusters import (
    Agreement,
    AngleStatistics,
    agreement,
    angle_statistics,
    angular_silhouette,
    cluster_features,
    on_sphere,
    recall_at_k,
    t_sne,
)

__all__ = [
    "Agreement",
    "AngleStatistics",
    "Curve",
    "agreement",
    "angle_statistics",
    "angular_silhouette",
    "box_masks",
    "cluster_features",
    "deletion_curve",
    "energy_inside",
    "grad_cam",
    "insertion_curve",
    "last_spatial_layer",
    "on_sphere",
    "pointing_game",
    "recall_at_k",
    "t_sne",
    "tokens_to_maps",
]
