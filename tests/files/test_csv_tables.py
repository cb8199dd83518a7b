"""CSV tables of strangers: any separator, each column once, and a short sentence about what is none."""

from pathlib import Path

import pytest

from hardsight import cleaning
from hardsight.files import RefusedError
from hardsight.files.plain import read_csv


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_are_alike(tmp_path: Path, separator: str) -> None:
    (tmp_path / "t.csv").write_text(f"id{separator}label\n1{separator}cat\n")
    assert read_csv(tmp_path / "t.csv").to_pydict() == {"id": [1], "label": ["cat"]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"t\.csv is truncated or is not a readable CSV table"),
        ("a,b\n1,2\n" + "1," * 100_000, r"t\.csv is truncated or is not a readable CSV table"),
        ("a,b,a\n1,2,3\n", "must name each column once; it has 'a' more than once"),
        ("," * 20_000, "must have at most 10,000 columns; it has 20,001"),
    ],
)
def test_what_is_no_table_is_refused_shortly(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    for read in (read_csv, cleaning.audit):
        with pytest.raises(RefusedError, match=sentence) as refusal:
            read(tmp_path / "t.csv")
        assert len(str(refusal.value)) < 1000
