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

from hardsight.datasets.formats import NotArraysError, finished, load_arrays, stand_ins
from hardsight.datasets.hierarchy import Hierarchy
from hardsight.datasets.interface import ArrayDataset, from_arrays
from hardsight.files import RefusedError, check_unpacked, quoted, read_bytes, reading
from hardsight.files.arrays import npy_array, npz_arrays
from hardsight.files.pickled import load_checkpoint
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
        images, labels = _read_binary(path, len(classes)) if binary else _read_python(path)
        labels = labels[: len(classes)]
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


def _read_python(path: Path) -> tuple[np.ndarray, np.ndarray]:
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
    return pixels, np.stack(rows)


# Beside the images, beside their folder, or in a clone of the repository that publishes them.
_PLACES = (".", "..", "../cifar-10h/data", "../CIFAR-10H", "../cifar-10-100n/data", "../CIFAR-N", "../cifar-n")


def read_cifar10h(folder: Path | str, split: str = "test") -> ArrayDataset:
    """CIFAR-10's test set with the column `human_votes`, int64 [N, 10]: how many people chose each class."""
    check_name("split", split, ("test",))
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
        content: Any = {array.key: array.read() for array in stored}
    else:
        content = _load_pt(path)
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


def _load_pt(path: Path) -> Any:
    with reading(path, "a file of arrays"), torch.serialization.safe_globals(stand_ins()):
        try:
            # NumPy's own words would set whatever flags a file gives a number type.
            return finished(load_checkpoint(path))
        except NotArraysError as error:
            raise RefusedError(
                f"{path} is rejected: it holds more than arrays of numbers; nothing of it was run"
            ) from error
