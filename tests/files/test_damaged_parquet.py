"""Damaged Parquet files: a sentence about the file, never the end of the process or of the memory."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hardsight.files import RefusedError
from hardsight.files.parquet import read_table

READ = "import sys; from hardsight.files.parquet import read_table; read_table(sys.argv[1])"


def test_a_column_that_its_own_statistics_contradict_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"label": [1, 2, None]}), path)
    # In the schema the column becomes one without gaps; its histogram of gaps stays.
    honest, contradicted = b"%\x02\x18\x05label", b"%\x00\x18\x05label"
    assert path.read_bytes().count(honest) == 1
    path.write_bytes(path.read_bytes().replace(honest, contradicted))
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "RefusedError" in done.stderr.splitlines()[-1]
    assert str(path) in done.stderr.splitlines()[-1]


def many_columns(path: Path, count: int) -> Path:
    """A footer of five row groups of so many columns, of each of which it says nothing."""
    length, left = b"", count
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    group = b"\x19\xfc" + length + bytes([left]) + b"\x26\0\0" * count + b"\x16\0\x16\0\0"
    root = b"\x48\x01a\x15\x02\0"
    footer = b"\x15\x02" + b"\x19\x1c" + root + b"\x16\0" + b"\x19\x5c" + group * 5 + b"\0"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return path


def test_a_footer_of_millions_of_columns_takes_little_memory(
    tmp_path: Path, ended: Callable[..., Any], honest: int
) -> None:
    path = many_columns(tmp_path / "s.parquet", 1_000_000)
    assert path.stat().st_size < 16 << 20
    answer = ended("audit", path, "-o", tmp_path / "out", "--no-page")
    assert answer.code == 2
    assert "s.parquet" in answer.said
    assert "5,000,000" in answer.said
    assert answer.peak < honest + (1 << 30)


def test_a_footer_that_says_a_thing_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # A field of the same number has a step of zero, and its number after that: no row groups.
    footer = data[start:-9] + b"\x09\x08\x0c" + b"\0"
    path.write_bytes(data[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    with pytest.raises(RefusedError, match=r"t\.parquet"):
        read_table(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n", b"PAR1" * 5, b"PAR1" + bytes(4) + b"PARE"])
def test_what_is_no_parquet_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(RefusedError, match=r"t\.parquet"):
        read_table(tmp_path / "t.parquet")
