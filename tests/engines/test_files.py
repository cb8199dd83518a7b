"""Feature files: the same scores from every format, and every kind of bad file refused in one sentence."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from hardsight.engines.files import ENDINGS, read_features, score_file, write_features
from hardsight.hardness import score

GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(9, 4, generator=GENERATOR)
WEIGHT = torch.randn(3, 4, generator=GENERATOR)
BIAS = torch.randn(3, generator=GENERATOR)
LABELS = torch.tensor([0, 1, 2] * 3)
IDS = list(range(100, 109))


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_scores_of_its_tensors(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"features{ending}"
    write_features(path, FEATURES, WEIGHT, LABELS, BIAS, IDS)
    table = score_file(path, ("avh", "loss"))
    assert table.column("id").to_pylist() == IDS
    assert table.column("label").to_pylist() == LABELS.tolist()
    assert table.column("predicted").to_pylist() == (FEATURES @ WEIGHT.T + BIAS).argmax(1).tolist()
    expected = score(FEATURES, WEIGHT, LABELS, BIAS, ("avh", "loss"))
    for name, values in expected.items():
        np.testing.assert_allclose(table.column(name).to_numpy(), values.numpy(), rtol=1e-6)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_what_is_written_comes_back_bit_for_bit(ending: str, dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / f"features{ending}"
    write_features(path, FEATURES.to(dtype), WEIGHT.to(dtype))
    read = read_features(path)
    assert torch.equal(torch.cat(list(read.pieces())), FEATURES.to(dtype))
    assert torch.equal(read.weight, WEIGHT.to(dtype))
    assert (read.bias, read.labels, read.ids) == (None, None, None)


def test_without_labels_against_the_prediction_and_counted_from_0(tmp_path: Path) -> None:
    write_features(tmp_path / "f.npz", FEATURES, WEIGHT)
    table = score_file(tmp_path / "f.npz")
    assert table.schema.metadata[b"hardness against"] == b"predicted class"
    assert table.column("id").to_pylist() == list(range(9))
    assert table.column("label").null_count == 9


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_ids_may_be_text(ending: str, tmp_path: Path) -> None:
    names = [f"photo-{at}.jpg" for at in range(9)]
    write_features(tmp_path / f"f{ending}", FEATURES, WEIGHT, ids=names)
    assert score_file(tmp_path / f"f{ending}").column("id").to_pylist() == names


@pytest.mark.parametrize("head", [".npz", ".safetensors"])
def test_parquet_with_its_head_in_a_second_file(head: str, tmp_path: Path) -> None:
    table = pa.table({"features": FEATURES.tolist(), "label": LABELS.tolist(), "id": IDS})
    pq.write_table(table, tmp_path / "f.parquet")
    write_features(tmp_path / f"head{head}", FEATURES[:1], WEIGHT, bias=BIAS)
    with pytest.raises(ValueError, match="must hold weight; it holds features, labels, ids; give the head's file"):
        score_file(tmp_path / "f.parquet")
    scored = score_file(tmp_path / "f.parquet", ("loss",), head=tmp_path / f"head{head}")
    expected = score(FEATURES.double(), WEIGHT.double(), LABELS, BIAS.double(), ("loss",))["loss"]
    np.testing.assert_allclose(scored.column("loss").to_numpy(), expected.numpy(), rtol=1e-5)


def test_big_endian_and_unsigned_numbers(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "f.npz",
        features=FEATURES.numpy().astype(">f4"),
        weight=WEIGHT.numpy(),
        labels=LABELS.numpy().astype("u2"),
    )
    np.testing.assert_allclose(
        score_file(tmp_path / "f.npz").column("avh").to_numpy(),
        score(FEATURES, WEIGHT, LABELS)["avh"].numpy(),
        rtol=1e-6,
    )


class Bomb:
    def __reduce__(self) -> tuple:
        return (open, ("exploded", "w"))


def test_a_file_that_would_need_unpickling_is_refused_and_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "f.npz", features=np.array([Bomb()], dtype=object), weight=WEIGHT.numpy())
    (tmp_path / "g.npz").write_bytes(pickle.dumps(Bomb()))
    for name in ("f.npz", "g.npz"):
        with pytest.raises(ValueError, match="would need unpickling, which can run code"):
            score_file(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("keep", [0, 1, 40, 0.5, 0.95])
def test_truncated_files_are_refused(ending: str, keep: float, tmp_path: Path) -> None:
    path = tmp_path / f"f{ending}"
    write_features(path, FEATURES, WEIGHT, LABELS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    with pytest.raises(ValueError, match=str(path)):
        score_file(path)


def test_missing_and_unknown_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not there"):
        score_file(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"must end in .npz, .safetensors, .parquet; got 'f.csv'"):
        score_file(tmp_path / "f.csv")


@pytest.mark.parametrize(
    ("arrays", "error", "sentence"),
    [
        ({"features": FEATURES, "weight": WEIGHT, "labels": LABELS + 1}, ValueError, r"labels must lie in \[0, 3\)"),
        ({"features": FEATURES, "weight": WEIGHT[:, :2]}, ValueError, r"features \[9, 4\] and weight \[3, 2\]"),
        ({"features": FEATURES / 0 * 0, "weight": WEIGHT}, ValueError, "9 of 9 rows hold NaN or infinity, first row 0"),
        ({"features": FEATURES[:0], "weight": WEIGHT}, ValueError, "features must not be empty"),
        ({"features": FEATURES.long(), "weight": WEIGHT}, TypeError, "features must be floating point"),
        ({"features": FEATURES}, ValueError, "must hold weight"),
        (
            {"features": FEATURES, "weight": WEIGHT, "ids": torch.arange(3)},
            ValueError,
            r"one for each sample, 9; got shape \[3\]",
        ),
        (
            {"features": FEATURES, "weight": WEIGHT, "ids": torch.tensor(3)},
            ValueError,
            "ids of .* must be one for each",
        ),
        (
            {"features": FEATURES, "weight": WEIGHT, "labels": np.array(["cat"] * 9)},
            TypeError,
            "labels of .* holds text",
        ),
        ({"features": FEATURES[0], "weight": WEIGHT}, ValueError, "features must be a matrix"),
    ],
)
def test_bad_content_is_refused(arrays: dict, error: type[Exception], sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", **{name: np.asarray(value) for name, value in arrays.items()})
    with pytest.raises(error, match=sentence):
        score_file(tmp_path / "f.npz")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (pa.table({"features": [[1.0, 2.0], [3.0]]}), "lists of one length"),
        (pa.table({"features": [1.0, 2.0]}), "a list of numbers for each sample; it is double"),
        (pa.table({"features": [[1.0], None]}), "must be filled; 1 of 2 are null"),
        (pa.table({"features": [[1.0], [None]]}), "must be filled; 1 of 2 are null"),
        (pa.table({"features": pa.array([], pa.list_(pa.float32()))}), "at least one sample"),
    ],
)
def test_bad_parquet_columns_are_refused(table: pa.Table, sentence: str, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.raises(ValueError, match=sentence):
        score_file(tmp_path / "f.parquet")


def test_a_broken_head_in_the_metadata_is_refused(tmp_path: Path) -> None:
    table = pa.table({"features": FEATURES.tolist()}).replace_schema_metadata({"hardsight.head": "not base64!"})
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.raises(ValueError, match=r"base64 of safetensors in 'hardsight\.head'"):
        score_file(tmp_path / "f.parquet")


@pytest.mark.parametrize("ending", ENDINGS)
def test_bfloat16_survives_every_format(ending: str, tmp_path: Path) -> None:
    features, weight = torch.randn(4, 3).bfloat16(), torch.randn(2, 3).bfloat16()
    write_features(tmp_path / f"f{ending}", features, weight)
    read = read_features(tmp_path / f"f{ending}")
    assert torch.equal(torch.cat(list(read.pieces())).float(), features.float())
    assert torch.equal(read.weight.float(), weight.float())


@pytest.mark.parametrize("ending", ENDINGS)
def test_columns_of_another_length_are_not_written(ending: str, tmp_path: Path) -> None:
    for name, column in (("labels", torch.zeros(3).long()), ("ids", [1, 2, 3])):
        with pytest.raises(ValueError, match=f"{name} must be one for each of the 4 samples; got 3"):
            write_features(tmp_path / f"f{ending}", torch.ones(4, 3), torch.ones(2, 3), **{name: column})
    assert not list(tmp_path.iterdir())


def test_ids_that_do_not_fit(tmp_path: Path) -> None:
    arrays = {"features": np.ones((4, 3), np.float32), "weight": np.ones((2, 3), np.float32)}
    for ids, shape in (
        (np.arange(3), r"\[3\]"),
        (np.array("abcd"), r"\[\]"),
        (np.array([["a", "b"]] * 4), r"\[4, 2\]"),
    ):
        np.savez(tmp_path / "f.npz", **arrays, ids=ids)
        with pytest.raises(ValueError, match=f"ids of .* must be one for each sample, 4; got shape {shape}"):
            score_file(tmp_path / "f.npz")
    with pytest.raises(TypeError, match="ids must be whole numbers in a safetensors file"):
        write_features(tmp_path / "f.safetensors", torch.ones(2, 3), torch.ones(2, 3), ids=["a", "b"])


def test_logits_alone_are_refused_with_the_way_to_score_them(tmp_path: Path) -> None:
    logits, labels = np.zeros((4, 3), np.float32), np.zeros(4, np.int64)
    np.savez(tmp_path / "l.npz", logits=logits, labels=labels)
    columns = {"logits": list(logits), "label": labels, "weight": np.ones(4)}
    pq.write_table(pa.table(columns), tmp_path / "l.parquet")
    for name in ("l.npz", "l.parquet"):
        with pytest.raises(ValueError, match=r"must hold features and weight; it holds .*logits.*logits alone have no"):
            read_features(tmp_path / name)


def _ids(path: Path) -> list:
    ids = read_features(path).ids
    assert ids is not None
    return ids.to_pylist()


@pytest.mark.parametrize("ending", ENDINGS)
def test_ids_beyond_int64_stay_what_they_are(ending: str, tmp_path: Path) -> None:
    """Hashes are 64 bits without a sign; as int64 half of them would come back negative."""
    hashes = [2**63 + 5, 2**64 - 1, 0, *range(6)]
    hashes = [(one + at) % 2**64 for at, one in enumerate(hashes)]
    write_features(tmp_path / f"f{ending}", FEATURES, WEIGHT, LABELS, ids=hashes)
    assert _ids(tmp_path / f"f{ending}") == hashes
    assert score_file(tmp_path / f"f{ending}").column("id").to_pylist() == hashes


def test_ids_as_bytes_are_text(tmp_path: Path) -> None:
    names = [f"é{at}" for at in range(9)]
    arrays = {"features": FEATURES.numpy(), "weight": WEIGHT.numpy()}
    np.savez(tmp_path / "f.npz", **arrays, ids=np.array([name.encode() for name in names]))
    assert _ids(tmp_path / "f.npz") == names
    np.savez(tmp_path / "f.npz", **arrays, ids=np.array([b"\xff"] * 9))
    with pytest.raises(ValueError, match=r"ids of .* must be UTF-8 where they are text"):
        read_features(tmp_path / "f.npz")


def test_long_doubles_are_read_and_what_is_no_number_is_refused_by_name(tmp_path: Path) -> None:
    arrays = {"features": FEATURES.numpy().astype("longdouble"), "weight": WEIGHT.numpy()}
    np.savez(tmp_path / "f.npz", **arrays)
    assert torch.equal(torch.cat(list(read_features(tmp_path / "f.npz").pieces())), FEATURES.double())
    for name, dtype in (("labels", "datetime64[s]"), ("ids", "datetime64[ns]"), ("features", "timedelta64[s]")):
        np.savez(tmp_path / "f.npz", **(arrays | {name: np.zeros(9, dtype)}))
        with pytest.raises(TypeError, match=rf"{name} of .*f.npz must be numbers.*; it holds {re.escape(dtype)}"):
            read_features(tmp_path / "f.npz")


def test_labels_of_a_fraction_type_are_not_called_text(tmp_path: Path) -> None:
    """Pandas makes floats of whole numbers as soon as one is missing."""
    write_features(tmp_path / "head.npz", FEATURES, WEIGHT)
    pq.write_table(pa.table({"features": FEATURES.tolist(), "label": [1.0] * 9}), tmp_path / "f.parquet")
    with pytest.raises(TypeError, match=r"labels must be integers.*got torch.float64"):
        score_file(tmp_path / "f.parquet", head=tmp_path / "head.npz")


@pytest.mark.parametrize("ending", ENDINGS)
def test_two_columns_for_one_thing_are_refused(ending: str, tmp_path: Path) -> None:
    """`labels` beside `label`: which of them are the labels nobody can tell."""
    path = tmp_path / f"f{ending}"
    if ending == ".parquet":
        pq.write_table(pa.table({"features": FEATURES.tolist(), "labels": LABELS.numpy(), "label": [0] * 9}), path)
    else:
        arrays = {"features": FEATURES, "weight": WEIGHT, "labels": LABELS, "label": 0 * LABELS}
        if ending == ".npz":
            np.savez(path, **{name: value.numpy() for name, value in arrays.items()})
        else:
            save_file(arrays, path)
    with pytest.raises(ValueError, match=r"must hold labels once; it holds labels and label"):
        read_features(path)


def test_parquet_features_of_no_numbers_are_refused(tmp_path: Path) -> None:
    for column, sentence in (
        (pa.array([[], []], pa.list_(pa.float32())), "must have at least one number per sample"),
        (pa.array([["a"], ["b"]]), "must be a list of numbers for each sample; it is list"),
    ):
        pq.write_table(pa.table({"features": column}), tmp_path / "f.parquet")
        with pytest.raises(ValueError, match=sentence):
            read_features(tmp_path / "f.parquet")


def test_scores_beyond_float32_are_its_largest_number(tmp_path: Path) -> None:
    """The features are finite, so is what the table says of them."""
    write_features(tmp_path / "f.npz", FEATURES.double() * 1e200, WEIGHT.double(), LABELS)
    table = score_file(tmp_path / "f.npz", ("norm", "margin"))
    assert all(np.isfinite(table.column(name).to_numpy()).all() for name in ("norm", "margin"))
    assert table.column("norm").to_numpy().max() == np.finfo(np.float32).max


def test_one_array_alone_is_refused_with_the_way_to_put_them_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"got 'features.npy'; np.savez\('features.npz', features=..., weight=..."):
        score_file(tmp_path / "features.npy")


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 64)])
def test_features_in_parquet_are_never_held_twice(kind: pa.DataType, tmp_path: Path) -> None:
    """Those of a million samples are gigabytes, and a row group holds them all."""
    values = np.random.default_rng(0).random((100_000, 64), np.float32)
    column = pa.FixedSizeListArray.from_arrays(values.reshape(-1), 64).cast(kind)
    pq.write_table(pa.table({"features": column}), tmp_path / "f.parquet")
    np.savez(tmp_path / "head.npz", weight=values[:3])
    # In a process of its own: Arrow counts the most that a process ever held.
    code = (
        "import pyarrow, sys; from hardsight.engines.files import read_features\n"
        "read = read_features(*sys.argv[1:])\n"
        "print(sum(one.numpy().sum(dtype=float) for one in read.pieces()), pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "f.parquet"), str(tmp_path / "head.npz")]
    total, most = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(total) == pytest.approx(values.sum(dtype=np.float64), rel=1e-12)
    assert int(most) < values.nbytes / 2


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([0.0, 1.0, np.nan] * 3, "NaN"),
        ([*range(8), np.inf], "inf"),
        ([*range(8), 7], "7"),
        (["a", "b", "a", *map(str, range(6))], "'a'"),
    ],
)
def test_ids_that_do_not_name_one_sample_are_refused_before_the_audit(ids: list, sentence: str, tmp_path: Path) -> None:
    arrays = {"features": FEATURES.numpy(), "weight": WEIGHT.numpy(), "labels": LABELS.numpy()}
    np.savez(tmp_path / "f.npz", **arrays, ids=np.array(ids))
    with pytest.raises(ValueError, match=rf"ids must .*{sentence}"):
        score_file(tmp_path / "f.npz")
    write_features(tmp_path / "head.npz", FEATURES, WEIGHT)
    pq.write_table(pa.table({"features": FEATURES.tolist(), "id": ids}), tmp_path / "f.parquet")
    with pytest.raises(ValueError, match=rf"ids must .*{sentence}"):
        score_file(tmp_path / "f.parquet", head=tmp_path / "head.npz")
