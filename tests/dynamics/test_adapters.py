"""An adapter whose framework is not installed says in one sentence what to install."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "framework", "extra"),
    [
        ("lightning", "lightning.pytorch", "lightning"),
        ("huggingface", "transformers", "huggingface"),
        ("metrics", "torchmetrics", "lightning"),
    ],
)
def test_an_adapter_without_its_framework_names_the_extra(
    adapter: str, framework: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, f"hardsight.dynamics.{adapter}", raising=False)
    with pytest.raises(ImportError, match=rf"needs? \w+: pip install 'hardsight\[{extra}\]'$"):
        importlib.import_module(f"hardsight.dynamics.{adapter}")
