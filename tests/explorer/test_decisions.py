"""Deciding on the page: on disk before it shows, by several people at once, through kills and full disks."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hardsight.cleaning import decisions as marks_module
from hardsight.cleaning import read_actions
from hardsight.cli import app
from hardsight.explorer import decisions as decisions_module
from hardsight.explorer import explore
from hardsight.explorer.server import Explorer

from .conftest import SUSPECTS, audited, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]


@pytest.fixture
def served(pets: Path) -> Iterator[Explorer]:
    with explore(pets, pets / "images", browser=False) as page:
        yield page


def marks(folder: Path) -> list[dict[str, Any]]:
    path = folder / "marks.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def badge(page: "Page", row: int, action: str) -> None:
    page.wait_for_selector(f"#gallery .card[data-row='{row}'] .badge.{action}")


def test_decisions_by_keyboard_are_on_disk_in_the_list_and_apply(
    served: Explorer, opened: Open, pets: Path, tmp_path: Path
) -> None:
    page = opened(served.url)
    page.fill("[aria-label='Who decides']", "ada")
    page.locator("#gallery .card").first.focus()
    page.keyboard.press("d")
    badge(page, 0, "drop")
    assert [(one["id"], one["action"], one["by"]) for one in marks(pets)] == [(1, "drop", "ada")]
    page.keyboard.press("r")
    page.keyboard.type("ho")
    page.keyboard.press("Enter")
    badge(page, 1, "relabel")
    page.keyboard.press("k")
    badge(page, 2, "keep")
    page.keyboard.press("u")
    badge(page, 3, "unsure")
    until(page, "document.getElementById('progress').textContent.includes('4 of 40 suspects')")
    assert "95 %" in page.inner_text("#progress")
    served.close()
    listed = {one.id: one for one in read_actions(pets / "actions.csv")}
    assert len(listed) == SUSPECTS
    assert {one: listed[one].action for one in ("1", "8", "15", "22")} == {
        "1": "drop", "8": "relabel", "15": "keep", "22": "keep",
    }  # fmt: skip
    assert listed["8"].new_label == "horse"
    arguments = ["--apply", str(pets / "actions.csv"), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["audit", str(pets / "table.parquet"), *arguments])
    assert done.exit_code == 0, done.output
    after = {row["id"]: row["new_label"] for row in pq.read_table(tmp_path / "out" / "labels.parquet").to_pylist()}
    assert len(after) == len(audited()) - 1
    assert after[8] == 2


def test_a_decision_is_taken_back_and_who_made_it_is_seen(served: Explorer, opened: Open, pets: Path) -> None:
    page = opened(served.url)
    page.locator("#gallery .card").nth(1).focus()
    page.keyboard.press("d")
    badge(page, 1, "drop")
    page.keyboard.press("z")
    until(page, "document.querySelectorAll('#gallery .badge').length === 0")
    assert [one["action"] for one in marks(pets)] == ["drop", "undo"]
    page.locator("#gallery .card").nth(1).click()
    page.wait_for_selector("#detail[open]")
    page.keyboard.press("k")
    badge(page, 1, "keep")
    until(page, "document.getElementById('detail').ariaLabel === 'Sample 15'")
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelectorAll('#detail li').length === 3")
    by = page.input_value("[aria-label='Who decides']")
    assert [one.split(f" by {by}, ")[0] for one in page.locator("#detail li").all_inner_texts()] == [
        "drop", "undo", "keep",
    ]  # fmt: skip


def test_a_selection_is_decided_at_once_when_its_count_was_seen(served: Explorer, opened: Open, pets: Path) -> None:
    page = opened(served.url)
    page.click("[data-column=kinds] .value >> text=mislabelled")
    until(page, f"parseInt(document.getElementById('count').textContent) === {SUSPECTS}")
    until(page, f"document.querySelectorAll('#gallery .card').length === {SUSPECTS}")
    page.click("[data-all=drop]")
    assert str(SUSPECTS) in page.inner_text("#ask")
    assert marks(pets) == [], "nothing is decided before one has said so"
    page.click("#ask .main")
    until(page, f"document.querySelectorAll('#gallery .badge.drop').length === {SUSPECTS}")
    assert len(marks(pets)) == SUSPECTS
    page.click("text=undo decision")
    until(page, "document.querySelectorAll('#gallery .badge').length === 0")


def test_two_people_at_once_lose_nothing(pets: Path, opened: Open) -> None:
    # Two servers, as two people on one folder have them; two tabs of one server are less.
    with explore(pets, browser=False) as one, explore(pets, browser=False) as two:
        first, second = opened(one.url), opened(two.url)
        for page, name in ((first, "ada"), (second, "bob")):
            page.fill("[aria-label='Who decides']", name)
            page.locator("#gallery .card").first.focus()
        first.keyboard.press("d")
        badge(second, 0, "drop")
        second.keyboard.press("k")
        badge(second, 0, "keep")
        badge(first, 0, "keep")
        first.keyboard.press("d")
        badge(second, 1, "drop")
    assert [(one["by"], one["action"]) for one in marks(pets)] == [("ada", "drop"), ("bob", "keep"), ("ada", "drop")]
    listed = {one.id: one.action for one in read_actions(pets / "actions.csv")}
    assert (listed["1"], listed["8"]) == ("keep", "drop"), "the later one wins"


def test_what_was_shown_as_decided_survives_a_kill(pets: Path, opened: Open) -> None:
    command = [sys.executable, "-m", "hardsight", "explore", str(pets), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    page = opened(process.stdout.readline().split()[1])
    page.locator("#gallery .card").first.focus()
    for row in range(3):
        page.keyboard.press("d")
        badge(page, row, "drop")
    page.keyboard.press("k")  # is on its way
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    page.keyboard.press("k")
    page.wait_for_selector("#problem:not([hidden])")
    shown = page.eval_on_selector_all("#gallery .card:has(.badge)", "all => all.map((one) => one.dataset.row)")
    assert {"0", "1", "2"} <= set(shown)
    decided = [one["id"] for one in marks(pets)]
    assert set(shown) <= {str((one - 1) // 7) for one in decided}
    with (pets / "marks.jsonl").open("a") as file:
        file.write('{"id": 22, "action": "dr')  # a line that the kill cut off
    with explore(pets, browser=False) as again:
        page = opened(again.url)
        badge(page, 0, "drop")
        page.locator("#gallery .card").nth(9).focus()
        page.keyboard.press("d")
        badge(page, 9, "drop")
    listed = {one.id: one.action for one in read_actions(pets / "actions.csv")}
    assert [listed[one] for one in ("1", "8", "15", "64")] == ["drop"] * 4


def test_a_full_disk_is_one_sentence_and_nothing_is_shown_as_done(
    served: Explorer, opened: Open, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(served.url)
    page.locator("#gallery .card").first.focus()
    page.keyboard.press("d")
    badge(page, 0, "drop")
    before = (pets / "marks.jsonl").read_bytes()
    with monkeypatch.context() as full:

        def write(handle: int, data: bytes) -> None:
            os.write(handle, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "marks.jsonl")

        full.setattr(marks_module, "_write", write)
        page.keyboard.press("d")
        until(page, "document.getElementById('problem').textContent.includes('No space left')")
        assert page.locator("#gallery .badge").count() == 1
        assert (pets / "marks.jsonl").read_bytes() == before
    page.keyboard.press("d")
    badge(page, 1, "drop")
    until(page, "document.getElementById('problem').hidden")


def test_a_list_that_was_edited_by_hand_becomes_decisions(pets: Path) -> None:
    with explore(pets, browser=False) as served:
        served._answers.decide({"rows": [0], "action": "drop", "by": "ada"})
    listed = (pets / "actions.csv").read_text().splitlines()
    listed[3] = listed[3].replace("keep", "drop")
    (pets / "actions.csv").write_text("\n".join(listed) + "\n")
    with explore(pets, browser=False) as served:
        served._answers.decide({"rows": [5], "action": "keep", "by": "ada"})
    assert {one.id for one in read_actions(pets / "actions.csv") if one.action == "drop"} == {"1", "15"}


def test_what_is_decided_while_the_list_is_written_is_in_it_when_the_page_closes(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, write = threading.Event(), threading.Event(), decisions_module.write_actions

    def slow(*arguments: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        write(*arguments)

    monkeypatch.setattr(decisions_module, "write_actions", slow)
    with explore(pets, browser=False) as served:
        served._answers.decide({"rows": [0], "action": "drop", "by": "ada"})
        assert begun.wait(30)
        served._answers.decide({"rows": [1], "action": "drop", "by": "ada"})
        closing = threading.Thread(target=served._answers.close)
        closing.start()
        while not served._answers.decisions._closed:
            time.sleep(0.01)
        go_on.set()
        closing.join(30)
    assert {one.id for one in read_actions(pets / "actions.csv") if one.action == "drop"} == {"1", "8"}
