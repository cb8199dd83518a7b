"""SVHN, cropped digits: `{train,test,extra}_32x32.mat` with X [32, 32, 3, N] and y [N, 1], where 10 stands for 0."""

from pathlib import Path

import numpy as np
import torch

from hardsight.datasets.interface import ArrayDataset
from hardsight.datasets.matlab import load_matlab


def read_svhn(folder: Path | str, split: str = "train") -> ArrayDataset:
    """SVHN, uint8 [N, 3, 32, 32]; label d is digit d."""
    if split not in ("train", "test", "extra"):
        raise ValueError(f'split must be "train", "test" or "extra"; got {split!r}')
    path = Path(folder) / f"{split}_32x32.mat"
    images, digits = load_matlab(path, "X"), load_matlab(path, "y").reshape(-1)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise ValueError(f"{path} must hold X as uint8 [32, 32, 3, N]; got {images.dtype} {list(images.shape)}")
    if len(digits) != images.shape[3] or not np.isin(digits, range(1, 11)).all():
        raise ValueError(f"{path} must hold {images.shape[3]} labels y from 1 to 10; its {len(digits)} are not")
    return ArrayDataset(
        images=torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1))),
        labels=torch.from_numpy(digits.astype(np.int64) % 10),
        class_names=tuple(str(digit) for digit in range(10)),
        name="svhn",
        split=split,
    )
