"""The page about dynamics: its first example runs, and it names every score and every benchmark number."""

import json
import re
from pathlib import Path

from hardsight.dynamics import dynamics_scores

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dynamics.md").read_text(encoding="utf-8")


def test_the_example_runs():
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    names: dict = {}
    exec(code, names)
    assert {"id", "label", "avh_mean", "aum"} <= set(names["table"].column_names)
    assert len(names["table"]) == 64


def test_every_score_has_its_row():
    for score in dynamics_scores():
        direction = "harder" if score.larger_is_harder else "easier"
        assert re.search(rf"\| `{score.name}` \| .* \| {direction} \| {re.escape(score.source)} \|", PAGE), score.name


def test_the_numbers_are_those_measured():
    found = json.loads((ROOT / "benchmarks" / "results" / "recorder-cpu.json").read_text(encoding="utf-8"))
    for name, value in found["microseconds an update, 256 x 100 logits, one thread"].items():
        if "median" in value:
            assert f"| {name} | {value['median']} ({value['p20']} to {value['p80']}) |" in PAGE
