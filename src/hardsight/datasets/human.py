"""What people said about CIFAR: CIFAR-10H (votes on the test set), CIFAR-10N/100N (labels of the training set).

CIFAR-10H: `cifar10h-counts.npy`, https://github.com/jcpeterson/cifar-10h. CIFAR-N: `CIFAR-10_human.pt` and
`CIFAR-100_human.pt`, https://github.com/UCSC-REAL/cifar-10-100n, or the same arrays as `.npz`.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hardsight.datasets.cifar import CIFAR100_HIERARCHY, read_cifar10, read_cifar100
from hardsight.datasets.formats import NotArraysError, finished, stand_ins
from hardsight.datasets.interface import ArrayDataset
from hardsight.files import RefusedError, check_unpacked, reading
from hardsight.files.arrays import npy_array, npz_arrays
from hardsight.files.pickled import load_checkpoint
from hardsight.names import check_name

# Beside the images, beside their folder, or in a clone of the repository that publishes them.
_PLACES = (".", "..", "../cifar-10h/data", "../CIFAR-10H", "../cifar-10-100n/data", "../CIFAR-N", "../cifar-n")


def read_cifar10h(folder: Path | str, split: str = "test") -> ArrayDataset:
    """CIFAR-10's test set with the column `human_votes`, int64 [N, 10]: how many people chose each class."""
    if split != "test":
        raise ValueError(f'split must be "test", the images that people were shown; got {split!r}')
    path = _find(Path(folder), ("cifar10h-counts.npy",))
    images = read_cifar10(folder, split)
    votes = npy_array(path).read()
    if votes.shape != (len(images), images.num_classes) or votes.dtype.kind not in "iuf":
        raise ValueError(
            f"{path} must hold counts [{len(images)}, {images.num_classes}], one row an image; "
            f"got {votes.dtype} {list(votes.shape)}"
        )
    # So written, NaN is rejected too; shares of the votes would all become 0.
    counts = (votes >= 0) & (votes == np.floor(votes)) & (votes < 2**53)
    if not counts.all():
        raise ValueError(f"{path} must hold counts of people, whole numbers from 0; got {votes[~counts][0]:g}")
    columns = {"human_votes": torch.from_numpy(votes.astype(np.int64))}
    return dataclasses.replace(images, name="cifar10h", columns=columns)


def read_cifar10n(folder: Path | str, split: str = "train", *, labels: str = "clean_label") -> ArrayDataset:
    """CIFAR-10's training set with every human label as a column; `labels` names the one to train on.

    clean_label, aggre_label, random_label1 to random_label3, worse_label.
    """
    return _with_human(read_cifar10, folder, split, "CIFAR-10_human", labels, "cifar10n")


def read_cifar100n(folder: Path | str, split: str = "train", *, labels: str = "clean_label") -> ArrayDataset:
    """CIFAR-100's training set with the columns clean_label, noisy_label and their coarse forms."""
    return _with_human(read_cifar100, folder, split, "CIFAR-100_human", labels, "cifar100n")


def load_human_labels(path: Path | str) -> dict[str, Tensor]:
    """The label columns of a CIFAR-N file, `.npz` or the published `.pt`, without running anything in it."""
    path = Path(path)
    if path.suffix == ".npz":
        stored = [array for array in npz_arrays(path).values() if array is not None]
        check_unpacked(path, sum(array.size for array in stored), path.stat().st_size)
        arrays = {array.key: array.read() for array in stored}
    else:
        arrays = _load_pt(path)
    for key, array in arrays.items():
        if array.dtype.kind not in "iu":
            raise ValueError(f"{path} must hold whole numbers; {key} holds {array.dtype}")
    return {key: torch.from_numpy(array.astype(np.int64)) for key, array in arrays.items()}


def _with_human(
    read: Callable[..., ArrayDataset], folder: Path | str, split: str, stem: str, labels: str, name: str
) -> ArrayDataset:
    if split != "train":
        raise ValueError(f'split must be "train", the images that people labelled; got {split!r}')
    path = _find(Path(folder), (f"{stem}.npz", f"{stem}.pt"))
    columns = load_human_labels(path)
    images = read(folder, split)
    wrong = {key: list(column.shape) for key, column in columns.items() if column.shape != images.labels.shape}
    if wrong:
        key, shape = next(iter(wrong.items()))
        raise ValueError(f"{path} must hold {len(images)} labels in {key}, one an image; got {shape}")
    check_name("labels", labels, columns)
    if not torch.equal(columns.get("clean_label", images.labels), images.labels):
        raise ValueError(f"{path} belongs to images in another order: its clean_label differs from their labels")
    named = dataclasses.replace(images, name=name, columns={**images.columns, **columns})
    if labels.endswith("coarse_label"):
        return dataclasses.replace(named, labels=columns[labels], class_names=CIFAR100_HIERARCHY.coarse_names)
    return named.with_labels(columns[labels])


def _find(folder: Path, names: tuple[str, ...]) -> Path:
    for place in _PLACES:
        for name in names:
            if (folder / place / name).is_file():
                return folder / place / name
    raise FileNotFoundError(f"{' or '.join(names)} was looked for in {folder} and beside it, and is not there")


def _load_pt(path: Path) -> dict[str, np.ndarray]:
    with reading(path, "a file of arrays"), torch.serialization.safe_globals(stand_ins()):
        try:
            # NumPy's own words would set whatever flags a file gives a number type.
            content = finished(load_checkpoint(path))
        except NotArraysError as error:
            raise RefusedError(
                f"{path} is rejected: it holds more than arrays of numbers; nothing of it was run"
            ) from error
    # The published file of CIFAR-100N has its coarse labels in lists.
    columns = content.values() if isinstance(content, dict) else [None]
    if not all(
        isinstance(one, np.ndarray | Tensor) or (isinstance(one, list) and all(type(number) is int for number in one))
        for one in columns
    ):
        raise ValueError(f"{path} must hold a dict of arrays; got {type(content).__name__}")
    return {str(key): np.asarray(value) for key, value in content.items()}
