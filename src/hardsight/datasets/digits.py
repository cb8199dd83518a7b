"""Small handwritten digits: the 1,797 of scikit-learn, 8 x 8 pixels and part of its package, and USPS.

USPS is libsvm text, bz2-compressed or not: `label index:value ...`, labels 1 to 10, values -1 to 1.
"""

import bz2
import io
from pathlib import Path

import numpy as np
import torch

from hardsight.datasets.interface import ArrayDataset
from hardsight.files import plain_file, read_bytes, reading


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


_USPS_FILES = {"train": "usps", "test": "usps.t"}
_USPS_SIDE = 16
# Ten times the published training set and its images: a few bytes of bz2 can become any number of lines.
_MOST_BYTES, _MOST_IMAGES = 200_000_000, 73_000


def read_usps(folder: Path | str, split: str = "train") -> ArrayDataset:
    """USPS, uint8 [N, 1, 16, 16]: -1 becomes 0, 1 becomes 255, rounded to the nearest grey level."""
    if split not in _USPS_FILES:
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    path = _usps_file(Path(folder), _USPS_FILES[split])
    values, digits = _parse(_text(path), path)
    if digits.min() < 1 or digits.max() > 10 or not np.array_equal(digits, np.rint(digits)):
        raise ValueError(f"{path} must hold labels 1 to 10; got {digits.min():g} to {digits.max():g}")
    if not np.abs(values).max() <= 1:  # so written, NaN is refused too
        raise ValueError(f"{path} must hold values in [-1, 1]; got {np.abs(values).max():g}")
    images = np.rint((values + 1) * 127.5).astype(np.uint8).reshape(-1, 1, _USPS_SIDE, _USPS_SIDE)
    return ArrayDataset(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(digits.astype(np.int64) - 1),
        class_names=tuple(str(digit) for digit in range(10)),
        name="usps",
        split=split,
    )


def _parse(text: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    # A line of two letters is an image, too.
    if text.count(b"\n") > _MOST_IMAGES:
        raise ValueError(f"{path} must hold at most {_MOST_IMAGES:,} images; it has {text.count(bytes([10])):,} lines")
    with reading(path, f"libsvm text of {_USPS_SIDE * _USPS_SIDE} features", reason=True):
        # libsvm leaves zeros out: the sparse reader puts them back.
        values, digits = load_svmlight_file(io.BytesIO(text), n_features=_USPS_SIDE * _USPS_SIDE, zero_based=False)
    if not len(digits):
        raise ValueError(f"{path} is empty")
    return values.toarray(), digits


def _text(path: Path) -> bytes:
    if path.suffix != ".bz2":
        return read_bytes(path, _MOST_BYTES)
    with reading(path, "a file of bz2: it does not decompress"), bz2.open(plain_file(path)) as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path} must hold at most {_MOST_BYTES:,} bytes of text; it goes on after them")
    return text


def _usps_file(folder: Path, name: str) -> Path:
    for candidate in (folder / f"{name}.bz2", folder / name):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{folder / name}.bz2 (or the same without .bz2) is not there")
