"""Parquet folders of Hugging Face: the layout, the schema's class names, rows across row groups."""

import io
import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from hardsight.datasets.huggingface import read_huggingface, splits


def test_rows_of_all_files_in_order(build, grey_of):
    root = build("huggingface")
    dataset = read_huggingface(root)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert dataset.columns["breed"].tolist() == list(range(100, 110))
    for index in (9, 0, 4, 5, 3):
        assert torch.equal(dataset[index][0], torch.full((3, 4, 6), grey_of(index), dtype=torch.uint8))
    assert splits(root) == ("test", "train", "validation")
    loaded = dataset.load()
    assert loaded.images[:, 0, 0, 0].tolist() == [grey_of(index) for index in range(10)]


def test_threads_that_want_the_same_rows_read_them_once(tmp_path, monkeypatch):
    buffer = io.BytesIO()
    Image.new("L", (2, 2), 7).save(buffer, "PNG")
    table = pa.table({"image": [buffer.getvalue()] * 32, "label": [0, 1] * 16})
    pq.write_table(table, tmp_path / "train.parquet", row_group_size=16)
    read, began = pq.ParquetFile.read_row_group, []

    def slow(file, group, *arguments, **options):
        began.append(group)
        time.sleep(0.05)
        return read(file, group, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", slow)
    assert len(read_huggingface(tmp_path).load(workers=8)) == 32
    assert sorted(began) == [0, 1]


def test_a_file_that_was_written_anew_is_read_anew(tmp_path):
    for grey in (7, 9):
        buffer = io.BytesIO()
        Image.new("L", (2, 2), grey).save(buffer, "PNG")
        table = pa.table({"image": [buffer.getvalue()] * grey, "label": [0] * grey})
        pq.write_table(table, tmp_path / "train.parquet", row_group_size=grey - 3)
        dataset = read_huggingface(tmp_path)
        assert int(dataset[grey - 1][0].max()) == grey


def test_the_layout_with_a_folder_a_split(build):
    root = build("huggingface")
    expected = read_huggingface(root)
    for part in range(2):
        target = root / "default" / "train" / f"{part:04d}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        (root / "data" / f"train-{part:05d}-of-00002.parquet").rename(target)
    dataset = read_huggingface(root)
    assert torch.equal(dataset.labels, expected.labels)
    assert dataset.paths[7] == "default/train/0001.parquet#2"


def test_a_row_that_is_no_image_is_listed(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2)).save(buffer, "PNG")
    rows = [
        {"bytes": buffer.getvalue(), "path": None},
        {"bytes": b"junk", "path": "../x"},
        {"bytes": None, "path": "/etc/passwd"},
        None,
    ]
    pq.write_table(pa.table({"image": rows, "label": [0, 1, 0, 1]}), tmp_path / "train.parquet")
    loaded = read_huggingface(tmp_path).load()
    assert loaded.ids.tolist() == [0]
    assert [skip.id for skip in loaded.skipped] == [1, 2, 3]
    assert "no image bytes" in loaded.skipped[1].reason


def test_plain_bytes_and_no_metadata(tmp_path):
    buffer = io.BytesIO()
    Image.new("L", (2, 2), 7).save(buffer, "PNG")
    table = pa.table({"img": [buffer.getvalue()] * 3, "fine_label": [2, None, 0], "coarse_label": [0, 0, 1]})
    pq.write_table(table, tmp_path / "test-00000-of-00001.parquet")
    dataset = read_huggingface(tmp_path, "test")
    assert dataset.labels.tolist() == [2, -1, 0]
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.columns["coarse_label"].tolist() == [0, 0, 1]
    assert dataset[0][0].unique().tolist() == [7]
    assert read_huggingface(tmp_path, "test", label_column="coarse_label").num_classes == 2


@pytest.mark.parametrize(
    "metadata", [b"{", b"[]", b"[" * 100_000, b'{"info": null}', json.dumps({"info": {"features": []}}).encode()]
)
def test_odd_metadata_is_no_obstacle(tmp_path, metadata):
    table = pa.table({"image": [b"x"], "label": [0]}).replace_schema_metadata({b"huggingface": metadata})
    pq.write_table(table, tmp_path / "train.parquet")
    assert read_huggingface(tmp_path).class_names == ("0",)


def test_what_is_wrong_is_said(build, tmp_path):
    root = build("huggingface")
    with pytest.raises(FileNotFoundError, match="no Parquet file of the split 'dev'; it holds test, train, validation"):
        read_huggingface(root, "dev")
    with pytest.raises(ValueError, match=r"image_column must be one of image, label, breed; got 'picture'"):
        read_huggingface(root, image_column="picture")
    second = root / "data" / "train-00001-of-00002.parquet"
    whole = second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is truncated or is not a Parquet file"):
        read_huggingface(root)
    pq.write_table(pa.table({"other": [1]}), second)
    with pytest.raises(ValueError, match="must have the columns of the split's first file"):
        read_huggingface(root)
    other = root / "other" / "train-00000-of-00001.parquet"
    other.parent.mkdir()
    pq.write_table(pa.table({"image": [b"x"], "label": [0]}), other)
    with pytest.raises(ValueError, match=r"holds several configurations \(data, other\)"):
        read_huggingface(root)


def test_a_part_that_the_names_of_the_others_count_is_missed(build):
    """Half a training set must not pass for the whole."""
    data = build("huggingface") / "data"
    for part in range(2):
        missing = data / f"train-{part:05d}-of-00002.parquet"
        hidden = missing.rename(data / "aside")
        with pytest.raises(FileNotFoundError, match=rf"{missing} is not there, and its split has 2 parts"):
            read_huggingface(data.parent)
        hidden.rename(missing)
    assert len(read_huggingface(data.parent)) == 10


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"image": [b"x"], "label": ["cat"]}, "must have columns of the same types"),
        ({"image": [b"x"], "label": [[1]]}, "must have columns of the same types"),
    ],
)
def test_parts_of_different_types_are_refused(tmp_path, second, sentence):
    pq.write_table(pa.table({"image": [b"x"], "label": [0]}), tmp_path / "train-00000-of-00002.parquet")
    pq.write_table(pa.table(second), tmp_path / "train-00001-of-00002.parquet")
    with pytest.raises(ValueError, match=sentence):
        read_huggingface(tmp_path)


def test_a_column_that_is_named_twice_is_refused(tmp_path):
    twice = pa.table([[b"x"], [0], [1]], names=["image", "label", "label"])
    pq.write_table(twice, tmp_path / "train.parquet")
    with pytest.raises(ValueError, match=r"train\.parquet must name each column once; it has 'label' more than once"):
        read_huggingface(tmp_path)


def test_damage_anywhere_in_a_file_is_one_sentence_or_a_row_that_is_listed(tmp_path):
    path = tmp_path / "train.parquet"
    buffer = io.BytesIO()
    Image.new("L", (2, 2), 7).save(buffer, "PNG")
    pq.write_table(pa.table({"image": [buffer.getvalue()] * 2, "label": [0, 1]}), path)
    data = path.read_bytes()
    sentences = []
    for place in range(0, len(data), 3):
        path.write_bytes(data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :])
        try:
            loaded = read_huggingface(tmp_path).load()
        except ValueError as refusal:
            sentences.append(str(refusal))
        else:
            assert len(loaded) + len(loaded.skipped) == 2
    assert len(sentences) > 50
    assert all("\n" not in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"label": [0]}, "image_column must be one of"),
        ({"image": [b"x"]}, "label_column must be one of"),
        ({"image": [b"x"], "label": ["cat"]}, "must hold whole numbers; got string"),
        ({"image": [b"x"], "label": [-7]}, r"labels must lie in \[-1, "),
    ],
)
def test_other_columns_are_refused(tmp_path, columns, sentence):
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    with pytest.raises(ValueError, match=sentence):
        read_huggingface(tmp_path)


def test_a_loading_script_is_never_run(build, tmp_path):
    root = build("huggingface")
    (root / "huggingface.py").write_text("raise SystemExit(3)")
    assert len(read_huggingface(root)) == 10
    assert np.array_equal(read_huggingface(root).ids.numpy(), np.arange(10))


def test_a_label_column_that_counts_no_classes_is_refused(tmp_path):
    pq.write_table(pa.table({"image": [b"x"], "label": [2**40]}), tmp_path / "train-0.parquet")
    with pytest.raises(ValueError, match="must count classes from 0, or name them in the schema; got 1099511627776"):
        read_huggingface(tmp_path)


@pytest.mark.parametrize("kind", [pa.uint8(), pa.int16(), pa.uint64()])
def test_a_missing_number_is_no_label_in_any_integer_type(tmp_path, kind):
    numbers = pa.array([1, None, 0], kind)
    pq.write_table(pa.table({"image": [b"x"] * 3, "label": numbers, "breed": numbers}), tmp_path / "train.parquet")
    dataset = read_huggingface(tmp_path)
    assert dataset.labels.tolist() == [1, -1, 0]
    assert dataset.columns["breed"].tolist() == [1, -1, 0]


def test_a_number_beyond_int64_is_left_out_of_the_columns(tmp_path):
    table = {"image": [b"x"] * 2, "label": [0, 1], "hash": pa.array([2**63 + 5, 1], pa.uint64())}
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    assert read_huggingface(tmp_path).columns == {}
    with pytest.raises(ValueError, match="'hash' must count classes from 0"):
        read_huggingface(tmp_path, label_column="hash")


def test_parts_may_count_in_types_of_different_width(tmp_path):
    for part, kind in enumerate((pa.int16(), pa.int64())):
        table = pa.table({"image": [b"x"], "label": pa.array([part], kind), "breed": pa.array([7], kind)})
        pq.write_table(table, tmp_path / f"train-0000{part}-of-00002.parquet")
    dataset = read_huggingface(tmp_path)
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.columns["breed"].tolist() == [7, 7]
