"""The stored comparison with the `grad-cam` package: the same maps, no slower, and printed as measured."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = sorted((ROOT / "benchmarks" / "results").glob("grad_cam-*.json"))


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_the_same_maps_and_no_slower(path: Path) -> None:
    for label, found in json.loads(path.read_text())["cases"].items():
        assert found["largest_difference"] < 1e-4, label
        assert found["ours_over_grad_cam"]["p80"] < 1, label


def test_the_page_prints_what_was_measured() -> None:
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    measured = json.loads((ROOT / "benchmarks" / "results" / "grad_cam-cpu.json").read_text())
    assert f"`grad-cam` package {measured['versions']['grad-cam']}" in page
    for label, found in measured["cases"].items():
        ours, theirs = (found["milliseconds"][who]["median"] for who in ("ours", "grad-cam"))
        ratio = found["ours_over_grad_cam"]
        assert (
            f"| {label} | {found['largest_difference']:.0e} | {ours:.0f} ms | {theirs:.0f} ms | "
            f"{ratio['median']:.2f} ({ratio['p20']:.2f} … {ratio['p80']:.2f}) |"
        ) in page
        assert f"({found['rounds']} rounds" in page
