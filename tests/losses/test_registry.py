"""A loss is one function and one module with the same defaults; the docs' table and code are up to date and run."""

import importlib.util
import inspect
import json
import pickle
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from hardsight import losses
from hardsight.losses import LOSSES, registry
from hardsight.losses.inputs import Rows
from hardsight.losses.registry import Positive, Sizes, loss

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "losses.md"


# Losses whose module is a class of its own; that of every other follows from its function.
FUNCTIONS = {
    "amc": losses.amc_loss,
    "contrastive": losses.contrastive_loss,
    "center": losses.center_loss,
    "gradient_rescaling": losses.gradient_rescaling,
    "truncated_gce": losses.truncated_gce_loss,
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
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    expected = {
        one.name: one.default for one in parameters if one.default is not one.empty and one.name not in OF_A_CALL
    }
    assert {key: getattr(module, key, "not kept") for key in expected} == expected
    assert expected["ignore_index"] == -100


def test_a_loss_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module and its row of the registry follow from it, with settings and checks."""
    monkeypatch.setattr("hardsight.losses.registry.LOSSES", LOSSES.copy())

    @loss("made_here", "MadeHere", "−w log p_y", "nobody", high=7.0)
    def made_here(rows: Rows, *, strength: Positive = 2.0, kind: str = "a") -> Tensor:
        """Cross-entropy times a number."""
        return -strength * rows.expected(rows.log_softmax())

    entry = registry.LOSSES["made_here"]
    assert (entry.formula, entry.source, entry.high) == ("−w log p_y", "nobody", 7.0)
    logits, labels = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    module = entry.make(Sizes(4, 3, 6))
    assert (type(module).__name__, module.strength, module.kind) == ("MadeHere", 2.0, "a")
    assert "strength=2.0, kind='a', reduction='mean'" in repr(module)
    for reduction in ("mean", "sum", "none"):
        want = 2 * torch.nn.functional.cross_entropy(logits, labels, reduction=reduction)
        torch.testing.assert_close(made_here(logits, labels, reduction=reduction), want)
        torch.testing.assert_close(made_here.module(reduction=reduction)(logits, labels), want)
    assert list(inspect.signature(made_here).parameters) == [
        "logits", "target", "strength", "kind", "sample_weight", "ignore_index", "reduction",
    ]  # fmt: skip
    assert list(inspect.signature(made_here.module).parameters) == ["strength", "kind", "reduction", "ignore_index"]
    for wrong in (lambda: made_here.module(-1.0), lambda: made_here(logits, labels, strength=-1.0)):
        with pytest.raises(ValueError, match=r"strength .*0.*-1\.0"):
            wrong()
    for unknown in (lambda: made_here.module(force=1.0), lambda: made_here(logits, labels, force=1.0)):
        with pytest.raises(TypeError, match="force"):
            unknown()


@pytest.mark.parametrize("name", LOSSES)
def test_a_module_can_be_pickled(name: str) -> None:
    module = LOSSES[name].make(Sizes(dim=4, classes=3, samples=5))
    again = pickle.loads(pickle.dumps(module))
    assert repr(again) == repr(module)
    torch.testing.assert_close(again.state_dict(), module.state_dict())


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match=r"name .*'mae'"):
        registry.registered("mae", "", "")


def test_a_fixed_setting_is_not_offered() -> None:
    for make in (lambda: losses.CrossEntropy(label_smoothing=0.1), lambda: losses.SoftBootstrapping(hard=True)):
        with pytest.raises(TypeError, match=r"label_smoothing|hard"):
            make()


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
