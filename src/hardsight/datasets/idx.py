"""IDX files, gzipped or not: MNIST, Fashion-MNIST, KMNIST.

Format: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian uint32, the values.
"""

import gzip
import io
import math
import struct
from pathlib import Path

import numpy as np
import torch

from hardsight.datasets.interface import ArrayDataset
from hardsight.files import RefusedError, check_unpacked, plain_file, reading

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PREFIX = {"train": "train", "test": "t10k"}

DIGITS = tuple(str(digit) for digit in range(10))
# https://github.com/zalandoresearch/fashion-mnist, table of labels.
FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
# https://github.com/rois-codh/kmnist: kmnist_classmap.csv, romanised.
KUZUSHIJI = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


def read_mnist(folder: Path | str, split: str = "train") -> ArrayDataset:
    """MNIST, uint8 [N, 1, 28, 28]."""
    return _read(Path(folder), split, "mnist", DIGITS)


def read_fashion_mnist(folder: Path | str, split: str = "train") -> ArrayDataset:
    """Fashion-MNIST, uint8 [N, 1, 28, 28]."""
    return _read(Path(folder), split, "fashion-mnist", FASHION)


def read_kmnist(folder: Path | str, split: str = "train") -> ArrayDataset:
    """Kuzushiji-MNIST, uint8 [N, 1, 28, 28]."""
    return _read(Path(folder), split, "kmnist", KUZUSHIJI)


def read_idx(path: Path | str) -> np.ndarray:
    """The array in an IDX file; one that is shorter or longer than its header says is refused."""
    path = plain_file(path)
    with (
        reading(path, "an IDX file: it does not decompress"),
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
    ):
        return _parse(file, path)


def _parse(file: io.BufferedIOBase, path: Path) -> np.ndarray:
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        raise RefusedError(f"{path} is not an IDX file: its first bytes are {head.hex(' ') or 'missing'}")
    sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise RefusedError(f"{path} is truncated: it ends within its header")
    shape = struct.unpack(f">{head[3]}I", sizes)
    dtype = np.dtype(_TYPES[head[2]])
    wanted = math.prod(shape) * dtype.itemsize
    size = path.stat().st_size
    check_unpacked(path, wanted if path.suffix == ".gz" else min(wanted, size), size)
    # One byte more than promised shows a file that goes on, without reading all that follows.
    values = _read_at_most(file, wanted + 1)
    if len(values) != wanted:
        state = "is truncated" if len(values) < wanted else "goes on after its end"
        held = f"{len(values)}" if len(values) < wanted else "more"
        raise RefusedError(f"{path} {state}: its header promises {wanted} bytes of values, it holds {held}")
    return np.frombuffer(values, dtype).reshape(shape)


def _read_at_most(file: io.BufferedIOBase, limit: int) -> bytes:
    """Block by block, so that a header which promises too much reserves no memory."""
    blocks = bytearray()
    while len(blocks) < limit and (block := file.read(min(limit - len(blocks), 1 << 24))):
        blocks += block
    return bytes(blocks)


def _read(folder: Path, split: str, name: str, class_names: tuple[str, ...]) -> ArrayDataset:
    if split not in _PREFIX:
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    image_file = _file(folder, f"{_PREFIX[split]}-images", "idx3-ubyte")
    label_file = _file(folder, f"{_PREFIX[split]}-labels", "idx1-ubyte")
    images, labels = read_idx(image_file), read_idx(label_file)
    if images.dtype != np.uint8 or images.ndim != 3 or 0 in images.shape[1:]:
        raise ValueError(f"{image_file} must hold uint8 [N, H, W]; got {images.dtype} {list(images.shape)}")
    if labels.shape != (len(images),):
        raise ValueError(f"{label_file} must hold {len(images)} labels, one an image; got {list(labels.shape)}")
    if len(labels) and int(labels.max()) >= len(class_names):
        raise ValueError(f"{label_file} must hold labels below {len(class_names)}; got {int(labels.max())}")
    return ArrayDataset(
        images=torch.from_numpy(images.copy()).unsqueeze(1),
        labels=torch.from_numpy(labels.astype(np.int64)),
        class_names=class_names,
        name=name,
        split=split,
    )


def _file(folder: Path, stem: str, kind: str) -> Path:
    # Unpackers differ in the separator: "train-images-idx3-ubyte" and "train-images.idx3-ubyte" are both about.
    for name in (f"{stem}-{kind}", f"{stem}-{kind}.gz", f"{stem}.{kind}", f"{stem}.{kind}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder / f'{stem}-{kind}'} (or the same with .gz) is not there")
