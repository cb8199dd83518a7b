"""Where scoring runs."""

from hardsight.engines.streaming import score_model

__all__ = ["score_model"]
