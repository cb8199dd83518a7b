"""An audit's folder as it lies on disk, with pictures, texts and neighbours; and its page in a real browser."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from hardsight.records import write_json, write_table

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAMPLES, SUSPECTS = 300, 40
NAMES = ("cat", "dog", "horse")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


def until(page: "Page", what: str) -> None:
    """Wait until JavaScript says so; Playwright's own way would need what the page's policy forbids."""
    end = time.monotonic() + 15
    while not page.evaluate(what):
        assert time.monotonic() < end, what
        page.wait_for_timeout(20)


def score(name: str, **said: str) -> pa.Field:
    described = {"kind": "score", "title": name.capitalize(), "direction": "larger is harder", **said}
    return pa.field(name, pa.float64(), metadata=described)


def audited(rows: int = SAMPLES, **extra: Any) -> pa.Table:
    """A table as an audit leaves it: most suspicious first, some labels wrong, some values missing."""
    random = np.random.default_rng(0)
    label = random.integers(0, 3, rows)
    suspicion = np.linspace(1, 0, rows)
    expected = np.where(np.arange(rows) < SUSPECTS, (label + 1) % 3, label)
    loss = random.gamma(2.0, 1.0, rows)
    loss[5] = np.nan
    kinds = [["mislabelled"] if at < SUSPECTS else ["outlier", "hard"] if at % 10 == 0 else [] for at in range(rows)]
    columns: dict[str, tuple[pa.Field, Any]] = {
        "id": (pa.field("id", pa.int64()), np.arange(rows) * 7 + 1),
        "label": (pa.field("label", pa.int64()), label),
        "expected": (pa.field("expected", pa.int64()), expected),
        "suspicion": (score("suspicion"), suspicion),
        "rank": (pa.field("rank", pa.int64()), np.arange(1, rows + 1)),
        "issue": (pa.field("issue", pa.bool_()), np.arange(rows) < SUSPECTS),
        "reasons": (pa.field("reasons", pa.string()), ["the model expects another class"] * rows),
        "kinds": (pa.field("kinds", pa.list_(pa.string())), kinds),
        "loss": (score("loss"), loss),
        "split": (pa.field("split", pa.string()), ["train" if at % 4 else "test" for at in range(rows)]),
        "x": (pa.field("x", pa.float32()), random.normal(size=rows)),
        "y": (pa.field("y", pa.float32()), random.normal(size=rows)),
        "neighbours": (
            pa.field("neighbours", pa.list_(pa.int32())),
            [[(at + by) % rows for by in (1, 2, 3)] for at in range(rows)],
        ),
        "text": (
            pa.field("text", pa.string(), metadata={"kind": "shown"}),
            [HOSTILE if at == 0 else f"a text about number {at}" for at in range(rows)],
        ),
        "path": (pa.field("path", pa.string()), [f"{NAMES[label[at]]}/{at}.png" for at in range(rows)]),
    }
    for name, values in extra.items():
        columns[name] = (columns[name][0], values)
    fields = [field for field, _ in columns.values()]
    arrays = [pa.array(values, field.type) for field, values in columns.values()]
    return pa.table(arrays, schema=pa.schema(fields, {"class names": json.dumps(NAMES)}))


def write_audit_folder(folder: Path, table: pa.Table) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "table.parquet", table)
    details = {"name": "audit of pets", "kind": "audit", "class_names": list(NAMES), "config": {"source": "pets"}}
    write_json(folder / "audit.json", details)
    return folder


def write_pets(folder: Path) -> Path:
    """The audit's folder; its pictures lie below `images`."""
    write_audit_folder(folder, audited())
    label = audited().column("label").to_numpy()
    for at in range(24):
        path = folder / "images" / NAMES[label[at]] / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40 + at, 30), (at * 10, 90, 160)).save(path)
    return folder


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return write_pets(tmp_path / "pets")


@pytest.fixture
def opened(browser: "Browser") -> "Iterator[Callable[..., Page]]":
    """Opens an address in a window of its own; nothing may be written to the console as an error."""
    windows, errors = [], []

    def open_page(url: str, *, ready: bool = True, **options: Any) -> "Page":
        window = browser.new_context(
            **{"viewport": {"width": 1500, "height": 950}, "reduced_motion": "reduce"} | options
        )
        windows.append(window)
        page = window.new_page()
        page.on("pageerror", lambda problem: errors.append(str(problem)))
        page.on("console", lambda said: "Content Security Policy" in said.text and errors.append(said.text))
        page.goto(url)
        if ready:
            page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for window in windows:
        window.close()
    assert errors == []
