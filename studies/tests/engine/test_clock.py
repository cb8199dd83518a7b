"""A training that cannot end in time stops early; one that was only slow to begin with goes on."""

import pytest
from hardsight_studies.engine import clock
from hardsight_studies.engine.clock import Clock, EpochWatch, OutOfTime


def epochs_until_stopped(monkeypatch: pytest.MonkeyPatch, lengths: list[float], limit: float | None) -> int:
    """After how many epochs of these lengths in seconds the watch stops a training; all of them where it does not."""
    now = [0.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    watch = EpochWatch(Clock.of(limit), len(lengths))
    for epoch, length in enumerate(lengths, start=1):
        now[0] += length
        try:
            watch.epoch(epoch)
        except OutOfTime:
            return epoch
    return len(lengths)


def test_a_slow_start_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert epochs_until_stopped(monkeypatch, [300.0, 60.0, *[5.0] * 28], 600.0) == 30


def test_a_pace_that_is_too_slow_stops_after_three_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert epochs_until_stopped(monkeypatch, [300.0, *[60.0] * 29], 600.0) == 3


def test_without_a_limit_nothing_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    assert epochs_until_stopped(monkeypatch, [1e6] * 5, None) == 5
