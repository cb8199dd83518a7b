"""Small sets: MNIST and those in its format (Fashion-MNIST, KMNIST), USPS, SVHN, scikit-learn's digits, AVH's toy.

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
import torch

from hardsight.datasets.formats import first_file, load_matlab
from hardsight.datasets.interface import ArrayDataset, from_arrays
from hardsight.datasets.registry import source
from hardsight.files import RefusedError, check_unpacked, plain_file, reading
from hardsight.names import check_name

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IDX_PREFIX = {"train": "train", "test": "t10k"}
_USPS_FILES, _USPS_SIDE = {"train": "usps", "test": "usps.t"}, 16
# Ten times the published training set and its images: a few bytes of bz2 can become any number of lines.
_MOST_BYTES, _MOST_IMAGES = 200_000_000, 73_000


def _read_idx_pair(name: str, folder: Path | str, split: str = "train") -> ArrayDataset:
    """MNIST or a set in its format, uint8 [N, 1, 28, 28]."""
    check_name("split", split, _IDX_PREFIX)
    image_file, label_file = (
        # Unpackers differ in the separator: "train-images-idx3-ubyte" and "train-images.idx3-ubyte" are both common.
        first_file([Path(folder) / f"{_IDX_PREFIX[split]}-{kind}{end}" for kind in kinds for end in ("", ".gz")])
        for kinds in (("images-idx3-ubyte", "images.idx3-ubyte"), ("labels-idx1-ubyte", "labels.idx1-ubyte"))
    )
    images, labels, classes = read_idx(image_file), read_idx(label_file), source(name).classes
    if images.dtype != np.uint8 or images.ndim != 3 or 0 in images.shape[1:]:
        raise ValueError(f"{image_file} must hold uint8 [N, H, W]; got {images.dtype} {list(images.shape)}")
    if labels.shape != (len(images),):
        raise ValueError(f"{label_file} must hold {len(images)} labels, one an image; got {list(labels.shape)}")
    if len(labels) and int(labels.max()) >= len(classes):
        raise ValueError(f"{label_file} must hold labels below {len(classes)}; got {int(labels.max())}")
    # A copy, because what is read from a file cannot be written to.
    return from_arrays(name, split, images[:, None].copy(), labels, classes)


read_mnist = functools.partial(_read_idx_pair, "mnist")
read_fashion_mnist = functools.partial(_read_idx_pair, "fashion-mnist")
read_kmnist = functools.partial(_read_idx_pair, "kmnist")


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
    path = first_file([Path(folder) / f"{_USPS_FILES[split]}{end}" for end in (".bz2", "")])
    values, digits = _parse_usps(path)
    if digits.min() < 1 or digits.max() > 10 or not np.array_equal(digits, np.rint(digits)):
        raise ValueError(f"{path} must hold labels 1 to 10; got {digits.min():g} to {digits.max():g}")
    if not np.abs(values).max() <= 1:  # written this way, NaN is rejected too
        raise ValueError(f"{path} must hold values in [-1, 1]; got {np.abs(values).max():g}")
    images = np.rint((values + 1) * 127.5).astype(np.uint8).reshape(-1, 1, _USPS_SIDE, _USPS_SIDE)
    return from_arrays("usps", split, images, digits - 1, source("usps").classes)


def _parse_usps(path: Path) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    opened = bz2.open if path.suffix == ".bz2" else open
    with reading(path, "a file of bz2: it does not decompress"), opened(plain_file(path), "rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path} must hold at most {_MOST_BYTES:,} bytes of text; it goes on after them")
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
    return from_arrays(
        "svhn", split, images.transpose(3, 2, 0, 1), digits.astype(np.int64) % 10, source("svhn").classes
    )


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
    return from_arrays("digits", split, images[:, None], bunch.target, source("digits").classes)
