"""The page as it is used, in a real Chromium: pages, filters, large pictures, decisions and their list."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import hardsight as hs
from hardsight.cleaning import apply_actions, read_actions
from hardsight.cleaning.decisions import guarded
from hardsight.cli import app
from hardsight.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

Maker = Callable[..., Path]
HOSTILE = [
    "<script>document.title = 'run'</script>",
    '"><img src=x onerror="document.title = 1">',
    "=HYPERLINK('https://evil.example')",
    "-1, =cmd()",
    "line\nbreak\r\nand \\n \x00 \x07 end",
    "__proto__",
    '{{ 7 * 7 }} "quoted", comma',
    "猫 🐈 ‮ backwards",
]


@pytest.fixture(scope="module")
def digits_path(digits_record: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(digits_record, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def visit(browser: "Browser") -> "Iterator[Callable[..., Page]]":
    """Open a page in a window of its own; what it asks the network for or complains of fails the test."""
    troubles: list[str] = []
    contexts = []

    def open_page(path: Path, **options: Any) -> "Page":
        context = browser.new_context(**({"reduced_motion": "reduce"} | options))
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda one: troubles.append(one.url) if one.url.startswith(("http", "ws")) else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def cards(page: "Page", section: str = "suspects") -> "Locator":
    """The cards of a section that are seen."""
    return page.locator(f"#{section} .card:visible")


def ids_of(found: "Locator") -> list[str]:
    return [json.loads(line)[0] for line in found.evaluate_all("all => all.map(one => one.dataset.line)")]


def downloaded(page: "Page", path: Path) -> Path:
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download actions.csv").click()
    begun.value.save_as(path)
    return path


def test_all_suspects_that_are_held_are_seen_page_by_page(
    visit: "Callable[..., Page]", digits_record: Path, digits_path: Path
) -> None:
    table = pq.read_table(digits_record / "samples.parquet").sort_by([("avh", "descending")])
    expected = [str(one) for one in table["id"].to_pylist()[:200]]
    page, seen = visit(digits_path), []
    section = page.locator("#suspects")
    following = section.get_by_role("button", name="Next")
    while True:
        seen += ids_of(cards(page))
        assert cards(page).count() <= 24
        if following.is_disabled():
            break
        following.click()
    assert seen == expected
    section.get_by_role("button", name="Previous").click()
    assert ids_of(cards(page)) == expected[168:192]


def test_filters_and_search_leave_what_they_name(
    visit: "Callable[..., Page]", digits_record: Path, digits_path: Path
) -> None:
    table = pq.read_table(digits_record / "samples.parquet").sort_by([("avh", "descending")]).slice(0, 200).to_pylist()
    page = visit(digits_path)
    section = page.locator("#suspects")
    section.get_by_label("given").select_option("3")
    mine = [row for row in table if row["label"] == 3]
    assert ids_of(cards(page)) == [str(row["id"]) for row in mine][:24]
    said = next(row["predicted"] for row in mine)
    section.get_by_label("expected").select_option(str(said))
    assert ids_of(cards(page)) == [str(row["id"]) for row in mine if row["predicted"] == said]
    section.get_by_label("given").select_option("")
    section.get_by_label("expected").select_option("")
    section.get_by_role("searchbox").fill(f"id {table[30]['id']} ")
    assert str(table[30]["id"]) in ids_of(cards(page))
    section.get_by_role("searchbox").fill("no such sample")
    assert cards(page).count() == 0


def test_a_cell_of_the_confusion_matrix_shows_its_samples(
    visit: "Callable[..., Page]", digits_record: Path, digits_path: Path
) -> None:
    table = pq.read_table(digits_record / "samples.parquet").sort_by([("avh", "descending")]).slice(0, 200).to_pylist()
    page = visit(digits_path)
    apart = next(row for row in table if row["label"] < row["predicted"])
    given, predicted = apart["label"], apart["predicted"]
    mine = [str(row["id"]) for row in table if (row["label"], row["predicted"]) == (given, predicted)]
    square = page.locator(f'#confusion svg [data-cell="{given}-{predicted}"]')
    square.click()
    assert ids_of(cards(page)) == mine[:24]
    page.keyboard.press("Enter")
    assert cards(page).count() == 24, "the chip that has the focus shows all again"
    square.focus()
    page.keyboard.press("Enter")
    assert ids_of(cards(page)) == mine[:24]
    square.focus()
    page.keyboard.press("ArrowLeft")
    moved = page.evaluate("document.activeElement.dataset.cell").split("-")
    assert int(moved[0]) == given
    assert int(moved[1]) < predicted
    row = page.locator("#confusion tr[data-cell]").nth(0)
    cell = (row.get_attribute("data-cell") or "").split("-")
    row.get_by_role("button").click()
    mine = [str(one["id"]) for one in table if [str(one["label"]), str(one["predicted"])] == cell]
    assert ids_of(cards(page)) == mine[:24]


def test_decisions_by_key_and_click_become_a_list_that_applies(
    visit: "Callable[..., Page]", digits_record: Path, digits_path: Path, tmp_path: Path
) -> None:
    table = pq.read_table(digits_record / "samples.parquet")
    names = json.loads((digits_record / "run.json").read_text())["class_names"]
    rows = {str(row["id"]): row for row in table.to_pylist()}
    page = visit(digits_path)
    ids = ids_of(cards(page))
    cards(page).nth(0).focus()
    for key in "rkdu":
        page.keyboard.press(key)
    cards(page).nth(4).get_by_role("button", name="drop").click()
    cards(page).nth(5).get_by_role("button", name="drop").click()
    cards(page).nth(5).get_by_role("button", name="drop").click()
    cards(page).nth(6).click()
    other = (rows[ids[6]]["label"] + 5) % 10
    page.get_by_label("New class").select_option(str(other))
    page.keyboard.press("Escape")
    actions = {one.id: one for one in read_actions(downloaded(page, tmp_path / "actions.csv"))}
    assert {one: actions[one].action for one in actions} == {
        ids[0]: "relabel", ids[1]: "keep", ids[2]: "drop", ids[3]: "keep", ids[4]: "drop", ids[6]: "relabel",
    }  # fmt: skip
    assert actions[ids[0]].new_label == names[rows[ids[0]]["predicted"]]
    applied = apply_actions(list(actions.values()), table["id"].to_pylist(), _labels(table), class_names=names)
    assert applied.labels[table["id"].to_pylist().index(int(ids[6]))] == other
    assert applied.counts == {"keep": 2, "relabel": 2, "drop": 2}
    before = (tmp_path / "actions.csv").read_text()
    page.reload()
    assert downloaded(page, tmp_path / "again.csv").read_text() == before, "what was decided is still there"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget all").click()
    assert page.locator("[data-decided]:not([data-decided=''])").count() == 0


def _labels(table: pa.Table) -> Any:
    import torch

    return torch.tensor(table["label"].to_pylist())


def test_two_windows_of_a_page_lose_nothing(visit: "Callable[..., Page]", digits_path: Path, tmp_path: Path) -> None:
    one = visit(digits_path)
    two = one.context.new_page()
    two.goto(digits_path.as_uri())
    cards(one).nth(0).press("d")
    cards(two).nth(1).press("k")
    cards(one).nth(2).press("u")
    ids = ids_of(cards(one))
    for page in (one, two):
        page.wait_for_function(
            "document.querySelectorAll('#suspects .card[data-decided]:not([data-decided=\"\"])').length === 3"
        )
        found = {action.id: action.action for action in read_actions(downloaded(page, tmp_path / "actions.csv"))}
        assert found == {ids[0]: "drop", ids[1]: "keep", ids[2]: "keep"}


def test_a_sample_is_shown_large_with_its_scores(visit: "Callable[..., Page]", digits_path: Path) -> None:
    page = visit(digits_path, viewport={"width": 1200, "height": 900})
    ids = ids_of(cards(page))
    small = cards(page).nth(1).locator("img").bounding_box()
    cards(page).nth(1).focus()
    page.keyboard.press("Enter")
    large = page.locator("dialog[open]")
    box = large.locator("img").bounding_box()
    assert small is not None
    assert box is not None
    assert box["width"] > 3 * small["width"]
    for score in ("avh", "confidence", "margin", "entropy", "loss", "norm"):
        assert large.get_by_text(score, exact=True).count() >= 1
    page.keyboard.press("ArrowRight")
    page.keyboard.press("d")
    page.keyboard.press("Escape")
    assert large.count() == 0
    assert cards(page).nth(2).get_attribute("data-decided") == "drop"
    assert ids_of(page.locator(":focus")) == [ids[3]], "after a decision the next is shown, and has the focus when left"


def test_texts_and_columns_asked_for_are_seen_found_and_filtered(visit: "Callable[..., Page]", tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(90) % 3
    features = (np.eye(3)[labels] + 0.2 * generator.normal(size=(90, 3))).astype(np.float32)
    given = labels.copy()
    given[:6] = (labels[:6] + 1) % 3
    table = pa.table(
        {
            "stars": [["one", "two", "three"][label] for label in given],
            "vector": list(features),
            "review": [
                f"review number {at}: {'long ' * 1000 if at == 4 else 'unlike' if at == 3 else 'short'}"
                for at in range(90)
            ],
            "shop": [f"shop {at % 2}" for at in range(90)],
        }
    )
    pq.write_table(table, tmp_path / "reviews.parquet")
    folder = hs.audit(table, label="stars", features="vector", text="review", show=["shop"]).save(tmp_path / "found")
    page = visit(folder / "report.html")
    wrong = [one for one in ids_of(cards(page)) if int(one) < 6]
    assert len(wrong) >= 5
    first = cards(page).nth(0)
    assert f"review number {ids_of(first)[0]}:" in first.inner_text()
    assert "shop" in first.inner_text()
    page.locator("#suspects").get_by_role("searchbox").fill("unlike SHOP")
    assert ids_of(cards(page)) == ["3"]
    cards(page).nth(0).focus()
    page.keyboard.press("r")
    path = downloaded(page, tmp_path / "actions.csv")
    arguments = ["--label", "stars", "--features", "vector", "--apply", str(path), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "reviews.parquet"), *arguments])
    assert done.exit_code == 0, done.output
    after = pq.read_table(tmp_path / "out" / "labels.parquet").to_pylist()
    changed = [row["id"] for row in after if row["label"] != row["new_label"]]
    assert changed == [3]


def test_hostile_names_are_text_and_their_list_reads_back(
    visit: "Callable[..., Page]", make_record: Maker, tmp_path: Path
) -> None:
    labels = np.arange(40) % 8
    columns = {
        "id": [f"{HOSTILE[at % 8]}{at}" for at in range(39)] + ["__proto__"],
        "label": labels,
        "predicted": (labels + 1) % 8,
        "avh": np.linspace(1, 0, 40),
        "path": [HOSTILE[(at + 3) % 8] for at in range(40)],
    }
    folder = make_record(columns, name=HOSTILE[0], class_names=HOSTILE)
    table = pq.read_table(folder / "samples.parquet")
    fields = [("text", pa.array([HOSTILE[(at + 5) % 8] for at in range(40)])), ("kinds", pa.array([[HOSTILE[0]]] * 40))]
    for name, values in fields:
        shown = {"kind": "shown"} if name == "text" else None
        table = table.append_column(pa.field(name, values.type, metadata=shown), values)
    pq.write_table(table, folder / "samples.parquet")
    page = visit(write_report(folder))
    assert page.locator("img, iframe").count() == 0
    assert page.title().endswith("hardsight")
    assert HOSTILE[0] in cards(page).nth(3).inner_text()
    cards(page).nth(0).focus()
    for key in "rdk" * 8:
        page.keyboard.press(key)
    assert ids_of(cards(page)) == [guarded(one) for one in columns["id"][24:]], "the keys went on to the next page"
    for _ in range(16):
        page.keyboard.press("r")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.title().endswith("hardsight")
    path = downloaded(page, tmp_path / "actions.csv")
    actions = read_actions(path)
    assert [one.id for one in actions] == columns["id"]
    assert [one.label for one in actions] == [HOSTILE[label] for label in labels]
    assert [one.new_label for one in actions if one.action == "relabel"] == [
        HOSTILE[(labels[at] + 1) % 8] for at, one in enumerate(actions) if one.action == "relabel"
    ]
    apply_actions(actions, columns["id"], _labels(table), class_names=HOSTILE)
    with path.open(newline="") as file:
        assert not [cell for line in csv.reader(file) for cell in line if cell.startswith(("=", "-", "+", "@"))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_fault_that_a_checker_finds(
    visit: "Callable[..., Page]", make_record: Maker, scheme: str
) -> None:
    checker = pytest.importorskip("axe_playwright_python.sync_playwright")
    columns = {"id": range(30), "label": [0, 1, 2] * 10, "predicted": [0, 2] * 15, "avh": np.linspace(1, 0, 30)}
    page = visit(write_report(make_record(columns)), color_scheme=scheme, bypass_csp=True)
    cards(page).nth(0).press("r")
    for opened in (False, True):
        if opened:
            cards(page).nth(1).press("Enter")
        found = checker.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
