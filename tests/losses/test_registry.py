"""The docs' table is made from the registry and the benchmark's file, and is up to date; the docs' code runs."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hardsight.losses import LOSSES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "losses.md"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("losses_benchmark", ROOT / "benchmarks" / "losses.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # As when it is run as a script: what lies beside it can be imported.
        patch.syspath_prepend(ROOT / "benchmarks")
        spec.loader.exec_module(module)
    return module


def test_the_docs_table_is_up_to_date(benchmark: ModuleType) -> None:
    results = json.loads(benchmark.RESULTS.read_text(encoding="utf-8"))
    text = DOCS.read_text(encoding="utf-8")
    assert benchmark.docs_with_table(text, results) == text, "run: python benchmarks/losses.py --docs"


def test_the_table_has_a_row_for_every_loss(benchmark: ModuleType) -> None:
    results = json.loads(benchmark.RESULTS.read_text(encoding="utf-8"))
    rows = benchmark.table(results).splitlines()[2:]
    assert [re.search(r"\((\w+)\)", row).group(1) for row in rows] == list(LOSSES)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)


def test_the_benchmark_runs_every_loss(benchmark: ModuleType) -> None:
    sizes = benchmark.Sizes(dim=8, classes=5, samples=16)
    times = benchmark.measure(rounds=2, batch=16, sizes=sizes, device="cpu")
    assert set(times) == {*LOSSES, "F.cross_entropy", "F.linear + F.cross_entropy"}
    assert all(0 < time["p20"] <= time["median"] <= time["p80"] for time in times.values())


def test_the_docs_code_runs() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        namespace: dict[str, object] = {}
        blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
        for block in blocks:
            exec(block, namespace)
    assert len(blocks) == 4
