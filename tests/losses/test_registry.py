"""A loss is one function and one module with the same defaults; the docs' table and code are up to date and run."""

import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hardsight import losses
from hardsight.losses import LOSSES
from hardsight.losses.registry import Sizes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "losses.md"


FUNCTIONS = {
    "cross_entropy": losses.cross_entropy,
    "spherical_softmax": losses.spherical_softmax_loss,
    "taylor_softmax": losses.taylor_softmax_loss,
    "amc": losses.amc_loss,
    "contrastive": losses.contrastive_loss,
    "center": losses.center_loss,
    "gradient_rescaling": losses.gradient_rescaling,
    "mae": losses.mae_loss,
    "gce": losses.gce_loss,
    "truncated_gce": losses.truncated_gce_loss,
    "symmetric_cross_entropy": losses.symmetric_cross_entropy,
    "focal": losses.focal_loss,
    "bootstrapping_soft": losses.bootstrapping_loss,
    "forward_correction": losses.forward_correction_loss,
    "backward_correction": losses.backward_correction_loss,
    "self_paced": losses.self_paced_loss,
    "d2l": losses.d2l_loss,
    "joint_optimisation": losses.joint_optimisation_loss,
}
# What a call brings, or what only one of the two can leave out.
OF_A_CALL = {"sample_weight", "normaliser", "kept", "prior"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_module_s_defaults(name: str) -> None:
    module = LOSSES[name].make(Sizes(dim=4, classes=3, samples=5))
    # A module of its own smooths labels.
    left_out = OF_A_CALL | ({"label_smoothing"} if name == "cross_entropy" else set())
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    expected = {
        one.name: one.default for one in parameters if one.default is not one.empty and one.name not in left_out
    }
    assert {key: getattr(module, key, "not kept") for key in expected} == expected
    assert expected["ignore_index"] == -100


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
    assert len(blocks) >= 4
