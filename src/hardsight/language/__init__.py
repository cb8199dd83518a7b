"""Tokens as samples: scores, recording and weights for Hugging Face language models.

A language model classifies every token, with the rows of its head as the classes' directions. What `hs.score` says of
a sample `score_tokens` says of a token.
"""

from hardsight.language.scoring import TOKEN_SCORES, score_tokens

__all__ = ["TOKEN_SCORES", "score_tokens"]
