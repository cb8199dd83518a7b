"""The old place of `engine.clock`, until the last study has moved."""

from hardsight_studies.engine.clock import Clock, EpochWatch, OutOfTime

__all__ = ["Clock", "EpochWatch", "OutOfTime"]
