"""Label noise of every kind the literature trains under: each returns new labels and says which ones changed.

`classes` holds the noise that looks at the label alone and the confusions of the public data sets, `instances` the
noise that looks at the sample too or puts foreign images under a label. Nothing here edits its input, and every draw
comes from the generator that the caller hands in.
"""

from hardsight.noise.classes import (
    CIFAR10_LOOKALIKES,
    CIFAR100_COARSE,
    MNIST_LOOKALIKES,
    NoisyLabels,
    flip_by_mapping,
    flip_by_matrix,
    flip_pairwise,
    flip_symmetric,
    flip_within_groups,
    human_labels,
    measured_transition,
    next_in_group,
)
from hardsight.noise.instances import (
    OpenSetImages,
    background_images,
    flip_by_margin,
    flip_by_projection,
    replace_images,
)

__all__ = [
    "CIFAR10_LOOKALIKES",
    "CIFAR100_COARSE",
    "MNIST_LOOKALIKES",
    "NoisyLabels",
    "OpenSetImages",
    "background_images",
    "flip_by_mapping",
    "flip_by_margin",
    "flip_by_matrix",
    "flip_by_projection",
    "flip_pairwise",
    "flip_symmetric",
    "flip_within_groups",
    "human_labels",
    "measured_transition",
    "next_in_group",
    "replace_images",
]
