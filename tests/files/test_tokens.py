"""The tokens of documents, read a document at a time, are those of the whole file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hardsight.files.tokens import Tokens, pieces, tokens_of


def write_tokens(path: Path, documents: list[int], direction: str = "larger is harder", group: int = 7) -> pa.Table:
    size = len(documents)
    loss = pa.field("loss", pa.float32(), metadata={"direction": direction})
    schema = pa.schema([("document", pa.int64()), ("start", pa.int32()), ("end", pa.int32()), loss])
    values = np.random.default_rng(0).random(size).astype(np.float32)
    table = pa.table([documents, np.arange(size), np.arange(size) + 1, values], schema=schema)
    pq.write_table(table, path, row_group_size=group)
    return table


@pytest.mark.parametrize("group", [1, 7, 1000])
def test_spans_of_a_document_are_its_rows(tmp_path: Path, group: int) -> None:
    documents = sorted(np.random.default_rng(1).integers(0, 30, 200).tolist())
    table = write_tokens(tmp_path / "tokens.parquet", documents, group=group).to_pylist()
    tokens = Tokens(tmp_path / "tokens.parquet")
    for document in range(-1, 31):
        found = [(one.start, one.end, one.value) for one in tokens.spans(document, "loss")]
        assert found == [(row["start"], row["end"], row["loss"]) for row in table if row["document"] == document]


@pytest.mark.parametrize("direction", ["larger is harder", "larger is easier"])
def test_the_last_tenth_holds_the_hardest(tmp_path: Path, direction: str) -> None:
    table = write_tokens(tmp_path / "tokens.parquet", [0] * 200, direction, group=1000)
    spans = Tokens(tmp_path / "tokens.parquet").spans(0, "loss")
    order = np.argsort(table["loss"].to_numpy() * (1 if direction == "larger is harder" else -1))
    assert {one.start for one in spans if one.tenth == 9} == set(order[-20:].tolist())
    assert {one.start for one in spans if one.tenth == 0} == set(order[:20].tolist())


def test_a_text_is_cut_into_its_tokens_and_nothing_is_lost(tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens.parquet", [0, 0, 1])
    spans = Tokens(tmp_path / "tokens.parquet").spans(0, "loss")
    wrong = [spans[0]._replace(start=0, end=9), spans[0]._replace(start=3, end=2), spans[0]._replace(start=1, end=2)]
    for given in (spans, [*spans, *wrong], []):
        assert "".join(piece for piece, _ in pieces("🐈bcd", given)) == "🐈bcd"
    assert [piece for piece, one in pieces("🐈bcd", spans) if one] == ["🐈", "b"]


def test_tokens_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    write_tokens(path, [1, 0])
    with pytest.raises(ValueError, match="sorted by document"):
        Tokens(path).spans(0, "loss")
    pq.write_table(pa.table({"document": [1]}), path)
    with pytest.raises(ValueError, match="start"):
        Tokens(path)
    with pytest.raises(ValueError, match="outside"):
        tokens_of(path, pa.schema([("id", pa.int64())], {"tokens file": "../tokens.parquet"}))
    assert tokens_of(path, pa.schema([("id", pa.int64())], {"tokens file": "gone.parquet"})) is None
