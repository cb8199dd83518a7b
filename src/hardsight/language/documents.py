"""Documents from text, Parquet and JSON Lines files, any number in the memory of a few, and as a model reads them.

A long document is cut into windows; each of its tokens is scored once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.files import LARGEST_TEXT, parse_json, plain_file
from hardsight.files.parquet import Parquet
from hardsight.language.head import LanguageHead
from hardsight.language.scoring import IGNORED


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
        except ValueError as problem:
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


class Encoded(NamedTuple):
    """A document's tokens, whether each is a special one, and which characters of the text it is."""

    ids: np.ndarray
    special: np.ndarray
    spans: np.ndarray


class Window(NamedTuple):
    """A piece of a document: the tokens from `start` on, of which those before `first` are context alone."""

    document: int
    start: int
    first: int
    ids: np.ndarray
    special: np.ndarray


def longest(tokenizer: Any, head: LanguageHead) -> int:
    """The tokens that the model reads at once: at most 1,024, and no more than it has positions for.

    A tokenizer that is not fast, or has tokens beyond the model's vocabulary, raises.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"tokenizer must be a fast one, which knows where tokens are; got {type(tokenizer).__name__}")
    known = min(head.size, head.model.get_input_embeddings().num_embeddings)  # type: ignore[operator]
    if len(tokenizer) > known:
        raise ValueError(f"tokenizer must be that of the model, of at most {known} tokens; it has {len(tokenizer)}")

    config = head.model.config.get_text_config()  # type: ignore[union-attr,operator]
    positions = getattr(config, "max_position_embeddings", None) or 1024
    # RoBERTa's count from behind the padding token's.
    if "roberta" in str(config.model_type):
        positions -= (config.pad_token_id or 0) + 1
    return int(min(1024, positions, tokenizer.model_max_length))


def encode(tokenizer: Any, texts: Sequence[str]) -> Iterator[Encoded]:
    """Each text's tokens, with the special ones that the tokenizer adds."""
    found = tokenizer(
        list(texts), return_offsets_mapping=True, return_special_tokens_mask=True, return_attention_mask=False,
        truncation=False, verbose=False,
    )  # fmt: skip
    for ids, special, spans in zip(
        found["input_ids"], found["special_tokens_mask"], found["offset_mapping"], strict=True
    ):
        yield Encoded(np.array(ids, np.int64), np.array(special, bool), np.array(spans, np.int32).reshape(-1, 2))


def windows_of(document: int, encoded: Encoded, length: int, context: int) -> Iterator[Window]:
    """Windows of at most `length` tokens; each token is scored once, behind `context` others but at the beginning."""
    stop = 0
    while stop < len(encoded.ids):
        first = stop
        start = max(0, first - context)
        stop = min(len(encoded.ids), start + length)
        yield Window(document, start, first, encoded.ids[start:stop], encoded.special[start:stop])


def batches_of(windows: Sequence[Window], most: int) -> Iterator[list[Window]]:
    """Windows of like length together, at most so many tokens, padding among them, at once."""
    batch: list[Window] = []
    for window in sorted(windows, key=lambda one: (-len(one.ids), one.document, one.start)):
        if batch and len(batch[0].ids) * (len(batch) + 1) > most:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def tensors_of(batch: Sequence[Window], padding: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and labels of a batch, padded on the right; special tokens and context have no label."""
    shape = len(batch), max(len(one.ids) for one in batch)
    ids = torch.full(shape, padding)
    mask, labels = torch.zeros(shape, dtype=torch.bool), torch.full(shape, IGNORED)
    for row, one in enumerate(batch):
        own = torch.from_numpy(one.ids)
        ids[row, : len(own)], mask[row, : len(own)] = own, True
        scored = torch.from_numpy(~one.special) & (torch.arange(len(own)) >= one.first - one.start)
        labels[row, : len(own)] = torch.where(scored, own, IGNORED)
    return ids, mask, labels
