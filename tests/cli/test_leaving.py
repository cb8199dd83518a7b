"""How the command leaves a group of processes: in order after its work, at once after a failure."""

import sys

import pytest
import torch

from hardsight.cli import main


@pytest.mark.parametrize(
    ("words", "code", "left"),
    [(["data", "list"], 0, True), (["report", "nowhere"], 2, False), (["no-such-command"], 2, False)],
)
def test_only_a_command_that_did_its_work_waits_for_the_others(
    words: list[str], code: int, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: calls.append("left"))
    monkeypatch.setattr(sys, "argv", ["hardsight", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code or 0) == code
    assert bool(calls) is left
