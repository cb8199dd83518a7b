"""Files are read as they lie: ids stay text, directions come from the fields, and what is wrong is named."""

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from hardsight.alignment.tables import read_joined


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """A table of scores and a CSV; score columns whose name is in `directions` describe themselves."""

    def make(columns: dict[str, Any], csv: str, directions: dict[str, str] | None = None, **metadata: str) -> Any:
        fields = []
        for name, values in columns.items():
            said = {"kind": "score", "title": name.upper()}
            known = (directions or {}).get(name)
            described = said | {"direction": f"larger is {known}"} if known else None
            fields.append(pa.field(name, pa.array(values).type, metadata=described))
        schema = pa.schema(fields, metadata={key.replace("_", " "): value for key, value in metadata.items()})
        pq.write_table(
            pa.table([pa.array(one) for one in columns.values()], schema=schema), tmp_path / "scores.parquet"
        )
        (tmp_path / "humans.csv").write_text(csv, encoding="utf-8")
        return tmp_path / "scores.parquet", tmp_path / "humans.csv"

    return make


COLUMNS = {"id": [1, 2, 3, 4], "label": [0, 1, 0, 1], "predicted": [0, 0, 0, 1], "avh": [0.1, 0.4, 0.2, 0.3]}
CSV = "id,hsf\n4,0.4\n3,0.3\n2,0.2\n1,0.1\n"


def test_rows_meet_by_id_and_fields_say_the_direction(write: Callable) -> None:
    columns = {**COLUMNS, "confidence": [0.9, 0.2, 0.8, 0.7], "plain": [1.0, 2.0, 3.0, 5.0]}
    joined = read_joined(*write(columns, CSV, {"avh": "harder", "confidence": "easier"}, class_names='["cat", "dog"]'))
    assert [(one.name, one.direction, one.title) for one in joined.scores] == [
        ("avh", "harder", "AVH"),
        ("confidence", "easier", "CONFIDENCE"),
        ("plain", None, None),
    ]
    np.testing.assert_array_equal(joined.human.values, [0.1, 0.2, 0.3, 0.4])
    assert joined.labels.tolist() == ["cat", "dog", "cat", "dog"]
    assert joined.correct.tolist() == [1, 0, 1, 1]
    assert not joined.incomplete


@pytest.mark.parametrize("separator", [";", "\t"])
def test_spreadsheets_separate_by_what_they_like(separator: str, write: Callable) -> None:
    plain, other = read_joined(*write(COLUMNS, CSV)), read_joined(*write(COLUMNS, CSV.replace(",", separator)))
    np.testing.assert_array_equal(other.human.values, plain.human.values)
    with pytest.raises(ValueError, match="0,5 is text"):
        read_joined(*write(COLUMNS, "id;hsf\n1;0,5\n2;0,4\n3;0,3\n4;0,2\n"))


def test_scores_may_be_a_csv_too(write: Callable, tmp_path: Path) -> None:
    scores, humans = write(COLUMNS, CSV)
    pyarrow.csv.write_csv(pq.read_table(scores), tmp_path / "scores.csv")
    one, other = read_joined(scores, humans), read_joined(tmp_path / "scores.csv", humans)
    assert [column.name for column in other.scores] == [column.name for column in one.scores] == ["avh"]
    np.testing.assert_array_equal(other.scores[0].values, one.scores[0].values)
    assert other.labels.tolist() == one.labels.tolist()


def test_ids_that_are_text_stay_text(write: Callable) -> None:
    columns = {"id": ["001", "002", "003", "004"], "avh": [0.1, 0.4, 0.2, 0.3]}
    joined = read_joined(*write(columns, "id,hsf\n001,0.4\n002,0.3\n003,0.2\n004,0.1\n"))
    np.testing.assert_array_equal(joined.human.values, [0.4, 0.3, 0.2, 0.1])


def test_ids_that_are_categories_are_text(write: Callable) -> None:
    ids = pa.array(["001", "002", "003", "004"]).dictionary_encode()
    joined = read_joined(*write({"id": ids, "avh": [0.1, 0.4, 0.2, 0.3]}, CSV.replace("\n", "\n00").removesuffix("00")))
    np.testing.assert_array_equal(joined.human.values, [0.1, 0.2, 0.3, 0.4])


def test_numbers_meet_the_same_numbers_with_a_point_and_text(write: Callable) -> None:
    # A table that once had a gap keeps its ids as floats.
    floats = read_joined(*write(COLUMNS | {"id": [1.0, 2.0, 3.0, 4.0]}, CSV))
    np.testing.assert_array_equal(floats.human.values, [0.1, 0.2, 0.3, 0.4])
    text = read_joined(*write(COLUMNS, CSV + "x,0.5\n"))
    np.testing.assert_array_equal(text.human.values, [0.1, 0.2, 0.3, 0.4])
    assert "1 of humans.csv are missing in scores.parquet, first 'x'" in text.match
    with pytest.raises(ValueError, match="0 ids"):
        read_joined(*write(COLUMNS | {"id": ["01", "02", "03", "04"]}, CSV))


def test_where_each_file_lacks_ids_one_must_ask_for_the_rest(write: Callable) -> None:
    files = write({"id": [9, 1, 2, 3, 4], "avh": [0.9, 0.1, 0.4, 0.2, 0.3]}, CSV + "7,0.7\n8,0.8\n")
    with pytest.raises(ValueError, match=r"--partial.*: 4 ids .* 1 of scores.*, first 9; 2 of humans.*, first 7"):
        read_joined(*files)
    joined = read_joined(*files, partial=True)
    assert joined.incomplete
    assert joined.ids == [1, 2, 3, 4]
    np.testing.assert_array_equal(joined.human.values, [0.1, 0.2, 0.3, 0.4])
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match=r"every row of .*scores\.parquet must have an id; 1 have none"):
            read_joined(*write({"id": [1.0, 2.0, 3.0, 4.0, missing], "avh": [0.9, 0.1, 0.4, 0.2, 0.3]}, CSV))


def test_pyarrow_holds_nothing_of_pythons(write: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its threads abort a process that ends soon after: a refusal would leave with 134 instead of 2, now and then.
    def spy_on(module: Any, name: str) -> None:
        read = getattr(module, name)

        def spied(source: Any, *rest: Any, **options: Any) -> Any:
            assert isinstance(source, pa.OSFile)
            return read(source, *rest, **options)

        monkeypatch.setattr(module, name, spied)

    spy_on(pq, "ParquetFile")
    spy_on(pyarrow.csv, "read_csv")
    assert len(read_joined(*write(COLUMNS, CSV)).ids) == 4


def test_labels_without_names_stay_numbers_and_gaps_are_unknown(write: Callable) -> None:
    assert read_joined(*write(COLUMNS, CSV)).labels.tolist() == [0, 1, 0, 1]
    gap = read_joined(*write({**COLUMNS, "label": [0, 1, None, 1]}, CSV))
    assert gap.labels is None
    assert gap.correct is None


def test_what_cannot_be_correlated_is_left_out_or_refused_when_named(write: Callable) -> None:
    paths = write({**COLUMNS, "flat": [0.5] * 4, "holes": [0.1, None, 0.3, 0.2]}, CSV)
    joined = read_joined(*paths)
    assert [one.name for one in joined.scores] == ["avh"]
    assert set(joined.left_out) == {"flat", "holes"}
    assert [one for one in ("'flat'", "vary", "tied at 0.5") if one not in joined.left_out["flat"]] == []
    assert [one for one in ("'holes'", "finite", "1 of 4", "id 2") if one not in joined.left_out["holes"]] == []
    with pytest.raises(ValueError, match="score 'flat' must vary"):
        read_joined(*paths, names=["avh", "flat"])


@pytest.mark.parametrize(
    ("csv", "options", "sentence"),
    [
        ("id,a,b\n1,1,2\n2,2,1\n3,1,1\n4,5,5\n", {}, "or --human must name one; it has a, b"),
        ("id,a\n1,x\n2,y\n3,z\n4,w\n", {}, "it has none"),
        ("id,a\n1,x\n2,y\n3,z\n4,w\n", {"human": "a"}, "column 'a' must hold numbers; it holds string"),
        (CSV, {"human": "nope"}, "must have a column 'nope'; it has id, hsf"),
        (CSV, {"names": ["avh", "nope"]}, "scores must be columns of the table, id, label, predicted, avh; got 'nope'"),
        (CSV, {"id_column": "key"}, r"scores\.parquet must have a column 'key'"),
        ("key,hsf\n1,1\n", {}, r"humans\.csv must have a column 'id'"),
        ("id,hsf\n1,0.1\n2,\n3,0.3\n4,0.2\n", {}, "must be finite; 1 of 4 .* first nan for id 2; leave out"),
        ("id,hsf\n1,1\n2,1\n3,1\n4,1\n", {}, "human column 'hsf' must vary"),
        ("id,hsf\n1,1\n2,1,7\n", {}, "is not a readable CSV table"),
        ("", {}, "is not a readable CSV table"),
        ("id,hsf\n", {}, r"at least 4 ids must match: 0 ids"),
        ("id,hsf\n1,nan\n2,nan\n3,nan\n4,nan\n", {}, "human column 'hsf' must be finite; 4 of 4 values are not"),
        (CSV, {"names": []}, "scores must name at least one column of the table, id, label, predicted, avh; got none"),
        ("id,id,hsf\n1,1,1\n", {}, "must name each column once; it has 'id' more than once"),
        ("id,hsf,hsf\n1,1,1\n", {"human": "hsf"}, "must name each column once; it has 'hsf' more than once"),
        ("id,hsf\n7,1\n8,2\n9,3\n", {}, "0 ids of .* match; 4 of .* are missing in .*, first 1; 3 of .*, first 7"),
        ("id,hsf\n1,1\n2,2\n3,3\n4,4\n4,5\n", {}, "must be unique; 4 occurs 2 times"),
    ],
)  # fmt: skip
def test_refusals(csv: str, options: dict[str, Any], sentence: str, write: Callable) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_joined(*write(COLUMNS, csv), **options)


def test_text_that_is_not_utf_8_is_named(write: Callable) -> None:
    scores, humans = write(COLUMNS, CSV)
    for spoilt in (CSV.strip().encode("utf-16"), b"id,h\xe9\n1,2\n"):
        humans.write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"humans\.csv is truncated or is not a readable CSV table: .*utf-?8"):
            read_joined(scores, humans)


def test_a_table_that_names_a_column_twice(write: Callable) -> None:
    scores, humans = write(COLUMNS, CSV)
    twice = [pa.array([1, 2, 3, 4]), pa.array([0.1, 0.4, 0.2, 0.3]), pa.array([0.1, 0.4, 0.2, 0.3])]
    pq.write_table(pa.table(twice, names=["id", "avh", "avh"]), scores)
    with pytest.raises(ValueError, match=r"scores\.parquet must name each column once; it has 'avh' more than once"):
        read_joined(scores, humans)


def test_labels_that_are_no_single_values_are_unknown(write: Callable) -> None:
    lists: list[list[int]] = [[0], [1], [0], [1]]
    joined = read_joined(*write({**COLUMNS, "label": lists, "predicted": lists}, CSV))
    assert joined.labels is None
    assert joined.correct is None


def test_whole_numbers_are_scores_only_where_somebody_says_so(write: Callable) -> None:
    paths = write({**COLUMNS, "rating": [1, 5, 2, 3]}, CSV)
    joined = read_joined(*paths)
    assert [one.name for one in joined.scores] == ["avh"]
    assert list(joined.left_out) == ["rating"]
    assert [one for one in ("'rating'", "whole numbers", "--scores") if one not in joined.left_out["rating"]] == []
    assert [one.name for one in read_joined(*paths, names=["rating"]).scores] == ["rating"]
    only = write({"id": [1, 2, 3, 4], "rating": [1, 5, 2, 3]}, CSV)
    with pytest.raises(ValueError, match=r"column 'rating' holds whole numbers, .* name it in --scores"):
        read_joined(*only)
    described = write({"id": [1, 2, 3, 4], "rating": [1, 5, 2, 3]}, CSV, {"rating": "harder"})
    assert [one.name for one in read_joined(*described).scores] == ["rating"]


def test_labels_with_gaps_are_named(write: Callable) -> None:
    joined = read_joined(*write({**COLUMNS, "label": [0, 1, None, 1]}, CSV))
    assert list(joined.left_out) == ["label"]
    assert [one for one in ("'label'", "1 of 4") if one not in joined.left_out["label"]] == []


def test_a_label_that_is_not_a_number_is_a_gap(write: Callable) -> None:
    joined = read_joined(*write({**COLUMNS, "label": [0.0, 1.0, math.nan, 1.0], "predicted": [0, 1, 0, 1]}, CSV))
    assert joined.labels is None
    assert joined.correct is None
    assert "1 of 4 are missing" in joined.left_out["label"]
    unsure = read_joined(*write({**COLUMNS, "label": [0, 1, 0, 1], "predicted": [0.0, 1.0, math.nan, 1.0]}, CSV))
    assert unsure.labels.tolist() == [0, 1, 0, 1]
    assert unsure.correct is None


def test_a_label_and_a_prediction_may_be_numbers_of_different_types(write: Callable) -> None:
    joined = read_joined(*write({**COLUMNS, "predicted": [0.0, 0.0, 0.0, 1.0]}, CSV))
    assert joined.correct.tolist() == [1, 0, 1, 1]
    unlike = read_joined(*write({**COLUMNS, "predicted": ["0", "0", "0", "1"]}, CSV))
    assert unlike.correct is None


def test_decimal_numbers_are_numbers(write: Callable) -> None:
    values = [Decimal(one) for one in ("0.1", "0.4", "0.2", "0.3")]
    (score,) = read_joined(*write({"id": [1, 2, 3, 4], "avh": values}, CSV)).scores
    np.testing.assert_allclose(score.values, COLUMNS["avh"])


def test_files_that_are_none(write: Callable, tmp_path: Path) -> None:
    scores, humans = write(COLUMNS, CSV)
    with pytest.raises(FileNotFoundError):
        read_joined(tmp_path / "nowhere.parquet", humans)
    with pytest.raises(FileNotFoundError):
        read_joined(scores, tmp_path / "nowhere.csv")
    scores.write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"scores\.parquet is truncated or is not a Parquet file"):
        read_joined(scores, humans)


def test_damage_anywhere_in_a_parquet_file_is_one_sentence_with_its_name(write: Callable) -> None:
    scores, human = write(COLUMNS, CSV)
    data = scores.read_bytes()
    sentences = []
    for place in range(0, len(data), 5):
        scores.write_bytes(data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :])
        try:
            read_joined(scores, human)
        except ValueError as refusal:
            sentences.append(str(refusal))
    assert len(sentences) > 50
    assert all("\n" not in one for one in sentences)
    # What was read as other ids or other scores is refused as such.
    unread = [one for one in sentences if "Parquet file" in one]
    assert unread
    assert all(one.startswith(str(scores)) for one in unread)


def test_a_refusal_of_a_csv_is_one_short_sentence(write: Callable, tmp_path: Path) -> None:
    scores, human = write(COLUMNS, CSV)
    human.write_text('id,hsf\n0,1\n"unclosed\n' + "".join(f"{row},0.5\n" for row in range(1000)))
    with pytest.raises(ValueError, match=r"is not a readable CSV table: .*unclosed") as refusal:
        read_joined(scores, human)
    assert "\n" not in str(refusal.value)
    human.write_text(f"id,{'x' * 100_000}\n0,a\n")
    with pytest.raises(ValueError, match="must have one column of numbers"):
        read_joined(scores, human, partial=True)
    (tmp_path / "wide.csv").write_text(",".join(f"column{number}" for number in range(5000)) + "\n")
    with pytest.raises(ValueError, match=r"must have a column 'id'; it has column0, .*, \.\.\.$") as refusal:
        read_joined(scores, tmp_path / "wide.csv")
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("names", [b"5", b"{}", b"null", b'{"0": "cat"}', b"[" * 100_000])
def test_class_names_that_are_no_list_are_no_names(names: bytes, write: Callable) -> None:
    scores, human = write(COLUMNS, CSV)
    table = pq.read_table(scores)
    pq.write_table(table.replace_schema_metadata({b"class names": names}), scores)
    assert read_joined(scores, human).labels.tolist() == table["label"].to_pylist()


def test_ids_that_are_lists_are_refused(write: Callable) -> None:
    scores, human = write({**COLUMNS, "id": [[1], [2], [3], [4]]}, CSV)
    with pytest.raises(ValueError, match=r"scores\.parquet must be numbers or text; got list"):
        read_joined(scores, human)
