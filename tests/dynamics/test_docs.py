"""The page about dynamics: its first example records every sample, and its numbers are those of the benchmark."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dynamics.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loop, suspects = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
    names: dict = {}
    exec(loop, names)
    assert {"id", "label", "avh_mean", "aum"} <= set(names["table"].column_names)
    assert len(names["table"]) == 64
    exec(suspects, names)
    assert names["issues"].scores == ("el2n_mean", "angular_margin")
    assert names["issues"].table["expected"].null_count == 0
    assert (tmp_path / "scores.parquet").is_file()


def test_the_numbers_are_those_measured():
    found = json.loads((ROOT / "benchmarks" / "results" / "recorder-cpu.json").read_text(encoding="utf-8"))
    for name, value in found["microseconds an update, 256 x 100 logits, one thread"].items():
        if "median" in value:
            assert f"| {name} | {value['median']} ({value['p20']} to {value['p80']}) |" in PAGE
