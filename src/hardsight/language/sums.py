"""Means of tokens' scores by document, source, position, or how often the token occurs."""

from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.validation import check_count

_KEYS = frozenset({"document", "position", "token", "start", "end"})


def means_by(tokens: pa.Table, group: Any, *, groups: int | None = None) -> pa.Table:
    """One row per group from 0 on: `group`, how many `tokens` it has, and the mean of each score; null without tokens.

    `group` has a number for each row of the table; the sums are of doubles.
    """
    numbers = np.asarray(group, dtype=np.int64)
    if numbers.shape != (tokens.num_rows,) or (len(numbers) and numbers.min() < 0):
        raise ValueError(
            f"group must be a number from 0 on for each of the {tokens.num_rows} rows; got {list(numbers.shape)}"
        )
    count = int(numbers.max(initial=-1)) + 1 if groups is None else groups
    sizes = np.bincount(numbers, minlength=count)
    found = {"group": pa.array(np.arange(count)), "tokens": pa.array(sizes)}
    for name in tokens.column_names:
        if name not in _KEYS:
            sums = np.bincount(numbers, tokens.column(name).to_numpy().astype(np.float64), minlength=count)
            found[name] = pa.array(sums / np.maximum(sizes, 1), mask=sizes == 0)
    return pa.table(found)


def with_context_gain(tokens: pa.Table) -> pa.Table:
    """The table with a column `context_gain` (nats): log p(token | what is before it) minus log p(token).

    The second probability is the token's share of the table, so what is rare is not taken for surprising. The mean over
    many documents is the information that the context has of a token; in a document without order it is near 0.
    """
    codes, counts = np.unique(tokens.column("token").to_numpy(), return_inverse=True, return_counts=True)[1:]
    gain = tokens.column("log_probability").to_numpy() - np.log(counts[codes] / max(1, len(codes)))
    about = {
        "kind": "score", "title": "Gain by context (nats)", "direction": "larger is easier", "range": "[-inf, inf]",
        "source": "pointwise mutual information of a token and what is before it",
    }  # fmt: skip
    return tokens.append_column(pa.field("context_gain", pa.float32(), metadata=about), pa.array(gain, pa.float32()))


def means_by_source(documents: pa.Table) -> pa.Table:
    """One row per source of a table of documents: its documents, its tokens, and the mean of each score over tokens."""
    sources = documents.column("source").combine_chunks().dictionary_encode()
    sizes = documents.column("tokens").to_numpy().astype(np.float64)
    codes = sources.indices.fill_null(len(sources.dictionary)).to_numpy()
    count = int(codes.max(initial=-1)) + 1
    names = [*sources.dictionary.to_pylist(), None][:count]
    tokens = np.bincount(codes, sizes, minlength=count)
    found = {
        "source": pa.array(names, pa.string()),
        "documents": pa.array(np.bincount(codes, minlength=count)),
        "tokens": pa.array(tokens.astype(np.int64)),
    }
    for field in documents.schema:
        if (field.metadata or {}).get(b"kind") == b"score":
            values = np.nan_to_num(documents.column(field.name).to_numpy().astype(np.float64))
            means = np.bincount(codes, values * sizes, minlength=count) / np.maximum(tokens, 1)
            found[field.name] = pa.array(means, mask=tokens == 0)
    return pa.table(found)


def means_by_position(tokens: pa.Table, width: int = 1) -> pa.Table:
    """Means by position in the document, `width` positions together; `group` is the first of them."""
    check_count("width", width, "positions together")
    found = means_by(tokens, tokens.column("position").to_numpy() // width)
    return found.set_column(0, "group", pa.array(found.column("group").to_numpy() * width))


def means_by_frequency(tokens: pa.Table) -> pa.Table:
    """Means by how often the token occurs in the table, in powers of two; `group` is the least count of each."""
    token = tokens.column("token").to_numpy()
    often = np.bincount(token)[token] if len(token) else token
    found = means_by(tokens, np.floor(np.log2(np.maximum(often, 1))).astype(np.int64))
    return found.set_column(0, "group", pa.array(2 ** found.column("group").to_numpy()))
