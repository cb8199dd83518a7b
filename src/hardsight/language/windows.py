"""Documents as the model reads them: cut into windows, with what each scored token is in the text."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardsight.language.head import LanguageHead
from hardsight.language.targets import IGNORED


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


def check_tokenizer(tokenizer: Any, head: LanguageHead) -> None:
    """The tokenizer is a fast one, and all of its tokens are of the model's vocabulary."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"tokenizer must be a fast one, which knows where tokens are; got {type(tokenizer).__name__}")
    known = min(head.size, head.model.get_input_embeddings().num_embeddings)  # type: ignore[operator]
    if len(tokenizer) > known:
        raise ValueError(f"tokenizer must be that of the model, of at most {known} tokens; it has {len(tokenizer)}")


def longest(tokenizer: Any, head: LanguageHead) -> int:
    """The tokens that the model reads at once: at most 1,024, and no more than it has positions for."""
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
