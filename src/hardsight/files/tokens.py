"""The tokens of texts: which characters of a document each one is, and its scores, some documents at a time.

A table of documents names the file of their tokens in its metadata, `tokens file`. That file has a row for each token,
by document and position: `document`, the id of its text; `start` and `end`, its characters; and columns of scores.
"""

import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hardsight.files.inside import follow
from hardsight.files.parquet import Parquet, text_metadata

TOKENS_FILE = "tokens file"
# Tokens are coloured by tenths of a sample of them; a document has so many coloured tokens at most.
TENTHS, _SAMPLED_GROUPS, MOST_TOKENS = 10, 8, 5000
_NEEDED = {"document", "start", "end"}


class Span(NamedTuple):
    """The characters of a token, its score, and in which tenth of all tokens it is, the hardest last."""

    start: int
    end: int
    value: float
    tenth: int


class Tokens:
    """The tokens of a table's documents; safe to be asked by several threads."""

    def __init__(self, path: Path) -> None:
        self._file, self._lock = Parquet(path), threading.Lock()
        schema = self._file.schema
        if not set(schema.names) >= _NEEDED:
            raise ValueError(f"{path} must have the columns {', '.join(sorted(_NEEDED))}; it has {schema.names}")
        self.scores = {one.name: text_metadata(one) for one in schema if pa.types.is_floating(one.type)}
        # The first row behind each row group.
        self._ends = np.cumsum(self._file.group_sizes())
        self._group = lru_cache(32)(self._read_group)
        self._bounds = lru_cache(None)(self._bounds_of)

    def spans(self, document: int, score: str) -> list[Span]:
        """The tokens of a document in their order, by a score; none where it has none."""
        with self._lock:
            documents, firsts = self._starts
            at = int(np.searchsorted(documents, document))
            if at == len(documents) or documents[at] != document:
                return []
            first, last = int(firsts[at]), min(int(firsts[at + 1]), int(firsts[at]) + MOST_TOKENS)
            start, end, values = (self._rows(first, last, name) for name in ("start", "end", score))
            tenths = np.searchsorted(self._bounds(score), values, side="right")
        if self.scores[score].get("direction") == "larger is easier":
            tenths = TENTHS - 1 - tenths
        tenths[np.isnan(values)] = 0
        columns = (np.nan_to_num(start).astype(int), np.nan_to_num(end).astype(int), values, tenths)
        return [Span(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]

    @cached_property
    def _starts(self) -> tuple[np.ndarray, np.ndarray]:
        """The documents that have tokens, and the first row of each; then the number of rows."""
        documents, firsts, at, before = [], [], 0, None
        for batch in self._file.batches(["document"]):
            column = batch.column(0).to_numpy(zero_copy_only=False)
            new = np.flatnonzero(np.diff(column, prepend=column[:1] - 1 if before is None else before))
            documents.append(column[new])
            firsts.append(at + new)
            at, before = at + len(column), column[-1:]
        found = np.concatenate(documents) if documents else np.zeros(0, np.int64)
        if (np.diff(found) <= 0).any():
            raise ValueError(f"{self._file.path} must be sorted by document; it is not")
        return found, np.concatenate([*firsts, [at]])

    def _rows(self, first: int, last: int, name: str) -> np.ndarray:
        groups = range(int(np.searchsorted(self._ends, first, "right")), int(np.searchsorted(self._ends, last)) + 1)
        rows = np.concatenate([self._group(group, name) for group in groups])
        base = int(self._ends[groups[-1]]) - len(rows)
        return rows[first - base : last - base]

    def _read_group(self, group: int, name: str) -> np.ndarray:
        values: np.ndarray = self._file.read_group(group, name).cast(pa.float64()).to_numpy()
        return values

    def _bounds_of(self, score: str) -> np.ndarray:
        """Between which values the tenths lie, of row groups spread over the file."""
        groups = np.linspace(0, len(self._ends) - 1, min(_SAMPLED_GROUPS, len(self._ends))).astype(int)
        values = np.concatenate([self._group(int(one), score) for one in groups])
        values = values[np.isfinite(values)]
        bounds: np.ndarray = np.quantile(values, np.arange(1, TENTHS) / TENTHS) if len(values) else np.zeros(TENTHS - 1)
        return bounds


def tokens_of(table: Path, schema: pa.Schema) -> Tokens | None:
    """The tokens that a table of documents names, where they lie beside it."""
    name = text_metadata(schema).get(TOKENS_FILE)
    if not name:
        return None
    path = follow(table.parent, name)
    return Tokens(path) if path.is_file() else None


def pieces(text: str, spans: Sequence[Span]) -> list[tuple[str, Span | None]]:
    """A text cut into its tokens and what is between them, in order; a token inside another one is left out."""
    found: list[tuple[str, Span | None]] = []
    at = 0
    for one in sorted(spans):
        if at <= one.start < one.end <= len(text):
            if one.start > at:
                found.append((text[at : one.start], None))
            found.append((text[one.start : one.end], one))
            at = one.end
    return [*found, (text[at:], None)] if at < len(text) else found
