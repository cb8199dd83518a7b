"""Small files that would become more than memory: refused before that, or worked through some rows after others."""

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from hardsight.engines.files import read_features, score_file

MIB = 1 << 20
WEIGHT = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)


def npy_header(text: str, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content


def npz(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def array(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


HEAD = {"weight.npy": array(WEIGHT)}


def promised(shape: str, descr: str = "'<f4'") -> dict[str, bytes]:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"
    return {**HEAD, "features.npy": npy_header(header, bytes(64))}


@pytest.mark.parametrize(
    "members",
    [
        promised("(1000000000000, 64)"),
        promised("(4, 64)", "'O'"),
        promised("(0, 64)", "[('a', '<f4')]"),
        promised("(4611686018427387904, 0)"),
        promised("(-4, -64)"),
        promised("(16,)", "'<U0'"),
        promised("(1000000000, 1000000000, 64)"),
        {**HEAD, "features.npy": npy_header("(" * 9000)},
        {**HEAD, "features.npy": npy_header("{'descr': '<f4', 'shape': " + "[" * 5000)},
        {**HEAD, "features.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"},
        {**HEAD, "features.npy": b"not an array"},
        {**HEAD, "features": array(WEIGHT)},
        {"features.npy": array(WEIGHT), "weight.txt": b"a"},
        {**HEAD, "features.npy": array(WEIGHT), "labels.npy": promised("(1000000000000,)", "'<i8'")["features.npy"]},
        {**HEAD, "features.npy": array(WEIGHT), "ids.npy": promised("(3, 1000000000000)", "'<U0'")["features.npy"]},
    ],
    ids=lambda members: str(next(content[10:70] for name, content in members.items() if name != "weight.npy")),
)
def test_an_npz_that_promises_what_it_does_not_hold_is_refused(members: dict[str, bytes], tmp_path: Path) -> None:
    path = npz(tmp_path / "f.npz", members)
    with pytest.raises((ValueError, TypeError), match=r"f\.npz"):
        score_file(path)


def zeros_of_1_gib(path: Path) -> Path:
    block, header = bytes(64 * MIB), "{'descr': '<f4', 'fortran_order': False, 'shape': (4194304, 64), }\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("weight.npy", array(WEIGHT))
        with archive.open("features.npy", "w", force_zip64=True) as file:
            file.write(npy_header(header))
            for _ in range(16):
                file.write(block)
    return path


def column_of_1_gib(path: Path) -> Path:
    block = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1 << 24, np.float32)), 64)
    head = path.with_name("head.npz")
    np.savez(head, weight=WEIGHT)
    table = pa.table({"features": block})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as out:
        for _ in range(16):
            out.write_table(table)
    return path


def test_1_gib_of_zeros_are_refused_before_they_are_unpacked(tmp_path: Path, ended: Callable, honest: int) -> None:
    answer = ended("score", zeros_of_1_gib(tmp_path / "f.npz"), "-o", tmp_path / "s.parquet")
    assert answer.code == 2, answer.said
    assert "f.npz" in answer.said.replace("\n", "")
    assert answer.peak < honest + 256 * MIB


def test_a_small_parquet_of_1_gib_is_refused_before_it_is_unpacked(
    tmp_path: Path, ended: Callable, honest: int
) -> None:
    path = column_of_1_gib(tmp_path / "f.parquet")
    assert path.stat().st_size < MIB
    answer = ended("score", path, "--head", tmp_path / "head.npz", "-o", tmp_path / "s.parquet")
    assert answer.code == 2, answer.said
    assert "f.parquet" in answer.said
    assert answer.peak < honest + 256 * MIB


def lying(path: Path, column: int = 0) -> None:
    """Make the footer of a Parquet file say that a column has few values; its pages still have them all."""
    data = path.read_bytes()
    metadata = pq.read_metadata(path).row_group(0).column(column)

    def number(value: int, width: int) -> bytes:
        said = value << 1
        return bytes((said >> 7 * at & 127) | (128 if at < width - 1 else 0) for at in range(width))

    for value in (metadata.num_values, metadata.total_uncompressed_size):
        width = max(1, (value.bit_length() + 1 + 6) // 7)
        place = data.rindex(number(value, width))
        data = data[:place] + number(10, width) + data[place + width :]
    path.write_bytes(data)


@pytest.mark.parametrize("honest_footer", [True, False])
def test_a_table_of_one_value_repeated_is_refused_by_its_pages(
    honest_footer: bool, tmp_path: Path, ended: Callable, honest: int
) -> None:
    """The footer may say what it likes."""
    rows = 1 << 26
    column = pa.array(np.zeros(rows, np.float64))
    table = pa.table({"id": column, "label": column, "avh": column})
    pq.write_table(table, tmp_path / "s.parquet", row_group_size=rows, data_page_size=1 << 30)
    del table, column
    if not honest_footer:
        lying(tmp_path / "s.parquet")
    assert (tmp_path / "s.parquet").stat().st_size < 2 * MIB
    answer = ended("audit", tmp_path / "s.parquet")
    assert answer.code == 2, answer.said
    assert "s.parquet" in answer.said
    assert answer.peak < honest + 256 * MIB


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "gzip", "brotli", "lz4"])
def test_a_long_word_repeated_is_refused(compression: str, tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * 500_000]))
    pq.write_table(pa.table({"id": column}), tmp_path / "s.parquet", compression=compression)
    with pytest.raises(ValueError, match=r"s\.parquet must not become"):
        pq_read(tmp_path / "s.parquet")


def test_a_column_is_judged_by_its_own_type_and_a_table_by_what_its_rows_take(tmp_path: Path) -> None:
    """Ten million sorted classes take a few kilobytes in a file, and eighty megabytes in memory."""
    from hardsight.files.parquet import Parquet

    path, rows = tmp_path / "s.parquet", 10_000_000
    pq.write_table(pa.table({"label": np.arange(rows) * 10 // rows}), path)
    with Parquet(path) as file:
        assert pc.value_counts(file.read(["label"])["label"]).field("counts").to_pylist() == [rows // 10] * 10
    with pytest.raises(ValueError, match=r"s\.parquet must not become"):
        pq_read(path)


def pq_read(path: Path) -> pa.Table:
    from hardsight.files.parquet import read_table

    return read_table(path)


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "gzip", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_honest_tables_come_back_as_they_are(compression: str, version: str, dictionary: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "id": np.arange(50_000),
            "path": [f"photos/{at:05}.jpg" for at in range(50_000)],
            "class.name": pa.array(["a long name of a class", "cat", None, ""] * 12_500),
            "flag": pa.array([True, False] * 25_000),
            "score": generator.standard_normal(50_000).astype(np.float32),
            "lists": pa.array([[0.5] * (at % 3) for at in range(50_000)], pa.list_(pa.float32())),
            "fixed": pa.FixedSizeListArray.from_arrays(pa.array(generator.random(100_000)), 2),
            "none": pa.nulls(50_000),
            "struct": pa.array([{"bytes": b"abc", "path": None}] * 50_000),
        }
    )
    options = {"data_page_version": version, "use_dictionary": dictionary, "row_group_size": 20_000}
    pq.write_table(table, tmp_path / "t.parquet", compression=compression, **options)
    assert pq_read(tmp_path / "t.parquet").equals(table)


def test_texts_in_the_prefix_encoding_come_back(tmp_path: Path) -> None:
    table = pa.table({"path": [f"photos/{at:05}.jpg" for at in range(1000)]})
    encoding = {"path": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, column_encoding=encoding)
    assert pq_read(tmp_path / "t.parquet").equals(table)


def safetensors(path: Path, header: object, content: bytes = bytes(64)) -> Path:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


@pytest.mark.parametrize(
    "header",
    [
        {"features": {"dtype": "F8_E4M3", "shape": [8, 8], "data_offsets": [0, 64]}},
        {"features": {"dtype": "F4", "shape": [16, 8], "data_offsets": [0, 64]}},
        {"features": {"dtype": "F32", "shape": [1 << 40, 64], "data_offsets": [0, 64]}},
        {"features": {"dtype": "F32", "shape": [1 << 62, 0], "data_offsets": [0, 0]}},
        {"features": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 1 << 40]}},
        {"features": {"dtype": "F32", "shape": [-4, -4], "data_offsets": [0, 64]}},
        {"features": {"dtype": ["F32"], "shape": [4, 4], "data_offsets": [0, 64]}},
        {
            "features": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
            "weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
        },
        {"features": []},
        [],
        b"[" * 100_000,
        b"{",
    ],
    ids=lambda header: str(header)[:60],
)
@pytest.mark.parametrize("read", ["features", "weights"])
def test_safetensors_whose_header_is_no_ones_are_refused(header: object, read: str, tmp_path: Path) -> None:
    from hardsight.models.weights import read_tensors

    path = safetensors(tmp_path / "f.safetensors", header)
    with pytest.raises(ValueError, match=r"f\.safetensors"):
        score_file(path) if read == "features" else read_tensors(path)


def test_a_length_of_a_header_beyond_the_file_reserves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(ValueError, match=r"f\.safetensors"):
        score_file(tmp_path / "f.safetensors")


@pytest.mark.parametrize("ending", ["npz", "safetensors", "parquet"])
def test_scoring_features_takes_memory_that_does_not_grow_with_them(
    ending: str, tmp_path: Path, ended: Callable
) -> None:
    """Four times the samples are 240 MiB of features more; their scores and ids are a hundred bytes a sample."""
    peaks, rows, dim = [], 40_000, 512
    np.savez(tmp_path / "head.npz", weight=np.ones((3, dim), np.float32))
    for times in (1, 4):
        values = np.random.default_rng(0).standard_normal((times * rows, dim)).astype(np.float32)
        path = tmp_path / f"f{times}.{ending}"
        if ending == "npz":
            np.savez(path, features=values)
        elif ending == "safetensors":
            save_file({"features": torch.from_numpy(values)}, path)
        else:
            column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dim)
            pq.write_table(pa.table({"features": column}), path, compression="none", use_dictionary=False)
        del values
        answer = ended("score", path, "--head", tmp_path / "head.npz", "-o", tmp_path / "s.parquet")
        assert answer.code == 0, answer.said
        peaks.append(answer.peak)
    assert peaks[1] - peaks[0] < 60 * MIB, peaks


def test_pieces_give_the_scores_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
    arrays = {"features": values, "weight": WEIGHT, "labels": np.arange(100) % 3, "ids": np.arange(100) * 7}
    np.savez(tmp_path / "f.npz", **arrays)
    np.savez_compressed(tmp_path / "c.npz", **arrays)
    np.savez(tmp_path / "columns.npz", **(arrays | {"features": np.asfortranarray(values)}))
    whole = score_file(tmp_path / "f.npz")
    monkeypatch.setattr("hardsight.engines.files._PIECE", 64 * 7)
    for name in ("f", "c", "columns"):
        pieces = score_file(tmp_path / f"{name}.npz")
        assert pieces.select(["id", "label", "predicted"]).equals(whole.select(["id", "label", "predicted"]))
        for score in whole.column_names[3:]:
            np.testing.assert_allclose(pieces.column(score), whole.column(score), rtol=1e-5, atol=1e-6)
        assert torch.equal(torch.cat(list(read_features(tmp_path / f"{name}.npz").pieces())), torch.from_numpy(values))


def test_a_row_that_is_not_finite_is_named_by_its_place_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.ones((100, 64), np.float32)
    values[83, 5] = np.nan
    np.savez(tmp_path / "f.npz", features=values, weight=WEIGHT)
    monkeypatch.setattr("hardsight.engines.files._PIECE", 64 * 7)
    with pytest.raises(ValueError, match=r"first row 83$"):
        score_file(tmp_path / "f.npz")


def large_png(path: Path, side: int) -> Path:
    """A white picture, a few kilobytes however large: one row of it, repeated, takes nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("1", (side, side), 1).save(path)
    return path


@pytest.mark.filterwarnings("ignore:Image size")
def test_large_pictures_are_decoded_one_after_another(tmp_path: Path, ended: Callable, honest: int) -> None:
    """Eight threads that decode 9,400 x 9,400 pixels each at once would take eight gigabytes."""
    first = large_png(tmp_path / "photos" / "cat" / "0.png", 9_400)
    for number in range(1, 4):
        shutil.copy(first, first.with_name(f"{number}.png"))
    assert first.stat().st_size < 64 * 1024
    script = (
        "from hardsight.datasets.folders import read_image_folder; import sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "images = read_image_folder(sys.argv[1])\n"
        "print(images.load(size=8, workers=8).images.shape, len(images.unreadable(workers=8)))\n"
        "try: images.load(workers=8)\n"
        "except ValueError as refusal: print('refused', refusal)\n"
    )
    answer = ended(tmp_path / "photos", script=script)
    assert answer.code == 0, answer.said
    assert "[4, 3, 8, 8]) 0" in answer.said
    assert "refused folder (all)" in answer.said
    assert answer.peak < honest + 2048 * MIB


def test_a_picture_that_no_honest_file_becomes_is_skipped(tmp_path: Path, ended: Callable, honest: int) -> None:
    large_png(tmp_path / "photos" / "cat" / "0.png", 13_000)
    script = (
        "from hardsight.datasets.folders import read_image_folder; import sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "print(read_image_folder(sys.argv[1]).unreadable()[0].reason)\n"
    )
    answer = ended(tmp_path / "photos", script=script)
    assert "it must not become more than 32 times its size" in answer.said
    assert answer.peak < honest + 64 * MIB


def test_large_pictures_at_their_own_size_are_refused_with_what_to_do(
    tmp_path: Path, ended: Callable, honest: int
) -> None:
    large_png(tmp_path / "photos" / "cat" / "0.png", 9_000)
    large_png(tmp_path / "photos" / "dog" / "0.png", 9_000)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))\n"
    )
    answer = ended("score", "--model", "mine:build", "--data", "photos", "-o", "s.parquet", place=tmp_path)
    assert answer.code == 2, answer.said
    assert "--size" in answer.said
    assert answer.peak < honest + 2048 * MIB
