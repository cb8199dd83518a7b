"""The 1,797 handwritten digits of 8 x 8 pixels that scikit-learn carries: the one real set that needs no download."""

from pathlib import Path

import numpy as np
import torch

from hardsight.datasets.interface import ArrayDataset


def read_digits(folder: Path | None = None, split: str = "all") -> ArrayDataset:
    """scikit-learn's digits, their 17 grey levels spread over 0 to 255; there is no official split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return ArrayDataset(
        images=torch.from_numpy(images).unsqueeze(1),
        labels=torch.from_numpy(bunch.target.astype(np.int64)),
        class_names=tuple(str(digit) for digit in range(10)),
        name="digits",
        split=split,
    )
