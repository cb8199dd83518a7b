"""CIFAR-10 and CIFAR-100 in both public layouts, Vehicles-10 made from CIFAR-100, and what people said about them.

Binary: records of one label byte (CIFAR-100: coarse, then fine), then 1,024 bytes each of red, green and blue.
Python: pickled dicts with the same rows under `data`, and the labels.
CIFAR-10H: `cifar10h-counts.npy`, votes on the test set, https://github.com/jcpeterson/cifar-10h. CIFAR-N:
`CIFAR-10_human.pt` and `CIFAR-100_human.pt`, labels of the training set, https://github.com/UCSC-REAL/cifar-10-100n,
or the same arrays as `.npz`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardsight.datasets.formats import NotArraysError, finished, first_file, load_arrays, stand_ins
from hardsight.datasets.hierarchy import Hierarchy
from hardsight.datasets.interface import ArrayDataset, from_arrays
from hardsight.datasets.registry import source
from hardsight.files import RefusedError, check_unpacked, quoted, read_bytes, reading
from hardsight.files.arrays import npy_array, npz_arrays
from hardsight.files.pickled import load_checkpoint
from hardsight.names import check_name

_PIXELS = 3 * 32 * 32
_CIFAR10_FILES = {"train": tuple(f"data_batch_{part}" for part in range(1, 6)), "test": ("test_batch",)}
_CIFAR100_FILES = {"train": ("train",), "test": ("test",)}

CIFAR10_CLASSES, CIFAR100_CLASSES = source("cifar10").classes, source("cifar100").classes
CIFAR10_HIERARCHY = Hierarchy.from_groups(CIFAR10_CLASSES, source("cifar10").groups)
CIFAR100_HIERARCHY = Hierarchy.from_groups(CIFAR100_CLASSES, source("cifar100").groups)
VEHICLES10_CLASSES = source("vehicles10").classes


def read_cifar10(folder: Path | str, split: str = "train") -> ArrayDataset:
    """CIFAR-10, uint8 [N, 3, 32, 32], in the official order."""
    images, labels = _read(Path(folder), _CIFAR10_FILES, split, (CIFAR10_CLASSES,))
    return from_arrays("cifar10", split, images, labels[0], CIFAR10_CLASSES)


def read_cifar100(folder: Path | str, split: str = "train", *, granularity: str = "fine") -> ArrayDataset:
    """CIFAR-100, uint8 [N, 3, 32, 32]; labelled by its 100 "fine" or 20 "coarse" classes, the others in `columns`."""
    check_name("granularity", granularity, ("fine", "coarse"))
    names = {"fine": CIFAR100_CLASSES, "coarse": CIFAR100_HIERARCHY.coarse_names}
    images, (fine, *found) = _read(Path(folder), _CIFAR100_FILES, split, tuple(names.values()))
    coarse = found[0] if found else np.array(CIFAR100_HIERARCHY.parents)[fine]
    if granularity == "fine":
        return from_arrays("cifar100", split, images, fine, names["fine"], coarse_labels=coarse)
    return from_arrays("cifar100", split, images, coarse, names["coarse"], fine_labels=fine)


def read_vehicles10(folder: Path | str, split: str = "train") -> ArrayDataset:
    """The ten vehicle classes of CIFAR-100 (GR, Appendix C); ids are positions in CIFAR-100."""
    whole = read_cifar100(folder, split)
    place = torch.full((whole.num_classes,), -1)
    place[[CIFAR100_CLASSES.index(fine) for fine in VEHICLES10_CLASSES]] = torch.arange(len(VEHICLES10_CLASSES))
    part = whole.subset((place[whole.labels] >= 0).nonzero().squeeze(1))
    return dataclasses.replace(part, labels=place[part.labels], class_names=VEHICLES10_CLASSES, name="vehicles10")


def _read(
    folder: Path, files: Mapping[str, tuple[str, ...]], split: str, classes: tuple[tuple[str, ...], ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Images, and a row of labels for each kind of classes that the files have: fine, then coarse."""
    check_name("split", split, files)
    binary = any((folder / f"{name}.bin").exists() for name in files[split])
    parts = []
    for name in files[split]:
        path = folder / f"{name}.bin" if binary else folder / name
        images, labels = _read_binary(path, len(classes)) if binary else _read_python(path, len(classes))
        for row, names in zip(labels, classes, strict=False):
            if len(row) and not 0 <= int(row.min()) <= int(row.max()) < len(names):
                got = f"{int(row.min())} to {int(row.max())}"
                raise ValueError(f"{path} must hold labels in [0, {len(names) - 1}]; got {got}")
        parts.append((images.reshape(-1, 3, 32, 32), labels))
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts], axis=1)


def _read_binary(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    record = label_bytes + _PIXELS
    raw = np.frombuffer(read_bytes(path), np.uint8)
    if not len(raw) or len(raw) % record:
        raise ValueError(f"{path} is truncated: it must hold whole records of {record} bytes; got {len(raw)} bytes")
    rows = raw.reshape(-1, record)
    # The fine label is next to the pixels.
    return rows[:, label_bytes:], rows[:, :label_bytes].T[::-1]


def _read_python(path: Path, label_rows: int) -> tuple[np.ndarray, np.ndarray]:
    content = load_arrays(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dict; got {type(content).__name__}")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    pixels, labels = batch.get("data"), batch.get("labels", batch.get("fine_labels"))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"{path} must hold uint8 [N, {_PIXELS}] under data")
    rows = [np.asarray(row) for row in (labels, batch.get("coarse_labels")) if row is not None]
    if not rows or any(row.shape != (len(pixels),) or row.dtype.kind not in "iu" for row in rows):
        raise ValueError(f"{path} must hold {len(pixels)} whole-number labels, one an image")
    return pixels, np.stack(rows[:label_rows])


# Beside the images, beside their folder, or in a clone of the repository that publishes them.
_PLACES = (".", "..", "../cifar-10h/data", "../CIFAR-10H", "../cifar-10-100n/data", "../CIFAR-N", "../cifar-n")


def read_cifar10h(folder: Path | str, split: str = "test") -> ArrayDataset:
    """CIFAR-10's test set with the column `human_votes`, int64 [N, 10]: how many people chose each class."""
    check_name("split", split, ("test",))
    path = first_file([Path(folder) / place / "cifar10h-counts.npy" for place in _PLACES])
    images = read_cifar10(folder, split)
    votes = npy_array(path).read()
    if votes.shape != (len(images), images.num_classes) or votes.dtype.kind not in "iuf":
        wanted, got = f"[{len(images)}, {images.num_classes}], one row an image", f"{votes.dtype} {list(votes.shape)}"
        raise ValueError(f"{path} must hold counts {wanted}; got {got}")
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
        content: Any = {array.key: array.read() for array in stored}
    else:
        with reading(path, "a file of arrays"), torch.serialization.safe_globals(stand_ins()):
            try:
                # NumPy's own words would set whatever flags a file gives a number type.
                content = finished(load_checkpoint(path))
            except NotArraysError as error:
                sentence = f"{path} is rejected: it holds more than arrays of numbers; nothing of it was run"
                raise RefusedError(sentence) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dict of arrays; got {type(content).__name__}")
    columns = {}
    for key, value in content.items():
        with reading(path, "a file of arrays"):
            # The published file of CIFAR-100N has its coarse labels in lists.
            array = np.asarray(value)
        if array.dtype.kind not in "iu":
            raise ValueError(f"{path} must hold whole numbers; {quoted(key)} holds {array.dtype}")
        columns[str(key)] = torch.from_numpy(array.astype(np.int64))
    return columns


def _with_human(
    read: Callable[..., ArrayDataset], folder: Path | str, split: str, stem: str, labels: str, name: str
) -> ArrayDataset:
    check_name("split", split, ("train",))
    path = first_file([Path(folder) / place / f"{stem}{end}" for place in _PLACES for end in (".npz", ".pt")])
    columns = load_human_labels(path)
    images = read(folder, split)
    for key, column in columns.items():
        if column.shape != images.labels.shape:
            got = list(column.shape)
            raise ValueError(f"{path} must hold {len(images)} labels in {key}, one an image; got {got}")
    check_name("labels", labels, columns)
    if not torch.equal(columns.get("clean_label", images.labels), images.labels):
        raise ValueError(f"{path} belongs to images in another order: its clean_label differs from their labels")
    named = dataclasses.replace(images, name=name, columns={**images.columns, **columns})
    if labels.endswith("coarse_label"):
        return dataclasses.replace(named, labels=columns[labels], class_names=CIFAR100_HIERARCHY.coarse_names)
    return named.with_labels(columns[labels])
