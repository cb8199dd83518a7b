"""USPS: libsvm text, zeros left out, labels from one."""

import bz2

import numpy as np
import pytest

from hardsight.datasets.digits import read_usps


def loop_reference(text: str) -> tuple[np.ndarray, list[int]]:
    images, labels = [], []
    for line in text.splitlines():
        label, *cells = line.split()
        row = [0.0] * 256
        for cell in cells:
            place, value = cell.split(":")
            row[int(place) - 1] = float(value)
        images.append([round((value + 1) / 2 * 255) for value in row])
        labels.append(int(label) - 1)
    return np.array(images, np.uint8).reshape(-1, 1, 16, 16), labels


@pytest.mark.parametrize("packed", [True, False])
def test_it_is_the_text_line_by_line(build, packed):
    folder = build("usps") / "USPS"
    for split, name in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        text = bz2.decompress((folder / name).read_bytes())
        if not packed:
            (folder / name).unlink()
            (folder / name.removesuffix(".bz2")).write_bytes(text)
        dataset = read_usps(folder, split)
        images, labels = loop_reference(text.decode())
        np.testing.assert_array_equal(dataset.images.numpy(), images)
        assert dataset.labels.tolist() == labels


def test_grey_levels_survive_the_text(build):
    """Four decimals hold 256 levels: rounding gives back the level that was written, truncating would not."""
    dataset = read_usps(build("usps") / "USPS")
    levels = np.random.default_rng(12).integers(0, 256, (12, 256))
    np.testing.assert_array_equal(dataset.images.flatten(1).numpy(), levels)
    assert not np.array_equal(((levels / 127.5 - 1).round(4) + 1) // (2 / 255), levels)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("11 1:0.5\n", "must hold labels 1 to 10; got 11 to 11"),
        ("0 1:0.5\n", "must hold labels 1 to 10"),
        ("1.5 1:0.5\n", "must hold labels 1 to 10"),
        ("1 1:2.5\n", r"must hold values in \[-1, 1\]; got 2.5"),
        ("1 257:0.5\n", "is truncated or is not libsvm text of 256 features"),
        ("1 0:0.5\n", "is truncated or is not libsvm text of 256 features"),
        ("1 one:0.5\n", "is truncated or is not libsvm text"),
        ("", "is empty"),
    ],
)
def test_what_is_not_usps_is_refused(tmp_path, text, sentence):
    (tmp_path / "usps").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_usps(tmp_path)


def test_a_truncated_archive_is_one_sentence(build):
    folder = build("usps") / "USPS"
    data = (folder / "usps.bz2").read_bytes()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        (folder / "usps.bz2").write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"usps.bz2 (is truncated or is not a file of bz2|is empty)"):
            read_usps(folder)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"usps.t.bz2 or usps.t is not there"):
        read_usps(tmp_path, "test")
    with pytest.raises(ValueError, match="split must be one of train, test"):
        read_usps(tmp_path, "all")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_values_that_are_not_finite_are_refused(tmp_path, value):
    (tmp_path / "usps").write_text(f"1 1:{value} 2:0.5\n")
    with pytest.raises(ValueError, match=r"must hold values in \[-1, 1\]"):
        read_usps(tmp_path)


@pytest.mark.parametrize("line", [b"1 4000000000:1\n", b"1 99999999999999999999:1\n", b"1 -5:1\n"])
def test_features_that_have_no_place_are_refused(build, line):
    root = build("usps")
    (root / "USPS" / "usps.bz2").write_bytes(bz2.compress(line))
    with pytest.raises(ValueError, match=r"usps\.bz2 is truncated or is not libsvm text of 256 features"):
        read_usps(root / "USPS")


def test_text_that_grows_without_end_is_refused(build, monkeypatch):
    root = build("usps")
    monkeypatch.setattr("hardsight.datasets.digits._MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match=r"usps\.bz2 must hold at most 10,000 bytes of text; it goes on after them"):
        read_usps(root / "USPS")
