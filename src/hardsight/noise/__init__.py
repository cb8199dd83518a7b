"""Label noise of every kind the literature trains under: each returns new labels and says which ones changed.

`classes` holds the noise that looks at the label alone, `instances` the noise that looks at the sample too,
`open_set` the noise that puts foreign images under a label, `mappings` the confusions of the public data sets.
Nothing here edits its input, and every draw comes from the generator that the caller hands in.
"""

from hardsight.noise.classes import (
    NoisyLabels,
    flip_by_mapping,
    flip_by_matrix,
    flip_pairwise,
    flip_symmetric,
    flip_within_groups,
    human_labels,
    measured_transition,
)
from hardsight.noise.instances import flip_by_margin, flip_by_projection
from hardsight.noise.mappings import (
    CIFAR10_LOOKALIKES,
    CIFAR100_COARSE,
    MNIST_LOOKALIKES,
    next_in_group,
)
from hardsight.noise.open_set import OpenSetImages, background_images, replace_images

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
