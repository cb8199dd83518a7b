"""What a killed writer left behind goes with the next write; what a living one is writing stays."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardsight import records

WRITER = """
import sys, time
from hardsight import records
with records.atomic_path(sys.argv[1]) as draft:
    draft.write_text("half")
    print(draft.name, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process in the middle of a file, and the draft that it is writing."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "table.parquet")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    draft = tmp_path / process.stdout.readline().strip()
    yield process, draft
    process.kill()
    process.communicate()


def test_the_draft_of_a_killed_writer_goes_with_the_next_write(writer: tuple[subprocess.Popen[str], Path]) -> None:
    process, draft = writer
    records.write_text(draft.parent / "other.txt", "whole")
    assert draft.read_text() == "half", "its writer still lives"
    process.kill()
    process.wait()
    records.write_text(draft.parent / "other.txt", "whole")
    assert os.listdir(draft.parent) == ["other.txt"]


def test_a_draft_keeps_the_ending_of_its_file_and_is_hidden(tmp_path: Path) -> None:
    with records.atomic_path(tmp_path / f"{'ä' * 90}.parquet") as draft:
        assert draft.suffix == ".parquet"
        assert draft.name.startswith(".")
        assert draft.parent == tmp_path


@pytest.mark.parametrize(("age", "stays"), [(0, True), (10 * 24 * 3600, False)])
def test_a_draft_of_another_machine_goes_when_nobody_has_touched_it_for_long(
    age: float, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(records.socket, "gethostname", lambda: "elsewhere")
        draft = records.draft_path(tmp_path / "run.json")
    draft.write_text("half")
    os.utime(draft, (time.time() - age,) * 2)
    records.write_json(tmp_path / "run.json", {})
    assert draft.exists() is stays


def test_files_of_others_are_never_taken_for_drafts(tmp_path: Path) -> None:
    names = [".git", ".run.json", ".config-settings.json", ".x.draft-1.json", ".draft-00000000-1-2-abcdefgh.json", "a"]
    for name in names:
        (tmp_path / name).write_text("theirs")
    records.write_text(tmp_path / "b", "")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "b"])


def test_a_process_is_told_from_one_that_has_its_number_now() -> None:
    host, pid, started = records.tag().split("-")
    assert records.lives(f"{host}-{pid}-{started}") is True
    assert records.lives(f"{host}-{pid}-earlier") is False
    assert records.lives(f"elsewhere-{pid}-{started}") is None
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    assert [records.lives(f"{host}-{gone}-{started}") for gone in (ended.pid, 0, 2**70)] == [False] * 3
