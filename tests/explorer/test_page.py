"""The page in a real browser: what a person does with it, from the first look to the decision on disk."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hardsight.cleaning import read_actions
from hardsight.explorer import explore
from hardsight.explorer.server import Explorer

from .conftest import SAMPLES, SUSPECTS, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]


@pytest.fixture
def served(pets: Path) -> Iterator[Explorer]:
    with explore(pets, pets / "images", browser=False) as page:
        yield page


def count(page: "Page") -> int:
    return int(page.inner_text("#count").replace("about ", "").replace(",", "").split()[0])


def wait_for_count(page: "Page", wanted: int) -> None:
    until(page, f"parseInt(document.getElementById('count').textContent) === {wanted}")


def marks(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "marks.jsonl").read_text().splitlines()]


def brush(page: "Page", column: str, start: float, end: float) -> None:
    box = page.locator(f"[data-column={column}] canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2 * box["width"], box["y"] + 20)
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 20)
    page.mouse.up()


def test_all_samples_are_there_the_most_suspicious_first(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    assert count(page) == SAMPLES
    assert page.locator("#gallery .card").first.get_attribute("data-row") == "0"
    until(page, "document.querySelector('#gallery img')?.naturalWidth > 0")


def test_a_brush_narrows_everything_and_is_undone(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    brush(page, "suspicion", 0.5, 0.99)
    page.wait_for_selector("#steps .step")
    until(page, f"parseInt(document.getElementById('count').textContent) < {0.6 * SAMPLES}")
    chosen = count(page)
    assert 0.4 * SAMPLES < chosen < 0.6 * SAMPLES
    listed = page.locator("[data-column=split] .value .n").all_inner_texts()
    assert sum(int(one) for one in listed) == chosen
    page.click("#undo-step")
    wait_for_count(page, SAMPLES)


def test_a_decision_by_keyboard_is_on_disk_and_in_the_list(served: Explorer, opened: Open, pets: Path) -> None:
    page = opened(served.url)
    page.locator("#gallery .card").first.focus()
    page.keyboard.press("d")
    page.wait_for_selector("#gallery .card[data-row='0'] .badge.drop")
    assert [(one["id"], one["action"]) for one in marks(pets)] == [(1, "drop")]
    page.keyboard.press("r")
    page.keyboard.type("ho")
    page.keyboard.press("Enter")
    page.wait_for_selector("#gallery .card[data-row='1'] .badge.relabel")
    page.keyboard.press("k")
    page.wait_for_selector("#gallery .card[data-row='2'] .badge.keep")
    served.close()
    listed = {one.id: one for one in read_actions(pets / "actions.csv")}
    assert len(listed) == SUSPECTS
    assert listed["1"].action == "drop"
    assert (listed["8"].action, listed["8"].new_label) == ("relabel", "horse")
    assert listed["15"].action == "keep"
