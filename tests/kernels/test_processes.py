"""Two processes under DistributedDataParallel (gloo) and one process take the same step with every fused loss."""

from collections.abc import Callable

import pytest

# What one process would do is computed before the processes know of each other.
SCRIPT = """
import json, os, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from hardsight import losses
import hardsight.kernels.dispatch as dispatch

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
# Both processes share the one GPU, where there is one.
device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
inputs, labels = torch.randn(12, 4).to(device), torch.randint(5, (12,)).to(device)
# Samples that count differently in the two processes, and not at all.
weights = (torch.rand(12) + 0.5).to(device)
marked = torch.where(torch.arange(12, device=device) == 1, -100, labels)
rescaled = {"weight": {}, "own sum": {"across_processes": False}, "normaliser": {"normaliser": 700.0}}


class Step(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.body, self.head = name, nn.Linear(4, 6), nn.Linear(6, 5)

    def forward(self, inputs, part):
        features, options = self.body(inputs), {"fused": True}
        counted = {"sample_weight": weights[part], **options}
        if self.name in rescaled:
            return losses.gradient_rescaling(self.head(features), marked[part], **rescaled[self.name], **counted)
        if self.name.startswith("linear"):
            given = (features, self.head.weight, self.head.bias, marked[part])
            return losses.linear_gradient_rescaling(*given, **rescaled[self.name.removeprefix("linear, ")], **counted)
        loss = losses.avh_loss(features, self.head.weight, labels[part], 7.0, **options)
        if self.name == "pairs":
            loss = losses.amc_loss(features, marked[part], 1.0, pairs="all", **counted) + 0.0 * loss
        return loss + 0.0 * self.head.bias.sum()


names = [*rescaled, "linear, weight", "linear, normaliser", "angular", "pairs"]
steps = {name: Step(name).to(device) for name in names}
expected, report = {}, {}
for name, step in steps.items():
    step(inputs, slice(0, 12)).backward()
    expected[name] = [parameter.grad.clone() for parameter in step.parameters()]
    step.zero_grad()

dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)
for name, step in steps.items():
    # The mean of means is the whole mean only where both have as many samples.
    cut = 6 if name == "angular" else 7
    part = slice(0, cut) if rank == 0 else slice(cut, 12)
    wrapped = DistributedDataParallel(step)
    wrapped(inputs[part], part).backward()
    found = [parameter.grad for parameter in step.parameters()]
    largest = max(float(b.abs().max()) for b in expected[name])
    report[name] = max(float((a - b).abs().max()) for a, b in zip(found, expected[name], strict=True)) / largest
dist.barrier()
dist.destroy_process_group()
print(json.dumps(report))
"""
NAMES = ["weight", "normaliser", "linear, weight", "linear, normaliser", "angular", "pairs"]


@pytest.fixture(scope="module")
def differences(in_two_processes: Callable[[str], list[dict[str, float]]]) -> list[dict[str, float]]:
    """Largest difference to the gradients of one process, of each loss, as each of the two processes sees it."""
    return in_two_processes(SCRIPT)


def test_two_processes_equal_one(device: str, differences: list[dict[str, float]]) -> None:
    assert {name: max(seen[name] for seen in differences) for name in NAMES} == {
        name: pytest.approx(0, abs=2e-5) for name in NAMES
    }
    # The law can fail: each process by its own sum is not one process.
    assert min(seen["own sum"] for seen in differences) > 1e-3
