"""Decisions on disk: nothing that counts is lost, whoever writes and whatever happens while writing."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hardsight.cleaning.decisions import Mark, Marks

WHEN = "2026-01-01T00:00:00+00:00"


def mark(identity: Any, action: str = "drop", label: str | None = None, by: str = "ada") -> Mark:
    return Mark(identity, action, label, by, WHEN)


def action_of(marks: Marks, identity: Any) -> str | None:
    found = marks.of(identity)
    return None if found is None else found.action


def test_the_later_decision_holds_and_all_stay(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks.jsonl")
    marks.append([mark(3, "keep"), mark(3, "relabel", "cat", by="bob"), mark(4)])
    again = Marks(tmp_path / "marks.jsonl")
    assert (action_of(again, 3), action_of(again, 4), action_of(again, 5)) == ("relabel", "drop", None)
    assert [one.action for one in again.all] == ["keep", "relabel", "drop"]
    lines = [json.loads(line) for line in (tmp_path / "marks.jsonl").read_text().splitlines()]
    assert lines[1] == {"id": 3, "action": "relabel", "label": "cat", "by": "bob", "at": WHEN}


def test_undo_takes_back_ones_own_last_decision_and_nobody_elses(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks.jsonl")
    marks.append([mark("a", "keep"), mark("a", "drop", by="bob"), mark("a", "undo")])
    assert action_of(marks, "a") == "drop"
    marks.append([mark("a", "undo", by="bob"), mark("a", "undo", by="bob")])
    assert action_of(marks, "a") is None
    assert len(marks.all) == 5


@pytest.mark.parametrize(("action", "label"), [("burn", None), ("relabel", None), ("keep", "cat")])
def test_a_decision_that_means_nothing_is_rejected(action: str, label: str | None) -> None:
    with pytest.raises(ValueError, match=r"action|label"):
        mark(1, action, label)


@pytest.mark.parametrize(
    "torn", [b'{"id": 9, "acti', b"\xff\xfe", b"[[[[", b'{"id": 9}', b"null", b'{"id":9,"action":7}']
)
def test_a_line_that_was_cut_off_is_passed_over_and_swallows_none(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "marks.jsonl"
    Marks(path).append([mark(1)])
    with path.open("ab") as file:
        file.write(torn)
    marks = Marks(path)
    assert [one.id for one in marks.all] == [1]
    marks.append([mark(2)])
    assert [one.id for one in Marks(path).all] == [1, 2]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    marks = Marks(path)
    marks.append([mark(1)])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            marks.append([mark(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    assert action_of(marks, 2) is None
    marks.append([mark(2)])
    assert [one.id for one in Marks(path).all] == [1, 2]


WRITER = """
import sys
from hardsight.cleaning.decisions import Mark, Marks
marks = Marks(sys.argv[1])
for at in range(int(sys.argv[3])):
    one = f"{sys.argv[2]}{at}"
    marks.append([Mark(one, "drop", None, sys.argv[2], "now")])
    print(one, flush=True)
"""


def writer(path: Path, name: str, times: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    writers = [writer(path, name, 40) for name in "ab"]
    for one in writers:
        one.communicate(timeout=60)
    assert {one.id for one in Marks(path).all} == {f"{name}{at}" for name in "ab" for at in range(40)}


def test_what_was_told_as_done_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    with writer(path, "a", 100_000) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(50)]
        process.kill()
        told += process.stdout.readlines()
    done = {line.strip() for line in told if line.endswith("\n")}
    assert len(done) >= 50
    assert done <= {one.id for one in Marks(path).all}


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    marks = Marks(path)
    marks.append([mark(1)])
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"marks\.jsonl"):
        marks.refresh()
