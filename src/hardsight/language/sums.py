"""Means of tokens' scores by document, source, position, or how often the token occurs."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    scores = [one.name for one in documents.schema if (one.metadata or {}).get(b"kind") == b"score"]
    tokens = documents.column("tokens").cast(pa.float64())
    sums = {name: pc.multiply(documents.column(name).cast(pa.float64()), tokens) for name in scores}
    table = pa.table({"source": documents.column("source"), "tokens": documents.column("tokens"), **sums})
    wanted = [("source", "count", pc.CountOptions(mode="all")), *((name, "sum") for name in ("tokens", *scores))]
    found = table.group_by("source", use_threads=False).aggregate(wanted).sort_by("source")
    columns = {"source": found["source"], "documents": found["source_count"], "tokens": found["tokens_sum"]}
    return pa.table(columns | {name: pc.divide(found[f"{name}_sum"], columns["tokens"]) for name in scores})


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
