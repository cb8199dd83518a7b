"""SVHN's MATLAB files, and MATLAB files that are not what they should be."""

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from hardsight.datasets.digits import read_svhn
from hardsight.datasets.formats import load_matlab


def test_axes_and_the_digit_zero(build):
    folder = build("svhn") / "SVHN"
    dataset = read_svhn(folder, "test")
    raw = loadmat(folder / "test_32x32.mat")
    for number in range(len(dataset)):
        image, label, _ = dataset[number]
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), raw["X"][:, :, :, number])
        assert label == (0 if raw["y"][number, 0] == 10 else raw["y"][number, 0])
    assert 0 in dataset.labels
    assert dataset.images.is_contiguous()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [2], [3]]},
            "must hold 2 labels y from 1 to 10; its 3 are not",
        ),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[0], [1]]}, "must hold 2 labels y from 1 to 10"),
        ({"X": np.zeros((2, 3, 32, 32), np.uint8), "y": [[1], [2]]}, r"must hold X as uint8 \[32, 32, 3, N\]"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, "must hold X as uint8"),
        ({"y": [[1]]}, "must hold the numeric array X"),
        ({"X": "text", "y": [[1]]}, "must hold the numeric array X"),
    ],
)
def test_other_contents_are_refused(tmp_path, content, sentence):
    savemat(tmp_path / "train_32x32.mat", content)
    with pytest.raises(ValueError, match=sentence):
        read_svhn(tmp_path)


@pytest.mark.parametrize("compressed", [True, False])
def test_damage_is_one_sentence(tmp_path, compressed):
    path = tmp_path / "values.mat"
    savemat(path, {"X": np.random.default_rng(0).integers(0, 256, (40, 40))}, do_compression=compressed)
    data = path.read_bytes()
    for length in (0, 1, 100, 127, 130, len(data) // 2, len(data) - 8):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"values.mat (is truncated|must hold)"):
            load_matlab(path, "X")
    path.write_bytes(b"MATLAB 7.3 MAT-file, Platform: nothing".ljust(124) + b"\x00\x02IM" + bytes(100))
    with pytest.raises(ValueError, match=r"it is 7.3, which is HDF5"):
        load_matlab(path, "X")
    with pytest.raises(FileNotFoundError, match=r"none.mat is not there"):
        load_matlab(tmp_path / "none.mat", "X")


def test_splits(tmp_path):
    with pytest.raises(ValueError, match="split must be one of train, test, extra"):
        read_svhn(tmp_path, "all")


@pytest.mark.parametrize("digit", [1.5, np.nan, 0.0])
def test_labels_that_are_no_digits_are_refused(tmp_path, digit):
    content = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1.0], [digit]])}
    savemat(tmp_path / "train_32x32.mat", content)
    with pytest.raises(ValueError, match="must hold 2 labels y from 1 to 10; its 2 are not"):
        read_svhn(tmp_path)
