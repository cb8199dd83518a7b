"""`score_text`: scores of every token of a file of documents, some documents after others; and means of such scores.

What is done lies in a folder beside the output until all is: a run that was stopped goes on from there.
"""

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from torch import nn

from hardsight.files import read_json
from hardsight.heads import evaluating
from hardsight.language.documents import (
    Document,
    Encoded,
    batches_of,
    encode,
    longest,
    read_documents,
    tensors_of,
    windows_of,
)
from hardsight.language.head import LanguageHead, language_head
from hardsight.language.scoring import TOKEN_SCORES, choose_token_scores, score_batch, score_fields
from hardsight.records import atomic_path, check_writable, remove_drafts, write_json, write_table
from hardsight.validation import check_count

# Characters of documents that are scored and written as one part, and at most so many documents.
_PART_CHARACTERS, _PART_DOCUMENTS = 2**20, 4096
_KEYS = ("document", "position", "token", "start", "end")


def score_text(
    model: nn.Module,
    tokenizer: Any,
    text: Path | str,
    output: Path | str,
    *,
    column: str | None = None,
    source: str | None = None,
    scores: Sequence[str] = TOKEN_SCORES,
    length: int | None = None,
    context: int | None = None,
    batch_tokens: int = 2**13,
    about: dict[str, Any] | None = None,
) -> Path:
    """Write the scores of every token of a file's documents; returns the table of documents, written beside it.

    `output` (.parquet) has document, position, token, start, end (characters of the text) and the scores, sorted; the
    table of documents has id, text, source, tokens and the mean of each score. A document longer than `length` tokens
    is read in windows that share `context` tokens, by default a quarter. A document without a token to score has no
    rows, and no means. `about` says of the model what a run that is resumed must share.
    """
    output = Path(output)
    if output.suffix != ".parquet":
        raise ValueError(f"output must end in .parquet; got {output.name!r}")
    check_writable(output)
    chosen = choose_token_scores(scores)
    head = language_head(model)
    most = longest(tokenizer, head)
    length = most if length is None else length
    check_count("length", length, "tokens that the model reads at once", least=2)
    if length > most:
        raise ValueError(f"length must be at most {most}, the positions that the model has; got {length}")
    context = length // 4 if context is None else context
    check_count("context", context, "tokens that two windows share", least=0)
    if not int(head.causal) <= context < length:
        raise ValueError(
            f"context must lie in [{int(head.causal)}, {length}), tokens that two windows share; got {context}"
        )
    with Path(text).open("rb") as file:
        identity = hashlib.file_digest(file, "sha256").hexdigest()
    settings = {
        "text": identity, "column": column, "source": source, "scores": chosen, "length": length,
        "context": context, "vocabulary": head.size, **(about or {}),
    }  # fmt: skip
    parts = _Parts(output, settings)
    documents = itertools.islice(read_documents(text, column, source), parts.documents, None)
    with evaluating(head.model):
        for some in _some(documents):
            encoded = list(encode(tokenizer, [one.text for one in some]))
            padding = tokenizer.pad_token_id or 0
            tokens = _tokens_of(head, encoded, parts.documents, chosen, length, context, batch_tokens, padding)
            parts.add(tokens, _documents_of(some, tokens, parts.documents, chosen, head.size, source is not None))
    return parts.finish(str(text))


def _some(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """So many documents as make one part."""
    part: list[Document] = []
    characters = 0
    for one in documents:
        part.append(one)
        characters += len(one.text)
        if characters >= _PART_CHARACTERS or len(part) == _PART_DOCUMENTS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _tokens_of(
    head: LanguageHead,
    encoded: Sequence[Encoded],
    first: int,
    scores: Sequence[str],
    length: int,
    context: int,
    batch_tokens: int,
    padding: int,
) -> pa.Table:
    """The rows of some documents, of which the first has this number."""
    windows = [window for at, one in enumerate(encoded) for window in windows_of(at, one, length, context)]
    fields = [pa.field("document", pa.int64()), *(pa.field(name, pa.int32()) for name in _KEYS[1:])]
    fields += score_fields(scores, head.size)
    found = []
    for batch in batches_of(windows, batch_tokens):
        rows = score_batch(head, *tensors_of(batch, padding), scores)
        window = rows.column("document").to_numpy()
        document = np.array([one.document for one in batch])[window]
        position = rows.column("position").to_numpy() + np.array([one.start for one in batch])[window]
        found.append((document, position, rows))
    schema = pa.schema(fields, {"classes": str(head.size)})
    if not sum(len(document) for document, _, _ in found):
        return schema.empty_table()
    document, position = (np.concatenate([one[at] for one in found]) for at in (0, 1))
    order = np.lexsort((position, document))
    rows = pa.Table.from_batches([one[2] for one in found]).take(pa.array(order))
    starts = np.concatenate([[0], np.cumsum([len(one.ids) for one in encoded])])
    spans = np.concatenate([one.spans for one in encoded])[(starts[document] + position)[order]]
    keys = [document[order] + first, position[order].astype(np.int32), rows.column("token"), spans[:, 0], spans[:, 1]]
    return pa.table([*keys, *(rows.column(name) for name in scores)], schema=schema)


def _documents_of(
    some: Sequence[Document], tokens: pa.Table, first: int, scores: Sequence[str], vocabulary: int, sourced: bool
) -> pa.Table:
    """One row per document: its text, and the means over its tokens."""
    means = means_by(tokens, tokens.column("document").to_numpy() - first, groups=len(some))
    fields = [pa.field("id", pa.int64()), pa.field("text", pa.string(), metadata={"kind": "shown"})]
    columns: list[Any] = [np.arange(first, first + len(some)), [one.text for one in some]]
    if sourced:
        fields.append(pa.field("source", pa.string(), metadata={"kind": "shown"}))
        columns.append([one.source for one in some])
    fields.append(pa.field("tokens", pa.int32(), metadata={"title": "Scored tokens"}))
    fields += score_fields(scores, vocabulary)
    columns += [means.column("tokens").cast(pa.int32()), *(means.column(name).cast(pa.float32()) for name in scores)]
    return pa.table(columns, schema=pa.schema(fields, {"classes": str(vocabulary)}))


class _Parts:
    """What is done so far, in a folder beside the output; what other settings left there is removed."""

    def __init__(self, output: Path, settings: dict[str, Any]) -> None:
        self.output, self.folder = output, output.with_name(f".{output.stem}.parts")
        said = json.loads(json.dumps(settings))
        try:
            same = read_json(self.folder / "settings.json") == said
        except (OSError, ValueError):
            same = False
        if not same:
            shutil.rmtree(self.folder, ignore_errors=True)
            write_json(self.folder / "settings.json", said)
        remove_drafts(self.folder)
        # The documents of a part are written after its tokens: without them the part is not done.
        self.done = len(list(self.folder.glob("documents-*.parquet")))
        self.documents = sum(pq.read_metadata(self._path("documents", at)).num_rows for at in range(self.done))

    def add(self, tokens: pa.Table, documents: pa.Table) -> None:
        """Write a part."""
        write_table(self._path("tokens", self.done), tokens)
        write_table(self._path("documents", self.done), documents)
        self.done += 1
        self.documents += documents.num_rows

    def finish(self, text: str) -> Path:
        """Put the parts together, and remove them; returns the path of the documents."""
        if not self.documents:
            raise ValueError(f"text must hold at least one document; {text} holds none")
        beside = self.output.with_name(f"{self.output.stem}-documents.parquet")
        if not sum(pq.read_metadata(self._path("tokens", at)).num_rows for at in range(self.done)):
            raise ValueError(f"text must hold a token to score, after the first of a document; {text} holds none")
        self._join("tokens", self.output, {"documents file": beside.name})
        self._join("documents", beside, {"tokens file": self.output.name})
        shutil.rmtree(self.folder)
        return beside

    def _path(self, name: str, at: int) -> Path:
        return self.folder / f"{name}-{at:06d}.parquet"

    def _join(self, name: str, path: Path, more: dict[str, str]) -> None:
        first = pq.read_schema(self._path(name, 0))
        schema = first.with_metadata({**(first.metadata or {}), **more})
        with atomic_path(path) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as out:
            for at in range(self.done):
                out.write_table(pq.read_table(self._path(name, at)).replace_schema_metadata(schema.metadata), 2**17)


def hardest(documents: pa.Table, by: str, count: int = 10) -> pa.Table:
    """The documents that a score finds hardest, by its own direction; those without a token to score are left out."""
    field = documents.schema.field(by)
    order = "ascending" if (field.metadata or {}).get(b"direction") == b"larger is easier" else "descending"
    known = documents.filter(pc.is_valid(documents.column(by)))
    return known.take(pc.sort_indices(known, sort_keys=[(by, order)])[:count])


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
