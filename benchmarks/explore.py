"""How quickly a person sees what a brush selects: `hardsight explore` on a table of ImageNet's size, in a real browser.

A table of 1,281,167 rows and 12 scores, with 1,000 classes, two coordinates and a path for each row, is made at random.
Measured from outside, with Chromium: seconds until the port answers, the first time and from the cache; seconds from
there until the page can be used; for brushes dragged over three histograms, the milliseconds from every movement of the
hand to the frame that shows it; from a brush let go to the gallery; and the memory of the server (resident, and the
part that is its own: the columns are mapped files, which count as resident too).

    python benchmarks/explore.py [--rows 1281167] [--drags 3] [--save]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from machine import about, save
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCORES, CLASSES = 12, 1000
BROWSER = "/usr/bin/chromium"
# What the page marks is put beside the movements of the hand: when each was made, asked for and on the screen.
WATCH = """() => {
  window.seen = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const told = { name: entry.name, at: entry.startTime };
      window.seen.push(told);
      requestAnimationFrame(() => { told.shown = performance.now(); });
    }
  }).observe({ type: "mark" });
}"""
DRAG = """async (column) => {
  const canvas = document.querySelector(`[data-column=${column}] canvas`);
  canvas.scrollIntoView({ block: "center" });
  canvas.setPointerCapture = () => {};
  const box = canvas.getBoundingClientRect();
  const event = (type, share) => canvas.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, bubbles: true, clientX: box.left + share * box.width, clientY: box.top + 10 }));
  const frame = () => new Promise(requestAnimationFrame);
  const moves = [];
  event("pointerdown", 0.2);
  for (let step = 0; step < 90; step++) {
    await frame();
    moves.push(performance.now());
    event("pointermove", 0.25 + 0.5 * (step / 90));
  }
  await new Promise((done) => setTimeout(done, 1500));
  const end = performance.now();
  event("pointerup", 0.75);
  await new Promise((done) => setTimeout(done, 2500));
  return { moves, end, seen: window.seen.splice(0) };
}"""


def write_rows(path: Path, rows: int) -> None:
    """A table of scores at random, correlated as scores are."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=rows).astype(np.float32)
    label = random.integers(0, CLASSES, rows)
    expected = np.where(hidden > 2, random.integers(0, CLASSES, rows), label)
    columns: dict[str, Any] = {"id": np.arange(rows), "label": label, "expected": expected}
    fields = {}
    for at in range(SCORES):
        columns[f"score{at}"] = hidden + random.gamma(1.0 + at / 4, 1.0, rows).astype(np.float32)
        fields[f"score{at}"] = {"kind": "score", "direction": "larger is harder"}
    columns["x"], columns["y"] = hidden + random.normal(size=rows), random.normal(size=rows)
    columns["path"] = pa.array([f"train/n{one:04d}/{at:08d}.JPEG" for at, one in enumerate(label.tolist())])
    table = pa.table(columns)
    schema = pa.schema([one.with_metadata(fields[one.name]) if one.name in fields else one for one in table.schema])
    pq.write_table(table.cast(schema), path, compression="zstd")


def serve(table: Path) -> tuple["subprocess.Popen[str]", str, float]:
    """The command on a table: its process, the page's address and the seconds until the port answers."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "hardsight", "explore", str(table), "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().split()[1]
    return process, url, time.perf_counter() - start


def memory(process: "subprocess.Popen[str]") -> dict[str, float]:
    """MiB of a process that are resident, at most so far, and its own."""
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    told = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM", "RssAnon"))}
    return {
        name: round(int(told[key]) / 1024, 1) for name, key in (("now", "VmRSS"), ("most", "VmHWM"), ("own", "RssAnon"))
    }


def latencies(dragged: dict[str, Any]) -> tuple[list[float], float | None]:
    """Milliseconds from each movement to the frame that shows it or a later one, and from letting go to the gallery."""
    seen = dragged["seen"]
    asked = [one["at"] for one in seen if one["name"] == "asked"]
    painted = [one["shown"] for one in seen if one["name"] == "painted"]
    pairs = list(zip(asked, painted, strict=False))
    found = []
    for move in dragged["moves"]:
        shown = next((end for start, end in pairs if start >= move - 0.2), None)
        if shown is not None:
            found.append(shown - move)
    gallery = next((one["shown"] for one in seen if one["name"] == "gallery" and one["at"] > dragged["end"]), None)
    return found, None if gallery is None else gallery - dragged["end"]


def summary(values: list[float]) -> dict[str, float]:
    """Median, 95th and 100th percentile."""
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 1),
        "most": round(ordered[-1], 1),
        "count": len(ordered),
    }


def used(page: "Page", url: str) -> float:
    """Seconds until the page can be used."""
    start = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    return time.perf_counter() - start


def measure(rows: int, drags: int, folder: Path) -> dict[str, Any]:
    """All that is measured of one table."""
    table = folder / "scores.parquet"
    write_rows(table, rows)
    found: dict[str, Any] = {"rows": rows, "scores": SCORES, "table_mib": round(table.stat().st_size / 2**20, 1)}
    brushes: list[float] = []
    galleries: list[float] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for turn in ("first", "cached"):
            process, url, seconds = serve(table)
            try:
                page = browser.new_page(viewport={"width": 1500, "height": 950})
                found[turn] = {"port_s": round(seconds, 2), "page_s": round(used(page, url), 2)}
                if turn == "cached":
                    page.evaluate(WATCH)
                    for drag in range(drags):
                        shown, gallery = latencies(page.evaluate(DRAG, f"score{4 * drag % SCORES}"))
                        brushes += shown
                        galleries += [] if gallery is None else [gallery]
                found[turn]["server_mib"] = memory(process)
                page.close()
            finally:
                process.terminate()
                process.wait(30)
        browser.close()
    found["brush_ms"], found["gallery_ms"] = summary(brushes), summary(galleries)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_281_167])
    parser.add_argument("--drags", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="record what is measured in benchmarks/results")
    chosen = parser.parse_args()
    device = torch.device("cpu")
    record = about("explore", device, numpy=np.__version__, pyarrow=pa.__version__)
    record["tables"] = []
    for rows in chosen.rows:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            found = measure(rows, chosen.drags, Path(folder))
        record["tables"].append(found)
        print(found)
    if chosen.save:
        print(save(record, device).name)


if __name__ == "__main__":
    main()
