"""An adapter whose framework is not installed says in one sentence what to install."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "framework", "package"),
    [
        ("lightning", "lightning.pytorch", "lightning"),
        ("huggingface", "transformers", "transformers"),
        ("metrics", "torchmetrics", "torchmetrics"),
    ],
)
def test_an_adapter_without_its_framework_names_the_package(
    adapter: str, framework: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, f"hardsight.dynamics.{adapter}", raising=False)
    with pytest.raises(ImportError, match=rf"needs? \w+: pip install {package}$"):
        importlib.import_module(f"hardsight.dynamics.{adapter}")
