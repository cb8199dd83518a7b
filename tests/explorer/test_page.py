"""The page in a real browser: what a person sees of the samples, selects and opens."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from hardsight.explorer import explore
from hardsight.explorer.query import binned, inside
from hardsight.explorer.server import Explorer
from hardsight.records import write_json, write_table, write_thumbnails

from .conftest import HOSTILE, NAMES, SAMPLES, audited, until, write_audit_folder, write_pets

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
TABLE = audited()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    """The page of one audit, which no test here decides anything on."""
    folder = write_pets(tmp_path_factory.mktemp("pets"))
    with explore(folder, folder / "images", show=["loss"], browser=False) as page:
        yield page


def count(page: "Page") -> int:
    return int(page.inner_text("#count").replace("about ", "").replace(",", "").split()[0])


def wait_for_count(page: "Page", wanted: int) -> None:
    until(page, f"parseInt(document.getElementById('count').textContent) === {wanted}")


def rows(page: "Page") -> list[int]:
    """The samples in the gallery, in order."""
    found: list[int] = page.eval_on_selector_all("#gallery .card", "all => all.map((one) => Number(one.dataset.row))")
    return found


def column(name: str) -> np.ndarray:
    found: np.ndarray = TABLE.column(name).to_numpy()
    return found


def drag(page: "Page", selector: str, corners: list[tuple[float, float]]) -> None:
    """Press, move over places given as shares of an element's width and height, let go."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def address(page: "Page") -> dict[str, object]:
    found: dict[str, object] = json.loads(unquote(page.evaluate("location.hash.slice(1)")) or "{}")
    return found


def test_all_samples_are_there_the_most_suspicious_first(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    assert count(page) == SAMPLES
    assert rows(page)[:3] == [0, 1, 2]
    until(page, "document.querySelector('#gallery img')?.naturalWidth > 0")
    first = page.locator("#gallery .card").first.inner_text()
    assert "Loss" in first, "a column that one asked to see is on the card"


def test_a_brush_narrows_everything_and_is_undone(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    drag(page, "[data-column=suspicion] canvas", [(0.5, 0.5), (0.7, 0.5), (0.99, 0.5)])
    page.wait_for_selector("#steps .step")
    first, last = address(page)["filters"][0]["values"]  # type: ignore[index]
    chosen = int(((bins := binned(column("suspicion"), 0.0, 1.0)) >= first)[bins <= last].sum())
    assert 0.4 * SAMPLES < chosen < 0.6 * SAMPLES
    wait_for_count(page, chosen)
    listed = page.locator("[data-column=split] .value .n").all_inner_texts()
    assert sum(int(one) for one in listed) == chosen
    page.click("#undo-step")
    wait_for_count(page, SAMPLES)


def test_filters_of_every_kind_are_one_selection_undone_step_by_step(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    label, expected = column("label"), column("expected")
    wanted = (label == 0) & (expected == 1)
    page.click("[data-cell='0,1']")
    wait_for_count(page, int(wanted.sum()))
    train = np.array(TABLE.column("split").to_pylist()) == "train"
    page.click("[data-column=split] .value >> text=train")
    wait_for_count(page, int((wanted & train).sum()))
    page.fill("#words", "number 1")
    page.press("#words", "Enter")
    found = wanted & train & np.array(["number 1" in one for one in TABLE.column("text").to_pylist()])
    wait_for_count(page, int(found.sum()))
    until(page, f"document.querySelectorAll('#gallery .card').length === {found.sum()}")
    assert rows(page) == np.flatnonzero(found).tolist()
    shared = page.url
    for left in ((wanted & train).sum(), wanted.sum(), SAMPLES):
        page.click("#undo-step")
        wait_for_count(page, int(left))
    assert page.is_disabled("#undo-step")
    other = opened(shared)
    wait_for_count(other, int(found.sum()))
    assert other.input_value("#words") == "number 1"
    other.click(".step >> nth=0")
    wait_for_count(other, int((found | (train & ~wanted & _says(TABLE, "number 1"))).sum()))


def test_a_press_that_an_answer_overtakes_still_counts(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.hover("[data-column=split] .value >> text=train")
    page.mouse.down()
    with page.expect_response(lambda response: response.ok):
        page.select_option("[aria-label=Colour]", "label")
    page.wait_for_timeout(300)
    page.mouse.up()
    page.wait_for_selector("#steps .step", timeout=5000)


def _says(table: pa.Table, words: str) -> np.ndarray:
    return np.array([words in one for one in table.column("text").to_pylist()])


def test_a_lasso_holds_what_lies_inside_it(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.click("text=Lasso")
    drag(page, "#map-canvas", [(0.4, 0.3), (0.7, 0.35), (0.6, 0.7), (0.35, 0.6)])
    page.wait_for_selector("#steps .step")
    (one,) = address(page)["filters"]  # type: ignore[misc, attr-defined]
    wanted = inside(column("x"), column("y"), np.array(one["values"]))
    assert 5 < wanted.sum() < SAMPLES
    wait_for_count(page, int(wanted.sum()))


def test_the_map_zooms_moves_and_opens_what_is_clicked(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.focus("#map-canvas")
    for key in ("+", "+", "ArrowLeft", "-"):
        page.keyboard.press(key)
    left, bottom, right, top = address(page)["view"]  # type: ignore[misc]
    spread = np.ptp(column("x")) * 1.08
    assert right - left == pytest.approx(spread / 2, rel=0.01)
    page.click("text=In view")
    x, y = column("x"), column("y")
    wanted = (x >= left) & (x <= right) & (y >= bottom) & (y <= top)
    wait_for_count(page, int(wanted.sum()))
    row = int(np.flatnonzero(wanted)[np.argmin(np.hypot(x - np.mean(x[wanted]), y - np.mean(y[wanted]))[wanted])])
    box = page.locator("#map-canvas").bounding_box()
    assert box is not None
    across, down = (x[row] - left) / (right - left), (top - y[row]) / (top - bottom)
    page.mouse.click(box["x"] + float(across) * box["width"], box["y"] + float(down) * box["height"])
    page.wait_for_selector("#detail[open]")
    assert address(page)["open"] == row


def test_the_gallery_goes_on_and_is_sorted_by_any_score(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.select_option("[aria-label='Sort by']", "loss")
    loss = column("loss")
    order = [*np.argsort(-np.nan_to_num(loss, nan=-1), kind="stable").tolist()]
    until(page, f"Number(document.querySelector('#gallery .card')?.dataset.row) === {order[0]}")
    for _ in range(12):
        page.locator("#more").scroll_into_view_if_needed()
        page.wait_for_timeout(60)
    until(page, f"document.querySelectorAll('#gallery .card').length === {SAMPLES}")
    assert rows(page) == order, "what has no value comes last"


def test_a_sample_is_shown_large_with_all_that_is_known(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.locator("#gallery .card").nth(2).click()
    page.wait_for_selector("#detail[open]")
    until(page, "document.querySelector('#detail .large img')?.naturalWidth > 0")
    assert page.locator("#detail .near .card").count() == 3
    others = np.delete(column("loss"), [2, 5])[np.delete(column("label"), [2, 5]) == column("label")[2]]
    below = float(np.mean(others < column("loss")[2]))
    shown = page.locator("#detail .scores tr", has_text="Loss").inner_text()
    assert f"{100 * below:.0f} %" in shown
    page.keyboard.press("ArrowRight")
    until(page, "document.getElementById('detail').ariaLabel === 'Sample 22'")
    page.keyboard.press("Escape")
    until(page, "document.activeElement.dataset.row === '3'")


def test_a_picture_that_is_gone_is_said_to_be(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.locator("#gallery .card[data-row='30']").click()
    page.wait_for_selector("#detail .large .gone")


def test_what_a_table_holds_is_text_and_never_markup(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    assert HOSTILE in page.locator("#gallery .card").first.inner_text()
    page.locator("#gallery .card").first.click()
    page.wait_for_selector("#detail[open]")
    page.wait_for_timeout(100)
    assert page.title().startswith("audit of pets")
    assert page.locator("main script, dialog script, img[onerror]").count() == 0


@pytest.mark.parametrize(
    "wrong",
    ['{"filters":[{"kind":"list","columns":["gone"],"values":[1]}]}', '{"axes":["x"]}', '{"open":"x"}', "no JSON", "7"],
)
def test_an_address_of_another_table_shows_all_samples(served: Explorer, opened: Open, wrong: str) -> None:
    page = opened(f"{served.url}#{wrong}")
    assert count(page) == SAMPLES


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checker_finds_no_fault(served: Explorer, opened: Open, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(served.url, color_scheme=scheme, bypass_csp=True)
    page.select_option("[aria-label=Colour]", "label")
    page.click("[data-column=split] .value >> text=train")
    page.wait_for_selector("#steps .step")
    for then in ("", "Enter", "r"):
        if then == "Enter":
            page.locator("#gallery .card").first.focus()
        if then:
            page.keyboard.press(then)
            page.wait_for_selector("dialog[open]")
            page.wait_for_timeout(100)
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_everything_is_reached_by_keyboard(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    wanted = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll("button, input, select, summary, canvas[tabindex]")];
          const seen = all.filter((one) => !one.disabled && one.checkVisibility() && !one.closest("#gallery"));
          seen.forEach((one, at) => { one.dataset.wanted = at; });
          window.reached = new Set();
          addEventListener("focusin", (event) => window.reached.add(event.target.dataset.wanted));
          document.activeElement.blur();
          return seen.length;
        }"""
    )
    for _ in range(wanted + 4):
        page.keyboard.press("Tab")
    missed = "[...document.querySelectorAll('[data-wanted]')].filter((one) => !window.reached.has(one.dataset.wanted))"
    missing = page.evaluate(f"{missed}.length")
    assert missing == 0


def test_a_brush_moves_by_keyboard(served: Explorer, opened: Open) -> None:
    page = opened(served.url)
    page.locator("[data-column=suspicion] input").first.focus()
    for _ in range(3):
        page.keyboard.press("PageUp")
    until(page, f"parseInt(document.getElementById('count').textContent) < {SAMPLES}")
    assert address(page)["filters"]


@pytest.mark.parametrize("width", [400, 900, 1440])
def test_a_reviewer_is_led_from_one_suspect_to_the_next(width: int, tmp_path: Path, opened: Open) -> None:
    with explore(write_audit_folder(tmp_path / "run", audited(20)), browser=False) as served:
        page = opened(served.url, viewport={"width": width, "height": 800})
        first, second = page.locator("#gallery .card").nth(0), page.locator("#gallery .card").nth(1)
        assert first.bounding_box()["y"] < 800, "samples come first on a small screen too"
        first.focus()
        page.keyboard.press("k")
        first.locator(".badge.keep").wait_for()
        page.click("text=Review the suspects")
        page.wait_for_selector("#detail[open]")
        assert address(page)["open"] == int(second.get_attribute("data-row") or -1)
        page.keyboard.press("d")
        second.locator(".badge.drop").wait_for()
        until(page, "document.getElementById('detail-progress').textContent.startsWith('2 of')")
        page.keyboard.press("Escape")
        if width < 1200:
            assert not page.is_visible("#map-canvas")
            page.click("text=Select and map")
        assert page.is_visible("#map-canvas")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_histories_and_heat_maps_are_shown_where_a_record_has_them(tmp_path: Path, opened: Open) -> None:
    folder = write_audit_folder(tmp_path / "run", audited(20))
    (folder / "dynamics").mkdir()
    for epoch in range(3):
        history = pa.table(
            {"id": np.arange(20) * 7 + 1, "correct": np.full(20, epoch / 2), "loss": np.full(20, 3.0 - epoch)}
        )
        write_table(folder / "dynamics" / f"epoch-{epoch:05d}.parquet", history)
    image = np.zeros((8, 8, 3), np.uint8)
    write_thumbnails(folder / "thumbnails.parquet", [1, 8], [image, image])
    write_thumbnails(folder / "grad_cam.parquet", [1], [image])
    write_json(folder / "audit.json", {"name": "run", "kind": "audit", "class_names": list(NAMES)})
    with explore(folder, browser=False) as served:
        page = opened(served.url)
        page.locator("#gallery .card").first.click()
        page.wait_for_selector("#detail canvas.way")
        page.click("#detail button >> text=loss")
        assert "3, 2, 1" in (page.get_attribute("#detail canvas.way", "aria-label") or "")
        until(page, "document.querySelectorAll('#detail .large img').length === 2")
        page.keyboard.press("ArrowRight")
        until(page, "document.querySelectorAll('#detail .large img').length === 1")


def test_texts_are_coloured_token_by_token(tmp_path: Path, opened: Open) -> None:
    texts = ["the 🐈 sat", "x <b>y</b>"]
    fields = [("document", pa.int64()), ("start", pa.int32()), ("end", pa.int32())]
    easier = pa.field("log_probability", pa.float32(), metadata={"direction": "larger is easier"})
    tokens = pa.table(
        [[0, 0, 1, 1], [4, 6, 0, 2], [5, 9, 1, 10], pa.array([-1.0, -9.0, -2.0, -3.0], pa.float32())],
        schema=pa.schema([*fields, easier]),
    )
    write_table(tmp_path / "tokens.parquet", tokens)
    shown = pa.field("text", pa.string(), metadata={"kind": "shown"})
    schema = pa.schema([("id", pa.int64()), shown, ("loss", pa.float64())], {"tokens file": "tokens.parquet"})
    write_table(tmp_path / "documents.parquet", pa.table([[0, 1], texts, [2.0, 1.0]], schema=schema))
    with explore(tmp_path / "documents.parquet", browser=False) as served:
        page = opened(served.url)
        pieces = page.locator("#gallery .token")
        assert pieces.all_inner_texts() == ["🐈", "sat", "x", "<b>y</b>"]
        hardest = page.locator("#gallery .tenth9")
        assert hardest.all_inner_texts() == ["sat"]
        assert page.locator("#gallery .text").first.inner_text() == texts[0]
        page.select_option("[aria-label='Tokens by']", "")
        until(page, "document.querySelectorAll('#gallery .token').length === 0")
