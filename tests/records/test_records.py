"""Records: files appear whole or not at all."""

import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hardsight import records
from hardsight.records import (
    atomic_path,
    check_writable,
    read_run,
    read_table,
    write_json,
    write_table,
    write_text,
)


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    write_json(target, {"status": "finished"})

    def die_while_writing() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text('{"sta')
            raise RuntimeError

    with pytest.raises(RuntimeError):
        die_while_writing()
    assert json.loads(target.read_text()) == {"status": "finished"}
    assert os.listdir(tmp_path) == ["run.json"]


def test_folders_are_made_and_the_file_is_as_readable_as_any(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "notes.txt"
    write_text(target, "θ\n")
    assert target.read_text(encoding="utf-8") == "θ\n"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": math.nan, "b": [math.inf, 1.5], "c": Path("x"), 3: (1,)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": [None, 1.5], "c": "x", "3": [1]}


def test_tables_keep_their_field_metadata(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("avh", pa.float32(), metadata={"direction": "larger is harder"})])
    write_table(tmp_path / "samples.parquet", pa.table([pa.array([0.5], pa.float32())], schema=schema))
    assert pq.read_schema(tmp_path / "samples.parquet").field("avh").metadata[b"direction"] == b"larger is harder"


def test_what_could_not_be_written_is_known_beforehand_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    check_writable(tmp_path / "new" / "newer" / "x.parquet")
    check_writable(tmp_path / "file")
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)
    with pytest.raises(NotADirectoryError):
        check_writable(tmp_path / "file" / "x" / "y.parquet")
    # The tests may run as root, whom no mode stops.
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    with pytest.raises(PermissionError, match=str(tmp_path)):
        check_writable(tmp_path / "new" / "x.parquet")
    assert os.listdir(tmp_path) == ["file"]


def test_numpy_s_numbers_are_numbers(tmp_path: Path) -> None:
    value = {"a": np.float32(2.5), "b": np.int64(3), "c": [np.float32("nan"), np.bool_(True)]}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 2.5, "b": 3, "c": [None, True]}


def test_arrays_and_tensors_are_lists_of_numbers(tmp_path: Path) -> None:
    value = {
        "array": np.array([[1, 2], [3, 4]]),
        "half": np.array([0.5, np.inf], np.float16),
        "scalar": torch.tensor(0.5, requires_grad=True),
        "tensor": torch.tensor([1.0, math.nan]),
    }
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "array": [[1, 2], [3, 4]],
        "half": [0.5, None],
        "scalar": 0.5,
        "tensor": [1.0, None],
    }


def test_the_place_of_a_device_or_a_pipe_is_not_taken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(ValueError, match=r"pipe\.html is a device or a pipe"):
        write_text(tmp_path / "pipe.html", "page")
    assert stat.S_ISFIFO((tmp_path / "pipe.html").stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe.html"]


def test_a_name_may_be_as_long_as_the_file_system_lets_it(tmp_path: Path) -> None:
    target = tmp_path / ("ä" * 120 + ".json")
    write_json(target, [1])
    assert json.loads(target.read_text()) == [1]


def test_a_path_that_is_no_utf8_is_read_back_as_it_was(tmp_path: Path) -> None:
    source = os.fsdecode(b"caf\xe9\\u00e9/\xc3\xa9")
    write_json(tmp_path / "run.json", {"source": Path(source)})
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == {"source": source}


@pytest.mark.parametrize("text", ["", "{", "5", "[1]", "[" * 100_000, '{"a": ' * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_a_run_that_cannot_be_read_says_nothing_of_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert read_run(tmp_path) is None
    assert (tmp_path / "run.json").read_text() == text


def test_files_left_out_are_said_once_each_beside_what_a_table_says_already() -> None:
    table = pa.table({"id": [1]}).replace_schema_metadata({"classes": "2"})
    assert records.skipped_in(table) == []
    assert records.with_skipped(table, []) is table
    said = records.with_skipped(table, ["b.png: no such file", "ä.png: empty", "b.png: no such file"])
    assert records.skipped_in(said) == ["b.png: no such file", "ä.png: empty"]
    assert said.schema.metadata[b"classes"] == b"2"


def test_lists_in_a_table_are_not_held_several_times(tmp_path: Path) -> None:
    """The probabilities of a million samples are gigabytes; all read at once, they took four times as many."""
    values = np.random.default_rng(0).random((100_000, 64), np.float32)
    table = pa.table({"id": np.arange(100_000), "lists": pa.FixedSizeListArray.from_arrays(values.reshape(-1), 64)})
    table = table.set_column(1, "lists", table.column("lists").cast(pa.list_(pa.float32())))
    table = table.replace_schema_metadata({"classes": "64"})
    write_table(tmp_path / "t.parquet", table)
    assert read_table(tmp_path / "t.parquet").equals(pq.read_table(tmp_path / "t.parquet"), check_metadata=True)
    # In a process of its own: Arrow counts the most that a process ever held.
    code = (
        "import pyarrow, sys; from hardsight.records import read_table\n"
        "print(read_table(sys.argv[1]).nbytes, pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.parquet")]
    held, most = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert held >= values.nbytes
    assert most < 1.6 * held
