"""MNIST and the sets in its format (Fashion-MNIST, KMNIST), USPS and SVHN.

IDX: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian uint32, the values.
USPS: libsvm text, bz2-compressed or not: `label index:value ...`, labels 1 to 10, values -1 to 1.
SVHN: `{train,test,extra}_32x32.mat` with X [32, 32, 3, N] and y [N, 1], where 10 is 0.
"""

import bz2
import functools
import gzip
import io
import math
import struct
from pathlib import Path

import numpy as np

from hardsight.datasets.formats import load_matlab
from hardsight.datasets.interface import ArrayDataset, from_arrays
from hardsight.files import RefusedError, check_unpacked, plain_file, read_bytes, reading
from hardsight.names import check_name

DIGITS = tuple(str(digit) for digit in range(10))
# https://github.com/zalandoresearch/fashion-mnist, table of labels.
FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
# https://github.com/rois-codh/kmnist: kmnist_classmap.csv, romanised.
KUZUSHIJI = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IDX_PREFIX = {"train": "train", "test": "t10k"}
_USPS_FILES, _USPS_SIDE = {"train": "usps", "test": "usps.t"}, 16
# Ten times the published training set and its images: a few bytes of bz2 can become any number of lines.
_MOST_BYTES, _MOST_IMAGES = 200_000_000, 73_000


def _read_idx_pair(name: str, class_names: tuple[str, ...], folder: Path | str, split: str = "train") -> ArrayDataset:
    """MNIST or a set in its format, uint8 [N, 1, 28, 28]."""
    check_name("split", split, _IDX_PREFIX)
    image_file = _find_idx(Path(folder), f"{_IDX_PREFIX[split]}-images", "idx3-ubyte")
    label_file = _find_idx(Path(folder), f"{_IDX_PREFIX[split]}-labels", "idx1-ubyte")
    images, labels = read_idx(image_file), read_idx(label_file)
    if images.dtype != np.uint8 or images.ndim != 3 or 0 in images.shape[1:]:
        raise ValueError(f"{image_file} must hold uint8 [N, H, W]; got {images.dtype} {list(images.shape)}")
    if labels.shape != (len(images),):
        raise ValueError(f"{label_file} must hold {len(images)} labels, one an image; got {list(labels.shape)}")
    if len(labels) and int(labels.max()) >= len(class_names):
        raise ValueError(f"{label_file} must hold labels below {len(class_names)}; got {int(labels.max())}")
    # A copy, because what is read from a file cannot be written to.
    return from_arrays(name, split, images[:, None].copy(), labels, class_names)


read_mnist = functools.partial(_read_idx_pair, "mnist", DIGITS)
read_fashion_mnist = functools.partial(_read_idx_pair, "fashion-mnist", FASHION)
read_kmnist = functools.partial(_read_idx_pair, "kmnist", KUZUSHIJI)


def _find_idx(folder: Path, stem: str, kind: str) -> Path:
    # Unpackers differ in the separator: "train-images-idx3-ubyte" and "train-images.idx3-ubyte" are both common.
    for name in (f"{stem}-{kind}", f"{stem}-{kind}.gz", f"{stem}.{kind}", f"{stem}.{kind}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder / f'{stem}-{kind}'} (or the same with .gz) is not there")


def read_idx(path: Path | str) -> np.ndarray:
    """The array in an IDX file; one that is shorter or longer than its header says is rejected."""
    path = plain_file(path)
    with (
        reading(path, "an IDX file: it does not decompress"),
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
    ):
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
            raise RefusedError(f"{path} is not an IDX file: its first bytes are {head.hex(' ') or 'missing'}")
        sizes = file.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise RefusedError(f"{path} is truncated: it ends within its header")
        shape = struct.unpack(f">{head[3]}I", sizes)
        dtype = np.dtype(_IDX_TYPES[head[2]])
        wanted, size = math.prod(shape) * dtype.itemsize, path.stat().st_size
        check_unpacked(path, wanted if path.suffix == ".gz" else min(wanted, size), size)
        # Block by block, so that a header which promises too much reserves no memory; one byte more than promised shows
        # a file that goes on, without reading all that follows.
        values = bytearray()
        while len(values) <= wanted and (block := file.read(min(wanted + 1 - len(values), 1 << 24))):
            values += block
    if len(values) != wanted:
        state, held = ("is truncated", len(values)) if len(values) < wanted else ("goes on after its end", "more")
        raise RefusedError(f"{path} {state}: its header promises {wanted} bytes of values, it holds {held}")
    return np.frombuffer(bytes(values), dtype).reshape(shape)


def read_usps(folder: Path | str, split: str = "train") -> ArrayDataset:
    """USPS, uint8 [N, 1, 16, 16]: -1 becomes 0, 1 becomes 255, rounded to the nearest grey level."""
    check_name("split", split, _USPS_FILES)
    plain = Path(folder) / _USPS_FILES[split]
    path = next((one for one in (Path(f"{plain}.bz2"), plain) if one.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{plain}.bz2 (or the same without .bz2) is not there")
    values, digits = _parse_usps(_usps_text(path), path)
    if digits.min() < 1 or digits.max() > 10 or not np.array_equal(digits, np.rint(digits)):
        raise ValueError(f"{path} must hold labels 1 to 10; got {digits.min():g} to {digits.max():g}")
    if not np.abs(values).max() <= 1:  # written this way, NaN is rejected too
        raise ValueError(f"{path} must hold values in [-1, 1]; got {np.abs(values).max():g}")
    images = np.rint((values + 1) * 127.5).astype(np.uint8).reshape(-1, 1, _USPS_SIDE, _USPS_SIDE)
    return from_arrays("usps", split, images, digits - 1, DIGITS)


def _usps_text(path: Path) -> bytes:
    if path.suffix != ".bz2":
        return read_bytes(path, _MOST_BYTES)
    with reading(path, "a file of bz2: it does not decompress"), bz2.open(plain_file(path)) as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path} must hold at most {_MOST_BYTES:,} bytes of text; it goes on after them")
    return text


def _parse_usps(text: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
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


def read_svhn(folder: Path | str, split: str = "train") -> ArrayDataset:
    """SVHN, uint8 [N, 3, 32, 32]; label d is digit d."""
    check_name("split", split, ("train", "test", "extra"))
    path = Path(folder) / f"{split}_32x32.mat"
    images, digits = load_matlab(path, "X"), load_matlab(path, "y").reshape(-1)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise ValueError(f"{path} must hold X as uint8 [32, 32, 3, N]; got {images.dtype} {list(images.shape)}")
    if len(digits) != images.shape[3] or not np.isin(digits, range(1, 11)).all():
        raise ValueError(f"{path} must hold {images.shape[3]} labels y from 1 to 10; its {len(digits)} are not")
    return from_arrays("svhn", split, images.transpose(3, 2, 0, 1), digits.astype(np.int64) % 10, DIGITS)
