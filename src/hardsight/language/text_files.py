"""Documents from text, Parquet and JSON Lines files, one after the other: any number of them in the memory of a few."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from hardsight.files import LARGEST_TEXT, parse_json, plain_file
from hardsight.files.parquet import Parquet


class Document(NamedTuple):
    """A text, and where it is from, if known."""

    text: str
    source: str | None = None


def read_documents(path: Path | str, column: str | None = None, source: str | None = None) -> Iterator[Document]:
    """The documents of a file: the lines of a text that are not blank, or the rows of a Parquet or JSON Lines file.

    `column` holds the text ("text" by default), `source` names a column that says where a document is from.
    """
    path = plain_file(path)
    if path.suffix == ".parquet":
        return _of_parquet(path, column or "text", source)
    if path.suffix in (".jsonl", ".ndjson"):
        return _of_json_lines(path, column or "text", source)
    given = [f"{name}={value!r}" for name, value in (("column", column), ("source", source)) if value is not None]
    if given:
        raise ValueError(f"text must be a .parquet or .jsonl file to have columns; got {path.name} with {given[0]}")
    return (Document(line) for line in _lines(path) if line.strip())


def _of_parquet(path: Path, column: str, source: str | None) -> Iterator[Document]:
    names = list(dict.fromkeys([column, *([source] if source else [])]))
    with Parquet(path) as file:
        for name in names:
            kind = file.schema.field(name).type if name in file.schema.names else None
            if kind is None or (name == column and not (pa.types.is_string(kind) or pa.types.is_large_string(kind))):
                raise ValueError(
                    f"column must be one of text in {path.name}; got {name!r} of {', '.join(file.schema.names)}"
                )
        for batch in file.batches(names):
            sources = [None] * len(batch) if source is None else batch.column(source).to_pylist()
            for text, of in zip(batch.column(column).to_pylist(), sources, strict=True):
                yield Document(text or "", None if of is None else str(of))


def _of_json_lines(path: Path, column: str, source: str | None) -> Iterator[Document]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"line {number} of {path.name}"
        try:
            row: Any = parse_json(line)
        except (json.JSONDecodeError, ValueError) as problem:
            raise ValueError(f"{where} must be a JSON object: {problem}") from None
        if not isinstance(row, dict) or not isinstance(row.get(column), str):
            held = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
            raise ValueError(f"{where} must be a JSON object with text in {column!r}; it has {held}")
        of = None if source is None else row.get(source)
        yield Document(row[column], None if of is None else str(of))


def _lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, each of at most 256 MiB."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LARGEST_TEXT + 1):
            number += 1
            if len(line) > LARGEST_TEXT:
                raise ValueError(
                    f"lines of {path.name} must have at most {LARGEST_TEXT:,} bytes; line {number} has more"
                )
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"text must be UTF-8; byte {error.start} of line {number} of {path.name} is not"
                ) from None
