"""The columns beside a table: made once, checked by its hash, and right for tables of any origin."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hardsight.explorer import columns as module
from hardsight.explorer.columns import open_columns
from hardsight.explorer.source import find_source
from hardsight.records import write_table

from .conftest import audited


def roles(table: Path) -> dict[str, str]:
    return {name: one.role for name, one in open_columns(table).all.items()}


def test_an_audit_has_its_columns_by_what_they_hold(tmp_path: Path) -> None:
    write_table(tmp_path / "table.parquet", audited())
    found = roles(tmp_path / "table.parquet")
    assert found == {
        "id": "id", "label": "list", "expected": "list", "suspicion": "number", "rank": "number", "issue": "list",
        "reasons": "text", "kinds": "several", "loss": "number", "split": "list", "x": "number", "y": "number",
        "neighbours": "neighbours", "text": "text", "path": "text",
    }  # fmt: skip


def test_any_table_of_scores_will_do(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "label": pa.array(["x", None, "y"]).dictionary_encode(),
            "half": pa.array([1.0, None, float("inf")], pa.float16()),
            "score": pa.array([1.0, None, float("nan")]),
            "vector": [[1.0], [2.0], [3.0]],
            "when": pa.array([0, 1, 2], pa.timestamp("s")),
            "nothing": pa.nulls(3),
            "price": pa.array([1, 2, None], pa.decimal128(5, 2)),
        }
    )
    write_table(tmp_path / "scores.parquet", table)
    opened = open_columns(tmp_path / "scores.parquet")
    assert opened.class_names == ["x", "y"]
    assert opened.array("label").tolist() == [0, 2, 1]
    assert opened.array("score", "bin").tolist() == [0, 255, 255]
    assert opened.array("half", "bin").tolist()[1:] == [255, 254]
    assert "vector" not in opened.all


def test_the_columns_are_kept_and_made_again_when_the_table_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.parquet"
    write_table(table, audited())
    open_columns(table)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_make", lambda *_: pytest.fail("made twice"))
        assert open_columns(table).rows == 300
    write_table(table, audited(200))
    assert open_columns(table).rows == 200


def test_columns_that_were_cut_off_are_made_again(tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    write_table(table, audited())
    kept = open_columns(table).folder
    largest = max(kept.glob("*.arrow"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-8])
    again = open_columns(table)
    assert len(again.texts("reasons", range(300))) == 300
    assert not list(tmp_path.glob(".table.draft-*"))


def test_without_a_place_beside_the_table_they_are_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.parquet"
    write_table(table, audited())
    real = module.tempfile.mkdtemp

    def elsewhere(prefix: str, dir: Path | None = None) -> str:
        if dir is not None:
            raise PermissionError(13, "Permission denied")
        return real(prefix=prefix, dir=tmp_path / "elsewhere")

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(module.tempfile, "mkdtemp", elsewhere)
    assert open_columns(table).rows == 300
    assert (tmp_path / "elsewhere").iterdir()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({"score": [1.0]}), "id"),
        (pa.table({"id": [1, 1], "score": [1.0, 2.0]}), "unique"),
        (pa.table({"id": pa.array([], pa.int64())}), "row"),
        (pa.table({"id": [1], "label": [["a"]]}), r"label.*scores\.parquet"),
        (pa.table({"id": [1], "predicted": [{"a": 1}]}), r"predicted.*scores\.parquet"),
        (pa.table({"id": [b"\xff"]}), r"scores\.parquet"),
    ],
)
def test_a_table_that_cannot_be_explored_is_rejected(tmp_path: Path, table: pa.Table, said: str) -> None:
    write_table(tmp_path / "scores.parquet", table)
    with pytest.raises(ValueError, match=said):
        open_columns(tmp_path / "scores.parquet")
    assert not list(tmp_path.glob(".scores*"))


def test_a_table_of_a_million_rows_does_not_hold_them_as_objects(tmp_path: Path) -> None:
    rows = 1_000_000
    table = pa.table({"id": np.arange(rows), "score": np.linspace(0, 1, rows)})
    write_table(tmp_path / "scores.parquet", table)
    opened = open_columns(tmp_path / "scores.parquet")
    assert opened.array("score", "bin").nbytes == rows
    assert np.bincount(opened.array("score", "bin")).max() == pytest.approx(rows / 255, rel=0.01)


def test_a_folder_that_is_no_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"table\.parquet"):
        find_source(tmp_path)
    with pytest.raises(FileNotFoundError, match="source"):
        find_source(tmp_path / "nowhere")


def test_who_makes_the_columns_at_the_same_time_keeps_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.parquet"
    write_table(table, audited())
    real = module.shutil.rmtree

    def then_another(folder: Path, **options: bool) -> None:
        real(folder, **options)
        (folder / "theirs").mkdir(parents=True)

    with monkeypatch.context() as patched:
        patched.setattr(module.shutil, "rmtree", then_another)
        opened = open_columns(table)
    assert opened.rows == len(opened.texts("reasons", range(300)))
