"""Tokens as samples: scores, recording and weights for Hugging Face language models.

A language model classifies every token, with the rows of its head as the classes' directions. What `hs.score` says of
a sample `score_tokens` says of a token. What records a training needs transformers, and is imported when it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hardsight.language.columns import (
    TokenCollator,
    TokenLoss,
    number_tokens,
    weights_by_rank,
    weights_by_rescaling,
    weights_by_threshold,
    with_reference_loss,
    with_weights,
)
from hardsight.language.scoring import TOKEN_SCORES, score_tokens
from hardsight.language.text_scoring import (
    hardest,
    means_by,
    means_by_frequency,
    means_by_position,
    means_by_source,
    score_text,
    with_context_gain,
)

if TYPE_CHECKING:
    from hardsight.language.recording import TokenDynamics, TokenRecorderCallback, record

_RECORDING = ("TokenDynamics", "TokenRecorderCallback", "record")

__all__ = [
    "TOKEN_SCORES",
    "TokenCollator",
    "TokenDynamics",
    "TokenLoss",
    "TokenRecorderCallback",
    "hardest",
    "means_by",
    "means_by_frequency",
    "means_by_position",
    "means_by_source",
    "number_tokens",
    "record",
    "score_text",
    "score_tokens",
    "weights_by_rank",
    "weights_by_rescaling",
    "weights_by_threshold",
    "with_context_gain",
    "with_reference_loss",
    "with_weights",
]


def __getattr__(name: str) -> Any:
    if name in _RECORDING:
        return getattr(importlib.import_module("hardsight.language.recording"), name)
    raise AttributeError(f"module 'hardsight.language' has no attribute {name!r}")
