"""Trainings of random settings: two processes end with the parameters of one, and report its numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hardsight.losses.registry import LOSSES


def test_two_processes_equal_one_whatever_the_settings(in_two_processes: Callable[[str], list[dict[str, Any]]]) -> None:
    first, second = in_two_processes(Path(__file__).with_name("random_trainings.py").read_text())
    assert not first["wrong"], json.dumps(first["wrong"], indent=1)
    assert not second["wrong"]
    assert first["trained"] > len(LOSSES)
