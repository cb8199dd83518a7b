"""CIFAR-10 and CIFAR-100 in both public layouts (binary and python pickles), and Vehicles-10 made from CIFAR-100.

Binary: records of one label byte (CIFAR-100: coarse, then fine), then 1,024 bytes each of red, green and blue.
Python: pickled dicts with the same rows under `data`, and the labels.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hardsight.datasets.formats import load_arrays
from hardsight.datasets.hierarchy import Hierarchy
from hardsight.datasets.interface import ArrayDataset
from hardsight.files import read_bytes
from hardsight.names import check_name

_PIXELS = 3 * 32 * 32
_CIFAR10_FILES = {"train": tuple(f"data_batch_{part}" for part in range(1, 6)), "test": ("test_batch",)}
_CIFAR100_FILES = {"train": ("train",), "test": ("test",)}

# Source: https://www.cs.toronto.edu/~kriz/cifar.html; labels count the names in alphabetical order.
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR10_HIERARCHY = Hierarchy.from_groups(
    CIFAR10_CLASSES,
    {
        "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
        "vehicle": ("airplane", "automobile", "ship", "truck"),
    },
)

_CIFAR100_GROUPS = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}

CIFAR100_CLASSES = tuple(sorted(fine for members in _CIFAR100_GROUPS.values() for fine in members))
CIFAR100_HIERARCHY = Hierarchy.from_groups(CIFAR100_CLASSES, _CIFAR100_GROUPS)

# GR, Appendix C: the fine classes of vehicles 1, then of vehicles 2, in the order printed there.
VEHICLES10_CLASSES = _CIFAR100_GROUPS["vehicles_1"] + _CIFAR100_GROUPS["vehicles_2"]


class _Rows(NamedTuple):
    images: np.ndarray
    labels: np.ndarray
    coarse: np.ndarray | None


def read_cifar10(folder: Path | str, split: str = "train") -> ArrayDataset:
    """CIFAR-10, uint8 [N, 3, 32, 32], in the official order."""
    rows = _read(Path(folder), _CIFAR10_FILES, split, label_bytes=1)
    return ArrayDataset(
        images=torch.from_numpy(rows.images),
        labels=torch.from_numpy(rows.labels),
        class_names=CIFAR10_CLASSES,
        name="cifar10",
        split=split,
    )


def read_cifar100(folder: Path | str, split: str = "train", *, granularity: str = "fine") -> ArrayDataset:
    """CIFAR-100, uint8 [N, 3, 32, 32]; labelled by its 100 "fine" or 20 "coarse" classes, the others in `columns`."""
    rows = _read(Path(folder), _CIFAR100_FILES, split, label_bytes=2)
    fine = torch.from_numpy(rows.labels)
    coarse = CIFAR100_HIERARCHY.coarsen(fine) if rows.coarse is None else torch.from_numpy(rows.coarse)
    check_name("granularity", granularity, ("fine", "coarse"))
    chosen = fine if granularity == "fine" else coarse
    return ArrayDataset(
        images=torch.from_numpy(rows.images),
        labels=chosen,
        class_names=CIFAR100_CLASSES if granularity == "fine" else CIFAR100_HIERARCHY.coarse_names,
        columns={"coarse_labels": coarse} if granularity == "fine" else {"fine_labels": fine},
        name="cifar100",
        split=split,
    )


def read_vehicles10(folder: Path | str, split: str = "train") -> ArrayDataset:
    """The ten vehicle classes of CIFAR-100 (GR, Appendix C); ids are positions in CIFAR-100."""
    whole = read_cifar100(folder, split)
    place = torch.full((whole.num_classes,), -1)
    place[[CIFAR100_CLASSES.index(fine) for fine in VEHICLES10_CLASSES]] = torch.arange(len(VEHICLES10_CLASSES))
    part = whole.subset((place[whole.labels] >= 0).nonzero().squeeze(1))
    return dataclasses.replace(part, labels=place[part.labels], class_names=VEHICLES10_CLASSES, name="vehicles10")


def _read(folder: Path, files: Mapping[str, tuple[str, ...]], split: str, label_bytes: int) -> _Rows:
    check_name("split", split, files)
    names = files[split]
    if any((folder / f"{name}.bin").exists() for name in names):
        parts = [_read_binary(folder / f"{name}.bin", label_bytes) for name in names]
    else:
        parts = [_read_python(folder / name) for name in names]
    coarse = [part.coarse for part in parts if part.coarse is not None]
    return _Rows(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(coarse) if coarse else None,
    )


def _read_binary(path: Path, label_bytes: int) -> _Rows:
    record = label_bytes + _PIXELS
    raw = np.frombuffer(read_bytes(path), np.uint8)
    if not len(raw) or len(raw) % record:
        raise ValueError(f"{path} is truncated: it must hold whole records of {record} bytes; got {len(raw)} bytes")
    rows = raw.reshape(-1, record)
    labels = rows[:, label_bytes - 1].astype(np.int64)
    _check_labels(path, labels, 10 if label_bytes == 1 else 100)
    images = rows[:, label_bytes:].reshape(-1, 3, 32, 32).copy()
    coarse = rows[:, 0].astype(np.int64) if label_bytes == 2 else None
    _check_coarse(path, coarse)
    return _Rows(images, labels, coarse)


def _read_python(path: Path) -> _Rows:
    content = load_arrays(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dict; got {type(content).__name__}")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    pixels, labels = batch.get("data"), batch.get("labels", batch.get("fine_labels"))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"{path} must hold uint8 [N, {_PIXELS}] under data")
    columns = [np.asarray(column) for column in (labels, batch.get("coarse_labels")) if column is not None]
    if not columns or any(column.shape != (len(pixels),) or column.dtype.kind not in "iu" for column in columns):
        raise ValueError(f"{path} must hold {len(pixels)} whole-number labels, one an image")
    _check_labels(path, columns[0], 100 if "fine_labels" in batch else 10)
    coarse = columns[1].astype(np.int64) if len(columns) == 2 else None
    _check_coarse(path, coarse)
    return _Rows(pixels.reshape(-1, 3, 32, 32).copy(), columns[0].astype(np.int64), coarse)


def _check_coarse(path: Path, coarse: np.ndarray | None) -> None:
    if coarse is not None:
        _check_labels(path, coarse, len(CIFAR100_HIERARCHY.coarse_names))


def _check_labels(path: Path, labels: np.ndarray, num_classes: int) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(
            f"{path} must hold labels in [0, {num_classes - 1}]; got {int(labels.min())} to {int(labels.max())}"
        )
