"""What the network looks at, and how its features lie: class activation maps, cluster quality, embedding views.

`activation_maps` holds Grad-CAM, `layers` finds the layers it can be asked for; `attention` and `curves` turn maps into
numbers. `clusters` and `angles` measure how the classes lie in feature space; `views` gives coordinates to draw.
"""

from hardsight.explain.activation_maps import grad_cam
from hardsight.explain.angles import AngleStatistics, angle_statistics, angular_silhouette
from hardsight.explain.attention import box_masks, energy_inside, pointing_game
from hardsight.explain.clusters import Agreement, agreement, cluster_features
from hardsight.explain.curves import Curve, deletion_curve, insertion_curve
from hardsight.explain.layers import last_spatial_layer, tokens_to_maps
from hardsight.explain.views import OnSphere, on_sphere, t_sne, umap

__all__ = [
    "Agreement",
    "AngleStatistics",
    "Curve",
    "OnSphere",
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
    "t_sne",
    "tokens_to_maps",
    "umap",
]
