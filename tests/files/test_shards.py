"""A folder of shards reads as the one table that they are parts of."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hardsight.files.parquet import open_table, table_files

WHOLE = pa.table({"id": np.arange(10), "loss": np.arange(10) / 3, "list": [[1.0, float(at)] for at in range(10)]})


def write_shards(folder: Path, outputs: list[str], **said: Any) -> Path:
    folder.mkdir()
    for at, name in enumerate(outputs):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(WHOLE.slice(at * 10 // len(outputs), 10 // len(outputs)), path)
    manifest = {"kind": "score shards", "shards": [{"output": name} for name in outputs]} | said
    (folder / "shards.json").write_text(json.dumps(manifest))
    return folder


def test_shards_are_read_in_the_order_of_their_manifest(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "scores", ["z.parquet", "more/a.parquet"])
    with open_table(folder) as file:
        assert file.rows == 10
        assert file.read().equals(WHOLE)
        assert file.read(["loss"]).column_names == ["loss"]
        assert pa.Table.from_batches(file.batches(["list"])).column(0).to_pylist() == WHOLE["list"].to_pylist()
    assert [path.name for path in table_files(folder)] == ["shards.json", "z.parquet", "a.parquet"]


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"kind": "other"}, "name the shards"),
        ({"shards": []}, "name the shards"),
        ({"shards": 7}, "name the shards"),
        ({"shards": [{"output": "gone.parquet"}, {"output": "a.parquet"}]}, "gone.parquet"),
        ({"shards": [{"output": "../a.parquet"}]}, "outside"),
    ],
)
def test_a_manifest_that_names_anything_else_is_rejected(tmp_path: Path, said: dict[str, Any], named: str) -> None:
    folder = write_shards(tmp_path / "scores", ["a.parquet"], **said)
    with pytest.raises(ValueError, match=named):
        open_table(folder)


def test_shards_of_different_columns_are_rejected(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "scores", ["a.parquet", "b.parquet"])
    pq.write_table(WHOLE.drop_columns(["loss"]), folder / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet"):
        open_table(folder)
