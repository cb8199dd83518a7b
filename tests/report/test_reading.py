"""Records are read as they describe themselves, and refused in one sentence when they are damaged."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hardsight.report.reading import Samples, read_run, thumbnails

Maker = Callable[..., Path]


def _samples(folder: Path, table: pa.Table) -> Samples:
    pq.write_table(table, folder / "samples.parquet")
    return Samples(folder / "samples.parquet")


def test_a_field_describes_its_score(tmp_path: Path) -> None:
    described = {"direction": "larger is easier", "title": "My own", "range": "[0, 1]", "kind": "score"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("mine", pa.int64(), metadata=described),
            pa.field("avh", pa.float32()),
            pa.field("some_thing", pa.float64()),
            pa.field("count", pa.int64()),
            pa.field("split", pa.string()),
        ]
    )
    samples = _samples(tmp_path, pa.table([[1], [2], [0.5], [0.25], [3], ["train"]], schema=schema))
    found = {score.name: (score.title, score.direction, score.sign) for score in samples.scores}
    assert found == {
        "mine": ("My own", "easier", -1),
        "avh": ("Angular visual hardness", "harder", 1),
        "some_thing": ("Some thing", None, 1),
    }


def test_what_the_field_says_outweighs_what_the_name_suggests(tmp_path: Path) -> None:
    field = pa.field("confidence", pa.float64(), metadata={"direction": "larger is harder"})
    samples = _samples(tmp_path, pa.table([[1], [2.0]], schema=pa.schema([pa.field("id", pa.int64()), field])))
    assert samples.scores[0].direction == "harder"


def test_null_is_missing_not_zero(tmp_path: Path) -> None:
    samples = _samples(tmp_path, pa.table({"id": ["a", None], "avh": [None, 0.5]}))
    assert samples.values("avh").tolist() == [pytest.approx(math.nan, nan_ok=True), 0.5]
    assert samples.texts("id", np.array([1, 0])) == ["", "a"]


def test_a_score_that_is_no_number_is_named_with_its_file(tmp_path: Path) -> None:
    samples = _samples(tmp_path, pa.table({"id": [1, 2], "never_learned": [["0"], ["1"]]}))
    with pytest.raises(ValueError, match=r"never_learned.*samples\.parquet.*list"):
        samples.values("never_learned")


def test_texts_come_back_in_the_order_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    pq.write_table(pa.table({"id": [f"s{at}" for at in range(200_000)]}), path, row_group_size=7_000)
    rows = np.random.default_rng(0).integers(0, 200_000, 50)
    assert Samples(path).texts("id", rows) == [f"s{row}" for row in rows]


@pytest.mark.parametrize(
    ("label", "predicted", "names", "expected"),
    [
        (pa.array([0, 1, None]), pa.array([1, 1, 1], pa.int8()), ["cat", "dog"], ["cat", "dog"]),
        (pa.array([0, 7, None]), pa.array([1, 1, 1]), ["cat"], ["cat", "1", "7"]),
        (pa.nulls(3), pa.array([1, 0, 1]), ["cat", "dog"], ["cat", "dog"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), pa.array(["c", "a", "a"]), [], ["a", "b", "c"]),
        (pa.array([1, 2, 2]), pa.array(["1", "2", "x"]), ["cat"], ["1", "2", "x"]),
    ],
)
def test_labels_share_one_list_of_classes(
    tmp_path: Path, label: pa.Array, predicted: pa.Array, names: list[str], expected: list[str]
) -> None:
    labels = _samples(tmp_path, pa.table({"id": [1, 2, 3], "label": label, "predicted": predicted})).labels(names)
    assert labels.names == expected
    for column, written in {"label": label, "predicted": predicted}.items():
        if written.null_count == len(written):
            assert column not in labels.codes
            continue
        for code, value in zip(labels.codes[column], written.to_pylist(), strict=True):
            assert (None if code < 0 else str(labels.values[code])) == (None if value is None else str(value))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a"], ["b"], []]),
        pa.array([{"a": 1}, None, None]),
        pa.array([b"\xff", b"a", None]),
        pa.array([2**63, 1, 2], pa.uint64()),
    ],
)
@pytest.mark.parametrize("name", ["label", "predicted"])
def test_columns_that_cannot_be_classes_are_named_with_the_file(tmp_path: Path, name: str, column: pa.Array) -> None:
    samples = _samples(tmp_path, pa.table({"id": [1, 2, 3], name: column}))
    with pytest.raises(ValueError, match=rf"{name}.*samples\.parquet") as refusal:
        samples.labels([])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array([None, 1.5]), pa.array([[["a"]], []])])
def test_kinds_of_another_type_are_none(tmp_path: Path, column: pa.Array) -> None:
    samples = _samples(tmp_path, pa.table({"id": [1, 2], "kinds": column}))
    assert samples.rows_of_kinds() == {}
    assert samples.kinds(np.array([0, 1])) == [[], []]


def test_thumbnails_of_the_wanted_samples_only_and_only_small_pngs(make_record: Maker) -> None:
    folder = make_record()
    png = b"\x89PNG\r\n\x1a\n"
    pictures = {"a": png + b"1", "b": png, "svg": b"<svg onload=alert(1)>", "big": png + bytes(100_000), "none": None}
    table = pa.table({"id": list(pictures), "png": pa.array(pictures.values(), pa.binary())})
    pq.write_table(table, folder / "thumbnails.parquet")
    found = thumbnails(folder, ["a", "svg", "big", "none", "absent"])
    assert found == {"a": "data:image/png;base64,iVBORw0KGgox"}


def test_thumbnails_that_are_texts_are_no_pictures(make_record: Maker) -> None:
    folder = make_record()
    pq.write_table(pa.table({"id": ["a", "b"], "png": ["text", None]}), folder / "thumbnails.parquet")
    assert thumbnails(folder, ["a", "b"]) == {}


def test_run_details_may_be_missing_or_odd(make_record: Maker) -> None:
    run = read_run(make_record(results=[1, 2], class_names="abc"))
    assert run.name == "run"
    assert run.class_names == []
    assert run.section("results", "label_issues") == {}
    assert not run.samples.exists
    assert (run.samples.rows, run.samples.scores) == (0, [])
    assert run.epochs is None


def test_refusals_name_the_file_in_one_sentence(make_record: Maker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"not a run record.*run\.json"):
        read_run(tmp_path)
    folder = make_record({"id": [1, 2], "avh": [0.1, 0.2]})
    assert read_run(folder / "samples.parquet").name == "samples", "a table of scores alone will do"
    with pytest.raises(ValueError, match="not a run record"):
        read_run(folder / "run.json")
    for text in ("{", "[1]", "\x00"):
        (folder / "run.json").write_text(text)
        with pytest.raises(ValueError, match=r"run\.json"):
            read_run(folder)


@pytest.mark.parametrize("name", ["samples.parquet", "epochs.parquet", "thumbnails.parquet"])
@pytest.mark.parametrize("kept", [0, 3, 200])
def test_a_truncated_table_is_refused(make_record: Maker, name: str, kept: int) -> None:
    folder = make_record({"id": list(range(500)), "avh": np.linspace(0, 1, 500)})
    whole = (folder / "samples.parquet").read_bytes()
    (folder / name).write_bytes(whole[:kept])
    with pytest.raises(ValueError, match=name) as refusal:
        thumbnails(read_run(folder).folder, ["1"])
    assert "\n" not in str(refusal.value)


def test_damage_inside_a_column_is_refused(make_record: Maker) -> None:
    folder = make_record({"id": list(range(5000)), "avh": np.random.default_rng(0).random(5000)})
    path = folder / "samples.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"samples\.parquet"):
        read_run(folder).samples.values("avh")


def test_samples_without_ids_are_refused(make_record: Maker) -> None:
    with pytest.raises(ValueError, match="must have a column 'id'; it has avh"):
        read_run(make_record({"avh": [0.1]}))


def test_details_survive_unicode(make_record: Maker) -> None:
    folder = make_record()
    (folder / "run.json").write_text(json.dumps({"kind": "demo", "name": "größe 猫"}, ensure_ascii=False), "utf-8")
    assert read_run(folder).name == "größe 猫"
