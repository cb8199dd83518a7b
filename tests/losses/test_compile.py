"""Compiled without a graph break, every loss gives the same value and gradient."""

import json
import subprocess
import sys

import pytest

from hardsight.losses.registry import LOSSES

# In a process of its own: the shape checks of the test run are not part of what is compiled.
SCRIPT = """
import json
import torch
from hardsight.losses.registry import LOSSES, Sizes

sizes, report = Sizes(dim=6, classes=5, samples=12), {}
torch.manual_seed(0)
labels, ids = torch.randint(5, (12,)), torch.arange(12)
labels[3] = -100


def evaluate(entry, module, function, first):
    first = first.clone().requires_grad_()
    value = function(first, labels, **({"ids": ids} if entry.needs_ids else {}))
    value.backward()
    return [value.detach(), first.grad, *(p.grad for p in module.parameters())]


for name, entry in LOSSES.items():
    module = entry.make(sizes)
    again = entry.make(sizes)
    again.load_state_dict(module.state_dict())
    first = torch.randn(12, 5 if entry.takes == "logits" else 6)
    try:
        torch._dynamo.reset()
        plain = evaluate(entry, module, module, first)
        compiled = evaluate(entry, again, torch.compile(again, fullgraph=True, backend="aot_eager"), first)
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(dict(again.state_dict()), dict(module.state_dict()))
        report[name] = ""
    except Exception as problem:
        report[name] = f"{type(problem).__name__}: {problem}"[-500:]
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def report() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", LOSSES)
def test_compiles_to_one_graph(name: str, report: dict[str, str]) -> None:
    assert report[name] == ""
