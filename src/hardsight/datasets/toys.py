"""Sets that need nothing on disk: AVH's toy of Appendix A (Figure 7), and scikit-learn's 1,797 digits.

The toy is two overlapping Gaussians in space, projected onto the unit sphere.
"""

import math
from pathlib import Path

import numpy as np
import torch

from hardsight.datasets.interface import ArrayDataset, from_arrays


def two_gaussians_on_sphere(
    samples_per_class: int = 1000,
    *,
    angle_radians: float = math.pi / 3,
    spread: float = 0.35,
    generator: torch.Generator,
) -> ArrayDataset:
    """Unit vectors float32 [2N, 3]: normal around two unit means `angle_radians` apart, then normalised.

    The paper gives the number of points (1,000 a class) and that the classes overlap; means and `spread`, the standard
    deviation in each direction, are this project's choice.
    """
    if samples_per_class < 1:
        raise ValueError(f"samples_per_class must be at least 1; got {samples_per_class}")
    if spread < 0 or not math.isfinite(spread):
        raise ValueError(f"spread must be a standard deviation, finite and at least 0; got {spread}")
    if not math.isfinite(angle_radians):
        raise ValueError(f"angle_radians must be finite; got {angle_radians}")
    half = angle_radians / 2
    means = torch.tensor([[math.cos(half), -math.sin(half), 0.0], [math.cos(half), math.sin(half), 0.0]])
    labels = torch.arange(2).repeat_interleave(samples_per_class)
    points = means[labels] + spread * torch.randn(2 * samples_per_class, 3, generator=generator)
    return ArrayDataset(
        images=torch.nn.functional.normalize(points, dim=1),
        labels=labels,
        class_names=("left", "right"),
        name="two-gaussians",
        split="all",
    )


def read_two_gaussians(
    folder: Path | None = None, split: str = "all", *, samples_per_class: int = 1000, seed: int = 0
) -> ArrayDataset:
    """`two_gaussians_on_sphere` by seed, for `load`."""
    return two_gaussians_on_sphere(samples_per_class, generator=torch.Generator().manual_seed(seed))


def read_digits(folder: Path | None = None, split: str = "all") -> ArrayDataset:
    """scikit-learn's digits, their 17 grey levels spread over 0 to 255; there is no official split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return from_arrays("digits", split, images[:, None], bunch.target, [str(digit) for digit in range(10)])
