"""IDX files: read as written; short, long and foreign ones are refused."""

import gzip
import struct

import numpy as np
import pytest
import torch

from hardsight.datasets.digits import read_fashion_mnist, read_idx, read_kmnist, read_mnist


def loop_reference(data: bytes) -> np.ndarray:
    """The format's description, one value at a time."""
    sizes = [int.from_bytes(data[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(data[3])]
    array = np.empty(sizes, np.uint8)
    position = 4 + 4 * data[3]
    for index in np.ndindex(*sizes):
        array[index] = data[position]
        position += 1
    return array


def test_it_is_the_array_that_the_format_describes(build):
    folder = build("mnist") / "MNIST" / "raw"
    for split, prefix in (("train", "train"), ("test", "t10k")):
        dataset = read_mnist(folder, split)
        images = loop_reference((folder / f"{prefix}-images-idx3-ubyte").read_bytes())
        labels = loop_reference((folder / f"{prefix}-labels-idx1-ubyte").read_bytes())
        np.testing.assert_array_equal(dataset.images[:, 0].numpy(), images)
        np.testing.assert_array_equal(dataset.labels.numpy(), labels)


def test_gzipped_and_plain_are_the_same(build):
    plain, packed = build("mnist") / "MNIST" / "raw", build("fashion-mnist") / "FashionMNIST" / "raw"
    assert torch.equal(read_mnist(plain).images, read_fashion_mnist(packed).images)
    assert read_fashion_mnist(packed).class_names[9] == "Ankle boot"
    assert read_kmnist(packed).class_names[0] == "o"


def test_the_dotted_names_are_known_too(build):
    folder = build("mnist") / "MNIST" / "raw"
    expected = read_mnist(folder)
    for path in list(folder.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert torch.equal(read_mnist(folder).images, expected.images)


@pytest.mark.parametrize(("code", "dtype"), [(0x09, "i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")])
def test_other_number_types(tmp_path, code, dtype):
    values = np.array([[1, -2], [3, 4]]).astype(dtype)
    path = tmp_path / "values"
    path.write_bytes(struct.pack(">BBBBII", 0, 0, code, 2, 2, 2) + values.tobytes())
    np.testing.assert_array_equal(read_idx(path), values)


@pytest.mark.parametrize("packed", [False, True])
def test_every_truncation_is_one_sentence(tmp_path, packed):
    whole = struct.pack(">BBBBI", 0, 0, 8, 1, 30) + bytes(30)
    data = gzip.compress(whole, mtime=0) if packed else whole
    path = tmp_path / ("values.gz" if packed else "values")
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"(is truncated|is not an IDX file)"):
            read_idx(path)
    path.write_bytes(gzip.compress(whole + b"x") if packed else whole + b"x")
    with pytest.raises(
        ValueError, match="goes on after its end: its header promises 30 bytes of values, it holds more"
    ):
        read_idx(path)


def test_a_damaged_gzip_is_one_sentence(tmp_path):
    data = bytearray(gzip.compress(np.random.default_rng(0).bytes(500)))
    data[40] ^= 0xFF
    path = tmp_path / "values.gz"
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"values.gz is "):
        read_idx(path)


def test_labels_of_another_length_or_another_class_are_refused(build):
    folder = build("mnist") / "MNIST" / "raw"
    labels = folder / "train-labels-idx1-ubyte"
    labels.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 22) + bytes(22))
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte must hold 23 labels, one an image; got \[22\]"):
        read_mnist(folder)
    labels.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 23) + bytes([10]) * 23)
    with pytest.raises(ValueError, match="must hold labels below 10; got 10"):
        read_mnist(folder)


def test_images_and_labels_swapped_are_refused(build):
    folder = build("mnist") / "MNIST" / "raw"
    (folder / "train-images-idx3-ubyte").write_bytes((folder / "train-labels-idx1-ubyte").read_bytes())
    with pytest.raises(ValueError, match=r"must hold uint8 \[N, H, W\]"):
        read_mnist(folder)


def test_a_missing_file_is_named(build):
    folder = build("mnist") / "MNIST" / "raw"
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte or .* is not there"):
        read_mnist(folder, "test")
    with pytest.raises(ValueError, match="split must be one of train, test"):
        read_mnist(folder, "val")


def test_a_header_that_promises_the_moon_reserves_no_memory(tmp_path):
    path = tmp_path / "values"
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(10))
    with pytest.raises(ValueError, match="is truncated"):
        read_idx(path)


def test_images_without_pixels_are_refused(build):
    folder = build("mnist") / "MNIST" / "raw"
    header = struct.pack(">BBBB3I", 0, 0, 8, 3, 23, 0, 2**32 - 1)
    (folder / "train-images-idx3-ubyte").write_bytes(header)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte must hold uint8 \[N, H, W\]; got uint8 \[23, 0, "):
        read_mnist(folder)
